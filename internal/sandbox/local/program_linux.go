package local

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// errNoGuest: this build carries no guest program.
var errNoGuest = fmt.Errorf("this program holds no sandbox guest, build it with make build: %w", sandbox.ErrUnsupported)

// errNoHost: this program's main function never asked whether it is meant to be a network host.
var errNoHost = fmt.Errorf("this program can't host the networks of sandboxes: %w", sandbox.ErrUnsupported)

// program is what runs as PID 1: the guest program that this binary carries, or else this binary itself.
type program struct {
	own bool // this binary it is, as a network host

	mu   sync.Mutex
	file *os.File // a sealed memory file; nil: not made yet, or not needed
	path string
}

// get is a path that a fork of this process can execute as any user.
func (p *program) get() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path != "" {
		return p.path, nil
	}
	switch {
	case p.own && !guest.HostsNetworks():
		return "", errNoHost
	case p.own:
	case len(guestProgram) > 0:
		return p.seal(guestProgram)
	case !guest.PlaysPID1():
		return "", errNoGuest
	}
	const self = "/proc/self/exe"
	info, err := os.Stat(self)
	if err != nil {
		return "", err
	}
	if info.Mode()&0o001 != 0 {
		p.path = self
		return self, nil
	}
	b, err := os.ReadFile(self) // others may not execute it, and boxes are others
	if err != nil {
		return "", err
	}
	return p.seal(b)
}

// seal puts the program into a memory file that nobody can change any more.
func (p *program) seal(b []byte) (string, error) {
	fd, err := unix.MemfdCreate(guest.Argv0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // kernels before 6.3 don't know MFD_EXEC, and need none
		fd, err = unix.MemfdCreate(guest.Argv0, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return "", fmt.Errorf("make a memory file for the guest program: %w", err)
	}
	f := os.NewFile(uintptr(fd), guest.Argv0)
	defer f.Close()
	if _, err := f.Write(b); err != nil {
		return "", fmt.Errorf("write the guest program: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, seals); err != nil {
		return "", fmt.Errorf("seal the guest program: %w", err)
	}
	// Out of the way of the low numbers, which a fork gives to the child's files before it executes this one. Read-only, so that
	// executing it is not "text file busy".
	ro, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("open the guest program: %w", err)
	}
	defer unix.Close(ro)
	high, err := unix.FcntlInt(uintptr(ro), unix.F_DUPFD_CLOEXEC, highFD)
	if errors.Is(err, unix.EINVAL) {
		return "", fmt.Errorf("this process may have too few files open: sandboxes need a limit (ulimit -n) of %d at least", 2*highFD)
	}
	if err != nil {
		return "", fmt.Errorf("open the guest program: %w", err)
	}
	p.file = os.NewFile(uintptr(high), guest.Argv0)
	p.path = "/proc/self/fd/" + strconv.Itoa(high)
	return p.path, nil
}

// highFD is above every number that a child is given.
const highFD = 200

func (p *program) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		p.file.Close()
	}
	p.file, p.path = nil, ""
}

// GuestProgram is the guest program as bytes, for providers that have to show it to an engine.
func GuestProgram() ([]byte, error) {
	if len(guestProgram) > 0 {
		return guestProgram, nil
	}
	if !guest.PlaysPID1() {
		return nil, errNoGuest
	}
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return nil, fmt.Errorf("read this program: %w", err)
	}
	return b, nil
}
