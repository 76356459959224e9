package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// networkSuffix is that of the log beside a slot, which a box with a network has: what was blocked, a line each. The network host holds a
// POSIX lock on it.
const networkSuffix = ".net"

var _ sandbox.NetworkLogger = (*Provider)(nil)

// tunProblem tells why boxes can have no network here, and what to do; nil when they can.
func tunProblem() error {
	err := unix.Faccessat(unix.AT_FDCWD, guest.TUNDevice, unix.R_OK|unix.W_OK, unix.AT_EACCESS)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("this machine has no %s (modprobe tun; in a container, start it with --device %s)", guest.TUNDevice, guest.TUNDevice)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("%s is closed to this user (chmod 0666 %s, as most distributions have it)", guest.TUNDevice, guest.TUNDevice)
	}
	return fmt.Errorf("%s: %w", guest.TUNDevice, err)
}

func networkFinding() Finding {
	if err := tunProblem(); err != nil {
		text, fix, _ := strings.Cut(err.Error(), " (")
		return Finding{Name: "network", Detail: "sandboxes have their own loopback alone: " + text, Fix: strings.TrimSuffix(fix, ")")}
	}
	return Finding{Name: "network", OK: true, Detail: guest.TUNDevice + " is usable"}
}

// join says in the boot message what network the box has, and answers the descriptors that go with it.
func (m *making) join(b *guest.Boot) ([]*os.File, error) {
	files := m.net.Join(b)
	if !b.Network.TUN || !m.p.host.wide {
		return files, nil
	}
	device, err := openDeviceIn(m.child.pid)
	if err != nil {
		return nil, err
	}
	m.rides.add(device) // closed with them
	b.Network.Device = true
	return append(files, device), nil
}

// openDeviceIn opens the TUN device as one of the net namespace of a process: interfaces are made where the device was opened. A box's root
// may not open it where the host keeps it to its own root.
func openDeviceIn(pid int) (*os.File, error) {
	type outcome struct {
		f   *os.File
		err error
	}
	result := make(chan outcome, 1)
	go func() {
		runtime.LockOSThread()
		f, back, err := openDevice(pid)
		if back { // otherwise the thread ends with this goroutine
			runtime.UnlockOSThread()
		}
		result <- outcome{f, err}
	}()
	o := <-result
	if o.err != nil {
		return nil, fmt.Errorf("open %s for the sandbox: %w", guest.TUNDevice, o.err)
	}
	return o.f, nil
}

// openDevice does it on this thread, which is the calling goroutine's own; back tells whether the thread is in its own namespace again.
func openDevice(pid int) (f *os.File, back bool, err error) {
	own, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, true, err
	}
	defer unix.Close(own)
	theirs, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, true, err
	}
	defer unix.Close(theirs)
	if err := unix.Setns(theirs, unix.CLONE_NEWNET); err != nil {
		return nil, true, err
	}
	fd, err := unix.Open(guest.TUNDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	back = unix.Setns(own, unix.CLONE_NEWNET) == nil
	if err != nil {
		return nil, back, err
	}
	return os.NewFile(uintptr(fd), guest.TUNDevice), back, nil
}

// OutputLog is where what a box's programs write is kept.
func (p *Provider) OutputLog(id string) (string, error) {
	s, err := p.slot(id)
	if err != nil {
		return "", err
	}
	defer s.close()
	return s.path + outputSuffix, nil
}

// Blocked is what a box's policy kept it from.
func (p *Provider) Blocked(_ context.Context, id string) ([]guest.Blocked, error) {
	s, err := p.slot(id)
	if err != nil {
		return nil, err
	}
	defer s.close()
	return hostside.ReadLog(s.path+networkSuffix, id)
}
