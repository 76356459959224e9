package hostside

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

// ErrNoGuest: this build carries no guest program.
var ErrNoGuest = fmt.Errorf("this program holds no sandbox guest, build it with make build: %w", sandbox.ErrUnsupported)

// errNoHost: this program's main function never asked whether it is meant to be a network host.
var errNoHost = fmt.Errorf("this program can't host the networks of sandboxes: %w", sandbox.ErrUnsupported)

// errFewFiles: the path can't be out of the way.
var errFewFiles = fmt.Errorf("this process may have too few files open: sandboxes need a limit (ulimit -n) of %d at least", 2*highFD)

// Program is what processes beside boxes run, as a path that a fork of this process can execute as any user. The zero Program is this
// binary itself as a guest program.
type Program struct {
	guest func() ([]byte, error) // the guest program; nil: this binary
	hosts bool                   // this binary it is, as a network host

	mu   sync.Mutex
	file *os.File // a sealed memory file; nil: not made yet, or not needed
	path string
}

// GuestProgram is the guest program that get answers, or this binary where get is nil.
func GuestProgram(get func() ([]byte, error)) *Program { return &Program{guest: get} }

// HostProgram is this binary as a network host.
func HostProgram() *Program { return &Program{hosts: true} }

// Path is valid until Close.
func (p *Program) Path() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path != "" {
		return p.path, nil
	}
	switch {
	case p.hosts && !guest.HostsNetworks():
		return "", errNoHost
	case p.hosts:
	case p.guest != nil:
		b, err := p.guest()
		if err != nil {
			return "", err
		}
		return p.seal(b)
	case !guest.PlaysPID1():
		return "", ErrNoGuest
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

// Check tells what Path would fail with, without making a file of the program, as far as can be seen before.
func (p *Program) Check() error {
	p.mu.Lock()
	made := p.path != ""
	p.mu.Unlock()
	if made || p.hosts || p.guest == nil {
		_, err := p.Path()
		return err
	}
	if _, err := p.guest(); err != nil {
		return err
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err == nil && files.Cur <= highFD {
		return errFewFiles
	}
	return nil
}

// seal puts the program into a memory file that nobody can change any more.
func (p *Program) seal(b []byte) (string, error) {
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
		return "", errFewFiles
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

// Close lets go of the path.
func (p *Program) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.file != nil {
		p.file.Close()
	}
	p.file, p.path = nil, ""
}
