package app

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sandbox"
)

// What a Finding says of its matter.
const (
	Works  = "works"
	Lacks  = "lacks" // something optional is missing
	Broken = "broken"
)

// doctorTime is for one sandbox with everything that is tried in it.
const doctorTime = 20 * time.Second

// Finding is one thing that the doctor looked at.
type Finding struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail"`
	Fix    string `json:"fix,omitempty"`
}

// Doctor looks at what the program needs of this machine. It writes nothing but a sandbox that it removes again.
func (a *App) Doctor(ctx context.Context) []Finding {
	out := []Finding{a.examineConfig(), a.examineState(), a.examineStore(ctx)}
	return append(out, a.examineSandbox(ctx)...)
}

func (a *App) examineConfig() Finding {
	f := Finding{Name: "configuration", State: Works, Detail: a.Config().Path()}
	if f.Detail == "" {
		f.Detail = "no file; everything is a default"
	}
	problems := a.ConfigProblems()
	if err := problems.Err(); err != nil {
		f.State, f.Detail, f.Fix = Broken, err.Error(), "mend the file; agent-env config show tells what counts"
	} else if warnings := problems.Of(diag.Warning); len(warnings) > 0 {
		f.State, f.Detail = Lacks, warnings[0].String()
	}
	return f
}

// examineState asks whether the state folder can be written, without making it.
func (a *App) examineState() Finding {
	root := a.Config().StateRoot()
	f := Finding{Name: "state folder", State: Works, Detail: root}
	if root == "" {
		return Finding{"state folder", Broken, "there is no place for it", "set HOME or XDG_STATE_HOME to an absolute path"}
	}
	dir := root
	for {
		_, err := os.Stat(dir)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == filepath.Dir(dir) {
			return Finding{f.Name, Broken, err.Error(), "make the folder reachable, or set XDG_STATE_HOME"}
		}
		dir = filepath.Dir(dir)
	}
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return Finding{f.Name, Broken, dir + " can't be written: " + err.Error(), "make it writable, or set XDG_STATE_HOME"}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err == nil {
		free := st.Bavail * uint64(st.Bsize)
		f.Detail += fmt.Sprintf(" (%.1f GB free)", float64(free)/1e9)
		if free < 1e9 {
			f.State, f.Fix = Lacks, "free some space: sandboxes and artifacts are kept there"
		}
	}
	return f
}

func (a *App) examineStore(ctx context.Context) Finding {
	f := Finding{Name: "store", State: Works}
	log, err := a.RunLog(ctx)
	if err == nil {
		var page runlog.Page
		if page, err = log.List(ctx, runlog.Query{Limit: 1}); err == nil {
			f.Detail = "it can be read"
			if len(page.Runs) == 0 {
				f.Detail = "it can be read; there are no runs yet"
			}
			return f
		}
	}
	return Finding{f.Name, Broken, err.Error(), "see what the message names"}
}

// examineSandbox asks the providers what they need, then looks around in a local sandbox.
func (a *App) examineSandbox(ctx context.Context) []Finding {
	ctx, cancel := context.WithTimeout(ctx, doctorTime)
	defer cancel()
	w, err := a.getWorld(ctx)
	if err != nil {
		return []Finding{{"sandbox", Broken, err.Error(), "see what the message names"}}
	}
	report := w.local.Examine(ctx)
	var out []Finding
	for _, f := range report.Findings {
		state := Works
		switch {
		case !f.OK && f.Needed:
			state = Broken
		case !f.OK:
			state = Lacks
		}
		out = append(out, Finding{f.Name, state, f.Detail, f.Fix})
	}
	for _, f := range w.docker.Examine(ctx).Findings { // one can do without
		state := Works
		if !f.OK {
			state = Lacks
		}
		out = append(out, Finding{f.Name, state, f.Detail, f.Fix})
	}
	if !report.OK {
		return out
	}
	info, err := w.local.Create(ctx, sandbox.Spec{Name: "doctor", Tied: true})
	if err != nil {
		return append(out, Finding{"programs inside", Broken, err.Error(), "see what the message names"})
	}
	defer func() { _ = w.local.Destroy(context.WithoutCancel(ctx), info.ID) }()
	box, err := w.local.Connect(ctx, info.ID)
	if err != nil {
		return append(out, Finding{"programs inside", Broken, err.Error(), "see what the message names"})
	}
	defer box.Close()
	return append(out, programs(ctx, box)...)
}

// programs looks for what steps may use inside.
func programs(ctx context.Context, box guest.Box) []Finding {
	var out []Finding
	for _, want := range []struct {
		argv []string
		why  string
	}{
		{[]string{"sh", "-c", "echo $0"}, "verify_sandbox runs commands with it"},
		{[]string{"bash", "-c", "echo $BASH_VERSION"}, "verify_sandbox prefers it"},
		{[]string{"python3", "--version"}, "run_code needs it"},
	} {
		name := want.argv[0]
		r, err := guest.Output(ctx, box, guest.Command{Argv: want.argv, Timeout: 5 * time.Second}, guest.Limits{})
		if err != nil || !r.Exit.OK() {
			out = append(out, Finding{name + " inside", Lacks, "it is not there; " + want.why, "install it on this machine, in /usr"})
			continue
		}
		out = append(out, Finding{Name: name + " inside", State: Works, Detail: strings.TrimSpace(r.Stdout.String())})
	}
	return out
}
