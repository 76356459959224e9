package pid1

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// Dispatch plays PID 1 of a box, a launcher of such, a minder in one or a keeper of a program of the host's, and never returns when the process was started
// for that; otherwise it returns at once. It is the first call of main and of TestMain, so that the program can be its own guest.
func Dispatch() {
	var role func() error
	switch {
	case len(os.Args) != 1:
	case os.Args[0] == guest.Argv0 && os.Getpid() == 1:
		role = func() error {
			if err := leaveGroups(); err != nil {
				return err
			}
			return run(birthConn)
		}
	case os.Args[0] == guest.WaitingArgv0 && os.Getpid() == 1:
		role = awaitIDs
	case os.Args[0] == guest.ContainerProgram && os.Getpid() == 1:
		role = func() error { return run(containerBirth) }
	case os.Args[0] == guest.MinderArgv0:
		role = mind
	case os.Args[0] == guest.KeeperArgv0:
		role = keep
	case os.Args[0] == guest.LauncherArgv0:
		role = func() error {
			if err := openMask(); err != nil {
				return err
			}
			return launch()
		}
	}
	if role == nil {
		guest.SetPlaysPID1()
		return
	}
	var err error
	if os.Args[0] != guest.ContainerProgram { // an engine lets nothing through, and may forbid the call
		err = closeForeign()
	}
	if err == nil {
		err = role()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// openMask starts the program anew where its caller had blocked signals: that is handed on by every fork, so that commands of boxes would be
// deaf to them. The Go runtime keeps the mask that it found at its start.
func openMask() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var none, found unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, &found); err != nil {
		return fmt.Errorf("let signals through: %w", err)
	}
	if found == none {
		return nil
	}
	return fmt.Errorf("let signals through: %w", syscall.Exec("/proc/self/exe", os.Args, os.Environ()))
}

// closeForeign keeps what the program's own caller had open, such as a shell's "exec 9</", from every process that this one starts: a
// descriptor of a folder is a way out of any root. It closes them at exec alone, since the runtime may have opened some of its own.
func closeForeign() error {
	if err := unix.CloseRange(guest.BirthFD+1, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("keep foreign descriptors out: %w", err)
	}
	return nil
}

// run lives the box's life, which begins on the socket that open gives. Its end is the end of every process of the box.
func run(open func() (*guest.Conn, error)) error {
	birth, err := open()
	if err != nil {
		return err
	}
	defer birth.Close()
	var req guest.Request
	if err := birth.RecvJSON(guest.FrameRequest, &req); err != nil {
		return fmt.Errorf("read the boot message: %w", err)
	}
	if req.Op != guest.OpBoot || req.Boot == nil {
		return errors.New("the first message is not a boot message")
	}
	s, booted, err := boot(req.Boot, birth.TakeFiles())
	if err != nil {
		return errors.Join(err, birth.SendJSON(guest.FrameReply, guest.Reply{Fault: guest.FaultOf(err)}))
	}
	if err := birth.SendJSON(guest.FrameReply, guest.Reply{Boot: booted}, s.handOut()...); err != nil {
		return err
	}
	if s.tun != nil {
		s.tun.Close() // as long as anybody has it, the box's network stays
	}
	s.still.RLock() // what the box wrote isn't looked at before the probes' marker is gone
	go s.accept()
	if s.door != nil {
		go s.answerDoor()
	}
	// The owner's word that the box is to live, then its end. A leased box lives on without an owner.
	kind, _, err := birth.Recv()
	if err != nil || kind != guest.FrameEnd {
		s.lease.mark(guest.CauseOwner)
		return nil
	}
	if m := req.Boot.Probe.Marker; m != "" {
		_ = os.Remove(m) // it has told what it could
	}
	s.still.RUnlock()
	if !req.Boot.Tied {
		birth.Close()
		select {} // the lease or OpDie ends it
	}
	_, _, _ = birth.Recv()
	s.lease.mark(guest.CauseOwner)
	return nil
}

// birthConn is the socket that PID 1 was started with.
func birthConn() (*guest.Conn, error) {
	unix.CloseOnExec(guest.BirthFD)
	f := os.NewFile(guest.BirthFD, "birth")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, fmt.Errorf("open the birth socket: %w", err)
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.New("the birth socket is not a unix socket")
	}
	return guest.NewConn(uc), nil
}

// containerBirth is the birth socket of a box that an engine started: whoever made it listens there for PID 1 alone.
func containerBirth() (*guest.Conn, error) {
	const name = guest.ContainerBirth + "/" + guest.BirthSocket
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Net: "unix", Name: name})
	if err != nil {
		return nil, fmt.Errorf("reach the maker of the sandbox: %w", err)
	}
	return guest.NewConn(c), nil
}
