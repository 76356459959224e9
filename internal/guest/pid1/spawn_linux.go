package pid1

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawner is the thread that starts commands. It is locked to its goroutine for ever; what it gave up, its children lack too.
type spawner struct {
	reaper *reaper
	work   chan func()
	fence  int  // the Landlock that holds it, as the kernel's version of it; 0: this kernel has none
	minded bool // commands are told apart by a minder each, and not by a mark of the kernel's
}

// startSpawner makes the thread, moves it into the cgroups of the box's commands, and takes its powers away. slack is what its timers have.
func startSpawner(r *reaper, groups []*os.File, more []rule, slack int) (*spawner, error) {
	s := &spawner{reaper: r, work: make(chan func())}
	ready := make(chan error)
	go aside(func() {
		exact(slack)
		err := joinGroups(groups)
		if err == nil {
			s.fence, err = restrict(more)
		}
		ready <- err
		if err != nil {
			return
		}
		for f := range s.work {
			f()
		}
	})
	return s, <-ready
}

// aside runs f on a thread of its own that isn't the process's first: the kernel takes a process to be in the cgroup of its first thread,
// and would kill PID 1, the largest there, when the memory of the box's commands is full.
func aside(f func()) {
	runtime.LockOSThread()
	if unix.Gettid() != unix.Getpid() {
		f()
		return
	}
	done := make(chan struct{})
	go func() { // this one stays locked to the first thread meanwhile, so that f can't come to run on it
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

// do runs f on the spawner thread.
func (s *spawner) do(f func()) {
	done := make(chan struct{})
	s.work <- func() {
		defer close(done)
		f()
	}
	<-done
}

func joinGroups(groups []*os.File) error {
	for _, g := range groups {
		if g == nil {
			return fmt.Errorf("a cgroup's descriptor is missing")
		}
		if _, err := g.WriteString("0"); err != nil {
			return fmt.Errorf("join the sandbox's cgroup: %w", err)
		}
		g.Close()
	}
	return nil
}

// program is a command made ready to start.
type program struct {
	path  string
	argv  []string
	env   []string
	dir   string
	stdio [3]uintptr
	as    *account // who runs it; nil: the box's root
	tty   bool     // stdio is a terminal, which becomes the one of its session
}

// started is a running command.
type started struct {
	pid  int
	mark marking
}

// marking tells the processes of one command from all others.
type marking interface {
	kill() (int, error) // as mark.kill
	close()
}

// start runs p in a session of its own and marks it. over is called when it has ended, which may be before start returns; it must not block for long.
func (s *spawner) start(p *program, over func(ending)) (st started, err error) {
	attr := &syscall.ProcAttr{
		Dir: p.dir, Env: p.env, Files: p.stdio[:],
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: p.tty, Credential: p.as.credential()},
	}
	if s.minded {
		return s.startMinded(p.path, p.argv, attr, over)
	}
	s.do(func() {
		m, markErr := newMark()
		if err = markErr; err != nil {
			return
		}
		st.mark = m
		st.pid, err = s.reaper.start(func() (int, error) { return syscall.ForkExec(p.path, p.argv, attr) }, over)
		if err != nil {
			m.close()
		}
	})
	if errors.Is(err, unix.E2BIG) && p.size() < smallArgs {
		err = unix.ENOMEM // the kernel found no page for them: the memory of the box's commands is full
	}
	return st, err
}

// smallArgs is what the kernel takes of arguments and environment under every limit, in bytes.
const smallArgs = 96 << 10

// size is how much of a new process its arguments and environment take, about.
func (p *program) size() (n int) {
	for _, list := range [][]string{p.argv, p.env} {
		for _, s := range list {
			n += len(s) + 9
		}
	}
	return n
}

// kept are the capabilities of commands, all of them within the box's own user namespace: what a package manager or a server needs.
var kept = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL, unix.CAP_SETGID, unix.CAP_SETUID,
	unix.CAP_SETPCAP, unix.CAP_NET_BIND_SERVICE, unix.CAP_SETFCAP, unix.CAP_AUDIT_WRITE,
}

// restrict takes from this thread, for good, what no command shall have: other capabilities, the gain of privileges by exec, files beyond
// the box, and the system calls of the filter. The thread itself keeps its effective capabilities, which end at a command's exec. It
// answers the version of Landlock.
func restrict(more []rule) (int, error) {
	for c := uint(0); ; c++ {
		if slices.Contains(kept, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0); err != nil {
			if err == unix.EINVAL && c > unix.CAP_AUDIT_READ {
				break // past the kernel's last
			}
			return 0, fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := inheritNothing(); err != nil {
		return 0, fmt.Errorf("let no capability be inherited: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, fmt.Errorf("forbid new privileges: %w", err)
	}
	abi, err := fence()
	if err != nil {
		return 0, fmt.Errorf("fence the sandbox's files: %w", err)
	}
	if err := loadFilter(more); err != nil {
		return 0, fmt.Errorf("load the system call filter: %w", err)
	}
	return abi, nil
}

// inheritNothing empties this thread's inheritable and ambient sets, which go past the bounding set at an exec: some engines fill them.
func inheritNothing() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil {
		return err
	}
	have[0].Inheritable, have[1].Inheritable = 0, 0
	return unix.Capset(&head, &have[0]) // an ambient capability has to be inheritable
}

// asCommand runs f on the spawner thread with the capabilities that a command has.
func (s *spawner) asCommand(f func()) (err error) {
	s.do(func() {
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var full [2]unix.CapUserData
		if err = unix.Capget(&head, &full[0]); err != nil {
			return
		}
		less := full
		less[0].Effective, less[1].Effective = 0, 0
		for _, c := range kept {
			less[c/32].Effective |= full[c/32].Permitted & (1 << (c % 32))
		}
		if err = unix.Capset(&head, &less[0]); err != nil {
			return
		}
		f()
		err = unix.Capset(&head, &full[0])
	})
	return err
}
