package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
	"agentenv.internal/agentenv/internal/treestore"
)

// making is one box on its way.
type making struct {
	p       *Provider
	spec    *sandbox.Spec
	image   *image.Root // nil: the host's root
	slot    *slot
	base    int
	layout  *layout
	layers  []layer           // of the snapshot that it begins with
	held    []*treestore.Held // trees that the box is to hold
	group   *group
	rides   rides
	child   *child
	net     hostside.Network
	marker  string // a file of the host that must not appear
	created time.Time
	disk    *disk
}

// rides are the descriptors that go with the boot message, in its order.
type rides struct{ files []*os.File }

func (r *rides) add(f ...*os.File) { r.files = append(r.files, f...) }

func (r *rides) close() {
	for _, f := range r.files {
		f.Close()
	}
	r.files = nil
}

// look finds out what of the host the box shall see.
func (m *making) look(ctx context.Context) error {
	if m.image != nil {
		m.layout = m.imageLayout()
		if err := m.begin(ctx); err != nil {
			return err
		}
		return m.show()
	}
	trees, err := m.hostTrees(ctx)
	if err != nil {
		return err
	}
	if m.layout, err = m.p.host.layout(trees, &m.p.opts); err != nil {
		return err
	}
	if err := m.begin(ctx); err != nil {
		return err
	}
	return m.show()
}

// show adds what this box alone is to see.
func (m *making) show() error {
	shown := m.spec.Shown
	if m.spec.Self {
		self, err := selfPath()
		if err != nil {
			return err
		}
		shown = append(slices.Clone(shown), sandbox.Shown{From: self, At: sandbox.SelfPath})
	}
	for _, s := range shown {
		info, err := os.Stat(s.From)
		if err != nil {
			return fmt.Errorf("show %s in the sandbox: %w", s.At, err)
		}
		m.layout.binds = append(m.layout.binds, source{target: s.At, paths: []string{s.From}, dir: info.IsDir()})
	}
	return nil
}

// selfPath is the running program's file, which every user of a box can execute.
func selfPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program's file: %w", err)
	}
	running, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", fmt.Errorf("look at this program's file: %w", err)
	}
	info, err := os.Stat(self)
	switch {
	case err != nil || !os.SameFile(info, running):
		return "", fmt.Errorf("this program's file %s was removed or replaced while it ran, so a sandbox can't be shown it: start it again", self)
	case info.Mode()&0o005 != 0o005:
		return "", fmt.Errorf("this program's file %s can't be shown to sandboxes, since others may not read and execute it: chmod a+rx it", self)
	}
	return self, nil
}

// prepare makes all that the child needs and writes the box's first record.
func (m *making) prepare(ctx context.Context) error {
	m.created = time.Now().UTC().Round(time.Millisecond)
	m.base = m.p.host.ids()
	if err := m.net.Publish(ctx, m.spec.Publish); err != nil {
		return err
	}
	r := record{Info: m.info()}
	r.State = sandbox.StateStarting
	l := limits{memory: m.spec.MemoryMB << 20, cpu: m.spec.CPU, pids: m.spec.Pids}
	// The record names the groups before they are made: a maker may be killed in between, and the sweep has to find them.
	groups := m.p.host.controlGroups()
	r.Cgroups = groups.names(m.slot.id, l)
	if err := m.slot.write(&r); err != nil {
		return err
	}
	var err error
	if m.group, err = groups.make(m.slot.id, l); err != nil {
		return err
	}
	listener, err := m.slot.listen()
	if err != nil {
		return err
	}
	m.rides.add(listener)
	file, err := m.slot.forGuest()
	if err != nil {
		return err
	}
	m.rides.add(file)
	return m.net.Prepare(m.slot.dir, m.slot.id+networkSuffix, m.spec)
}

// start forks the child, boots it once looked has said that the host is known, and checks from outside what it can't.
func (m *making) start(ctx context.Context, looked <-chan error) (*guest.Booted, error) {
	log, err := hostside.NewWords()
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if m.child, err = m.p.fork(ctx, m.base, m.ids(), log); err != nil {
		return nil, err
	}
	nobody := 0
	if m.p.host.wide {
		nobody = m.base + idRange - 1 // the last of the box's own
	}
	if err := m.net.Start(ctx, m.p.launcher, m.p.hosts, nobody, log); err != nil {
		return nil, err
	}
	if err := m.group.admit(m.child.pid); err != nil {
		return nil, err
	}
	if err := <-looked; err != nil {
		return nil, err
	}
	b, err := m.bootMessage(ctx)
	if err != nil {
		return nil, err
	}
	m.rides.add(m.group.join...)
	for _, f := range []*os.File{m.group.events, m.group.denied} {
		if f != nil {
			m.rides.add(f)
		}
	}
	files := slices.Clone(m.rides.files)
	for _, h := range m.holding() {
		if f := h.File(); f != nil {
			files = append(files, f)
			b.Holds++
		}
	}
	for _, s := range m.spec.Shown {
		if s.Hold != nil {
			files = append(files, s.Hold)
			b.Holds++
		}
	}
	way, err := m.join(b)
	if err != nil {
		return nil, err
	}
	booted, tun, err := m.child.boot(ctx, b, append(files, way...))
	if err == nil {
		err = m.net.Serve(ctx, m.p.opts.Proxy, tun)
	}
	if err != nil {
		return nil, hostside.LastWords(log, err)
	}
	if _, err := os.Lstat(m.marker); err == nil {
		for i := range booted.Tried {
			if booted.Tried[i].Name == "host_writes" {
				booted.Tried[i] = guest.Tried{Name: "host_writes", Detail: "a file written in the sandbox appeared on the host"}
			}
		}
	}
	return booted, m.release()
}

// release lets go of the trees, which the box holds by itself now.
func (m *making) release() error {
	var errs []error
	for _, h := range m.held {
		errs = append(errs, h.Release())
	}
	m.held = nil
	return errors.Join(errs...)
}

// bootMessage says what the box is to be. The mounts that go with it join the rides.
func (m *making) bootMessage(ctx context.Context) (*guest.Boot, error) {
	userns := -1
	if m.p.host.wide {
		fd, err := unix.Open("/proc/"+strconv.Itoa(m.child.pid)+"/ns/user", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open the sandbox's user namespace: %w", err)
		}
		defer unix.Close(fd)
		userns = fd
	}
	host := hostside.HostName(m.spec.Name, m.slot.id)
	m.marker = "/usr/.sandbox-" + m.slot.id
	var err error
	if m.disk, err = m.newDisk(ctx, m.spec.DiskMB, userns); err != nil {
		return nil, err
	}
	b := &guest.Boot{
		Hostname: host, Tied: m.spec.Tied, Lease: m.spec.Lease, OneID: !m.p.host.wide && m.ids() == nil,
		Env:     append([]string{"PATH=" + systemPath, "HOME=/root", "LANG=C.UTF-8"}, m.spec.Env...),
		Cgroups: len(m.group.join), MemoryEvents: m.group.events != nil, PidsEvents: m.group.denied != nil,
		Contents: map[string]string{
			"/etc/hostname":    host + "\n",
			"/etc/hosts":       "127.0.0.1 " + strings.Join(append([]string{"localhost", host}, m.spec.Aliases...), " ") + "\n::1 localhost ip6-localhost ip6-loopback\n",
			"/etc/resolv.conf": m.net.ResolvConf(),
		},
		Probe: guest.Probing{Hidden: m.p.hiddenPaths(m.slot), HostPID: os.Getpid(), Marker: m.marker, HostUID: m.p.host.uid},
	}
	m.disk.tell(b, &m.rides)
	m.imageBoot(b)
	if !m.group.holds["pids"] {
		b.Pids = uint64(m.spec.Pids)
	}
	if m.spec.MemoryMB > 0 && !m.group.holds["memory"] {
		b.Memory = m.spec.MemoryMB << 20
	}
	mounts, err := m.p.host.compose(b, m.layout, userns)
	if err != nil {
		return nil, err
	}
	m.rides.add(mounts.files...)
	return b, nil
}

// systemPath is the PATH of commands.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// undo takes away all that was made.
func (m *making) undo() error {
	errs := []error{m.release()}
	if m.child != nil {
		go m.child.watch()
		errs = append(errs, ignoreGone(m.child.proc.Signal(unix.SIGKILL)))
		<-m.child.ended
	}
	m.net.Close()
	if m.group != nil {
		m.group.close()
		for _, dir := range m.group.dirs {
			errs = append(errs, removeCgroup(dir, m.slot.id))
		}
	}
	errs = append(errs, m.slot.remove())
	return errors.Join(errs...)
}

func ignoreGone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

func (m *making) info() sandbox.Info {
	i := sandbox.Info{
		ID: m.slot.id, Provider: Name, Name: m.spec.Name, Key: m.spec.Key, Run: m.spec.Run, Tied: m.spec.Tied,
		Created: m.created, Expires: m.created.Add(m.spec.Lease), OwnerPID: os.Getpid(), From: m.spec.From, Labels: m.spec.Labels,
		Network: m.spec.Network, Egress: m.spec.Egress, Published: m.net.Published(),
	}
	if m.image != nil {
		c := sandbox.Entry(m.image.Config)
		i.Image, i.Entry = m.image.Ref, &c
	}
	return i
}

func (m *making) record(b *guest.Booted) record {
	r := record{Info: m.info(), Cgroups: m.group.dirs, Layers: m.layers, Shift: m.p.host.shift()}
	r.State = sandbox.StateRunning
	if at, err := hostside.Wall(b.Deadline); err == nil {
		r.Expires = at
	}
	r.Isolation = sandbox.Isolation{Level: sandbox.LevelNamespaces, Limits: m.limits()}
	for _, t := range b.Tried {
		r.Isolation.Probes = append(r.Isolation.Probes, sandbox.Probe{Name: t.Name, OK: t.OK, Detail: t.Detail})
		if !t.OK {
			r.Isolation.Level = sandbox.LevelNone
		}
	}
	m.imageRecord(&r)
	for _, note := range b.Notes {
		r.Isolation.Probes = append(r.Isolation.Probes, sandbox.Probe{Name: "note", OK: true, Detail: note})
	}
	return r
}

// limits says what enforces each limit.
func (m *making) limits() map[string]string {
	l := map[string]string{"memory": "none", "cpu": "none", "pids": "rlimit", "disk": m.disk.String()}
	if m.group.holds["pids"] {
		l["pids"] = "cgroup"
	}
	switch {
	case m.group.holds["memory"]:
		l["memory"] = "cgroup"
	case m.spec.MemoryMB > 0:
		l["memory"] = "watchdog"
	}
	if m.group.holds["cpu"] {
		l["cpu"] = "cgroup"
	}
	return l
}

// hold adds a tree that the box uses.
func (m *making) hold(h *treestore.Held, err error) (string, error) {
	if err != nil {
		return "", err
	}
	m.held = append(m.held, h)
	return h.Path(), nil
}

// hostTrees are what stands between the host's folders and a box.
type hostTrees struct {
	etc   string // the copy of /etc
	extra string // bare folders that go over /usr where ids aren't mapped; "" elsewhere
	// private takes away what only root may read, where ids are mapped; "" elsewhere.
	private string
}

func (m *making) hostTrees(ctx context.Context) (got hostTrees, err error) {
	t, h := m.p.trees, m.p.host
	uid := 0
	if h.wide && !h.idmaps() {
		uid = idFirst
	}
	build := func(fill func(string) error) func([]string, string) error {
		return func(_ []string, dir string) error {
			if err := fill(dir); err != nil || uid == 0 {
				return err
			}
			return give(dir, uid)
		}
	}
	etc := &treeKind{name: "etc", list: func() ([]string, error) { return etcNames("/etc") }, build: build(func(dir string) error { return copyEtc("/etc", dir) })}
	if got.etc, err = m.hold(t.get(ctx, etc, owner(uid))); err != nil {
		return got, err
	}
	if h.idmaps() {
		private := &treeKind{
			name: "private", list: func() ([]string, error) { return privateNames(ownedTops()), nil }, build: whiteOut, age: privateFor,
			index: cmp.Or(m.p.opts.privateIndex, filepath.Join(privateDir, "private.index")),
		}
		got.private, err = m.hold(t.get(ctx, private, owner(uid)))
		return got, err
	}
	got.extra, err = m.hold(t.get(ctx, &treeKind{name: "usr", list: skeletonNames, build: build(copySkeleton)}, owner(uid)))
	return got, err
}
