package local

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/sandbox"
)

// Check is what Create would refuse without trying.
func (p *Provider) Check(_ context.Context, s sandbox.Spec) error {
	if err := check(&s); err != nil {
		return err
	}
	if hints := namespaceHints(readSetting); len(hints) > 0 {
		return namespaceRefusal(unix.EPERM, hints)
	}
	return p.program.Check()
}

// Examine looks at what boxes need, makes one, and takes it away again.
func (p *Provider) Examine(ctx context.Context) Report {
	r := Report{OK: true}
	add := func(f Finding) {
		r.Findings = append(r.Findings, f)
		if f.Needed && !f.OK {
			r.OK = false
		}
	}
	add(kernelFinding(release()))
	add(namespaceFinding(namespaceHints(readSetting)))
	add(p.programFinding())
	for _, f := range limitFindings(p.host.controlGroups()) {
		add(f)
	}
	add(p.idFinding())
	add(p.diskFinding())
	add(networkFinding())
	begin := time.Now()
	info, err := p.Create(ctx, sandbox.Spec{Name: "check", Tied: true, Isolation: sandbox.LevelNone})
	if err != nil {
		add(Finding{Name: "start", Needed: true, Detail: err.Error(), Fix: "see what the message names"})
		return r
	}
	took := time.Since(begin)
	r.Isolation = info.Isolation
	if err := p.Destroy(context.WithoutCancel(ctx), info.ID); err != nil {
		add(Finding{Name: "end", Needed: true, Detail: err.Error(), Fix: "agent-env sandbox prune"})
	}
	add(Finding{Name: "start", Needed: true, OK: true, Detail: fmt.Sprintf("a sandbox started in %.1f ms", float64(took.Microseconds())/1000)})
	add(isolationFinding(info.Isolation))
	add(fenceFinding(info.Isolation))
	return r
}

// The oldest kernel that has all that a box needs: mount_setattr came with 5.12, overlays in user namespaces with 5.11.
const kernelMajor, kernelMinor = 5, 12

func kernelFinding(release string) Finding {
	f := Finding{Name: "kernel", Needed: true, Detail: "Linux " + release}
	major, rest, _ := strings.Cut(release, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major)
	b, _ := strconv.Atoi(strings.TrimRight(minor, "-+abcdefghijklmnopqrstuvwxyz"))
	if f.OK = a > kernelMajor || a == kernelMajor && b >= kernelMinor; !f.OK {
		f.Fix = fmt.Sprintf("local sandboxes need Linux %d.%d or later; use another sandbox provider, such as docker", kernelMajor, kernelMinor)
	}
	return f
}

func release() string {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "of unknown version"
	}
	return unix.ByteSliceToString(u.Release[:])
}

func namespaceFinding(hints []string) Finding {
	if len(hints) > 0 {
		return Finding{Name: "namespaces", Needed: true, Detail: "this host refuses to make namespaces", Fix: strings.Join(hints, "; ")}
	}
	return Finding{Name: "namespaces", Needed: true, OK: true, Detail: "no setting of the host forbids them"}
}

func (p *Provider) programFinding() Finding {
	f := Finding{Name: "guest program", Needed: true}
	if _, err := p.program.Path(); err != nil {
		f.Detail, f.Fix = err.Error(), "build with make build"
		return f
	}
	f.OK, f.Detail = true, "this program plays the guest itself"
	if len(guestProgram) > 0 {
		f.Detail = fmt.Sprintf("carried, %.1f MB", float64(len(guestProgram))/1e6)
	}
	return f
}

// limitFindings say what can hold boxes to their limits.
func limitFindings(c *cgroups) []Finding {
	var fs []Finding
	without := map[string]string{
		"memory": "by a limit on each process and a watchdog on their sum", "pids": "by a resource limit", "cpu": "not at all",
	}
	for _, name := range controllers {
		f := Finding{Name: name + " limit", OK: true, Detail: "by control groups"}
		if _, v1 := c.v1[name]; !v1 && c.v2 == "" {
			f.OK, f.Detail = false, without[name]
			f.Fix = "run as root, or under a delegated control group (systemd-run --user --scope -p Delegate=yes)"
		}
		fs = append(fs, f)
	}
	return fs
}

func (p *Provider) idFinding() Finding {
	if !p.host.wide {
		return Finding{
			Name: "user ids", Detail: "a sandbox has one id, yours outside and root inside; programs that change owners are refused",
			Fix: "run as root for sandboxes with 65536 ids",
		}
	}
	return Finding{Name: "user ids", OK: true, Detail: fmt.Sprintf("a sandbox has %d ids of its own", idRange)}
}

// diskFinding says where large disks are.
func (p *Provider) diskFinding() Finding {
	f := Finding{Name: "large disks", OK: true, Detail: fmt.Sprintf("beyond %d MB a file system in a file", p.opts.memoryDisk()>>20)}
	if !p.host.wide {
		f.OK, f.Detail = false, fmt.Sprintf("beyond %d MB a folder whose size is watched", p.opts.memoryDisk()>>20)
		f.Fix = "run as root for disks that can't be overfilled"
		return f
	}
	if _, err := findMkfs(); err != nil {
		return Finding{Name: f.Name, Detail: fmt.Sprintf("at most %d MB: %v", p.opts.memoryDisk()>>20, err), Fix: "install e2fsprogs"}
	}
	if unix.Access("/dev/loop-control", unix.W_OK) != nil {
		return Finding{Name: f.Name, Detail: fmt.Sprintf("at most %d MB: there is no /dev/loop-control", p.opts.memoryDisk()>>20), Fix: "modprobe loop"}
	}
	return f
}

// fenceFinding says whether files are fenced off by Landlock too: the probe of a leaked folder is made only where they are.
func fenceFinding(i sandbox.Isolation) Finding {
	f := Finding{Name: "landlock", Detail: "this kernel has none, so a sandbox's mounts alone keep files away", Fix: "boot with landlock in the list of security modules (lsm=landlock,...)"}
	for _, probe := range i.Probes {
		if probe.Name == "leaked_folder" {
			return Finding{Name: f.Name, OK: probe.OK, Detail: "even a leaked descriptor of a folder of the host opens nothing"}
		}
	}
	return f
}

// isolationFinding sums the probes up.
func isolationFinding(i sandbox.Isolation) Finding {
	f := Finding{Name: "isolation", Needed: true, OK: i.Level != sandbox.LevelNone, Detail: i.Level}
	var failed []string
	for _, probe := range i.Probes {
		if !probe.OK {
			failed = append(failed, probe.Name+" ("+probe.Detail+")")
		}
	}
	if slices.Sort(failed); len(failed) > 0 {
		f.Detail = "these do not hold: " + strings.Join(failed, ", ")
		f.Fix = "use another sandbox provider, such as docker"
	}
	return f
}
