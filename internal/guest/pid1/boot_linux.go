package pid1

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// boot builds the world of b and what serves it. files are closed or taken.
func boot(b *guest.Boot, files []*os.File) (*server, *guest.Booted, error) {
	clock := newStopwatch()
	rides := &rides{files: files}
	defer rides.close()
	tun, err := givenTUN(b)
	if err != nil {
		return nil, nil, err
	}
	if err := harden(b.Tied && !b.Given); err != nil {
		return nil, nil, err
	}
	listener, slot := rides.take(), rides.take()
	if rides.short {
		return nil, nil, errors.New("the boot message lacks descriptors")
	}
	// The lock stands for the box's life to everybody outside, so it comes first, and it is held until the process ends.
	if err := unix.FcntlFlock(slot.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return nil, nil, fmt.Errorf("lock the sandbox: %w", err)
	}
	l, err := net.FileListener(listener)
	if err != nil {
		return nil, nil, fmt.Errorf("open the listener: %w", err)
	}
	listener.Close()
	clock.lap("init")

	outside, err := openOutside()
	if err != nil {
		return nil, nil, err
	}
	defer outside.Close()
	if tun == nil {
		if tun, err = openTUN(b.Network); err != nil {
			return nil, nil, err
		}
	}
	disk, err := openDisk(b)
	if err != nil {
		return nil, nil, err
	}
	var notes []string
	var places []*place
	if b.Given {
		err = useWorld(b.Contents)
	} else {
		notes, places, err = buildWorld(b, rides)
	}
	if err != nil {
		return nil, nil, err
	}
	notes = append(notes, workingFolder(b)...)
	clock.lap("world")
	if err := settle(b); err != nil {
		return nil, nil, err
	}
	clock.lap("net")

	slack := calm()
	r, err := newReaper()
	if err != nil {
		return nil, nil, err
	}
	go r.loop()
	groups := make([]*os.File, b.Cgroups)
	for i := range groups {
		groups[i] = rides.take()
	}
	sp, err := startSpawner(r, groups, rulesOf(b), slack)
	if err != nil {
		return nil, nil, err
	}
	sp.minded = b.Given
	clock.lap("spawner")
	if sp.fence == 0 {
		notes = append(notes, "this kernel has no Landlock: files beyond the sandbox are kept away by its mounts alone")
	}
	tried, err := sp.probe(&b.Probe, int(outside.Fd()))
	if err != nil {
		return nil, nil, err
	}
	outside.Close()
	clock.lap("probe")

	s := &server{listener: l, spawner: sp, env: b.Env, user: b.User, dir: b.Dir, pids: b.Pids, places: places, most: 4 * b.Disk}
	if s.lease, err = newLease(slot, b.Lease, func() { s.die(guest.CauseLease) }); err != nil {
		return nil, nil, err
	}
	mem := &memory{limit: b.Memory}
	if b.Given {
		mem.events = ownCounter("oom_kill ", "memory.events", "memory/memory.oom_control")
		s.refused = ownCounter("max ", "pids.events", "pids/pids.events")
	}
	if b.MemoryEvents {
		mem.events = &counter{rides.take(), "oom_kill "}
	}
	if b.PidsEvents {
		s.refused = &counter{rides.take(), "max "}
	}
	for range b.Holds {
		s.holds = append(s.holds, rides.take())
	}
	if err := s.connect(b, tun, rides); err != nil {
		return nil, nil, err
	}
	if rides.short {
		return nil, nil, errors.New("the boot message lacks descriptors")
	}
	s.memory = mem
	if err := s.openNull(); err != nil {
		return nil, nil, err
	}
	if mem.limit > 0 {
		go mem.watch()
	}
	if disk != nil {
		go watchDisk(disk, b.Disk, func() { s.die(guest.CauseDisk) })
	}
	return s, &guest.Booted{Tried: tried, Notes: notes, Deadline: s.lease.deadline(), Spent: clock.spans}, nil
}

// rides are the descriptors that came with the boot message, taken in order.
type rides struct {
	files []*os.File
	short bool
}

func (r *rides) take() *os.File {
	if len(r.files) == 0 {
		r.short = true
		return nil
	}
	f := r.files[0]
	r.files = r.files[1:]
	return f
}

func (r *rides) close() {
	for _, f := range r.files {
		f.Close()
	}
}

// harden keeps the box's processes away from PID 1, its memory and its descriptors, and ties its life to its parent's when asked.
func harden(tied bool) error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("protect the init process: %w", err)
	}
	if tied {
		// The start set it too, but it doesn't survive a change of credentials.
		if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
			return fmt.Errorf("tie the sandbox to its owner: %w", err)
		}
	}
	unix.Umask(0o022)
	return deaf()
}

// settle names the machine, brings its loopback up and sets the limits that all its processes inherit.
func settle(b *guest.Boot) error {
	if !b.Given {
		if err := unix.Sethostname([]byte(b.Hostname)); err != nil {
			return fmt.Errorf("set the host name: %w", err)
		}
		if err := loopbackUp(); err != nil {
			return fmt.Errorf("bring the loopback interface up: %w", err)
		}
	}
	// One byte, and not none: at 1 alone the kernel doesn't start the host's program for crashes either, as root of the host, which
	// kernel.core_pattern may name.
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: 1, Max: 1}); err != nil {
		return fmt.Errorf("limit core files: %w", err)
	}
	if b.Pids > 0 {
		if err := lowerLimit(unix.RLIMIT_NPROC, b.Pids+reserve); err != nil {
			return fmt.Errorf("limit processes: %w", err)
		}
	}
	return nil
}

// reserve is how many threads PID 1 may have beyond the box's limit: its runtime dies when it can't make one.
const reserve = 64

// lowerLimit sets a limit of this process, never above what it has.
func lowerLimit(which int, to uint64) error {
	var have unix.Rlimit
	if err := unix.Getrlimit(which, &have); err != nil {
		return err
	}
	to = min(to, have.Max)
	return unix.Setrlimit(which, &unix.Rlimit{Cur: to, Max: to})
}

func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}

// stopwatch measures the stretches of a start.
type stopwatch struct {
	last  time.Time
	spans []guest.Span
}

func newStopwatch() *stopwatch { return &stopwatch{last: time.Now()} }

func (s *stopwatch) lap(name string) {
	now := time.Now()
	s.spans = append(s.spans, guest.Span{Name: name, Took: now.Sub(s.last)})
	s.last = now
}
