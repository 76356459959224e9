package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/usernet"
	"agentenv.internal/agentenv/internal/sandbox"
)

// networkSuffix is that of the log beside a slot, which a box with a network has: what was blocked, a line each. The network host holds a
// POSIX lock on it.
const networkSuffix = ".net"

var _ sandbox.NetworkLogger = (*Provider)(nil)

// checkNetwork refuses networks that no box can have, and fills the default in.
func checkNetwork(s *sandbox.Spec) error {
	var errs []error
	seen := map[sandbox.Port]bool{}
	for _, p := range s.Publish {
		if p.Box == 0 {
			errs = append(errs, errors.New("port 0 of a sandbox can't be published"))
		}
		if seen[p] || p.Host != 0 && seen[sandbox.Port{Host: p.Host}] {
			errs = append(errs, fmt.Errorf("port %d is published twice", p.Box))
		}
		seen[p], seen[sandbox.Port{Host: p.Host}] = true, true
	}
	switch s.Network {
	case "", sandbox.NetNone:
		s.Network = sandbox.NetNone
		if len(s.Egress.Hosts)+len(s.Egress.CIDRs)+len(s.Egress.Ports) > 0 {
			errs = append(errs, errors.New("hosts, ranges and ports have no effect without a network; use allowlist"))
		}
	default:
		if _, err := usernet.NewPolicy(rules(s)); err != nil {
			errs = append(errs, err)
		} else if err := tunProblem(); err != nil {
			errs = append(errs, fmt.Errorf("the network policy %s: %w: %w", s.Network, err, sandbox.ErrUnsupported))
		}
	}
	return errors.Join(errs...)
}

func rules(s *sandbox.Spec) usernet.Rules {
	return usernet.Rules{Mode: s.Network, Hosts: s.Egress.Hosts, CIDRs: s.Egress.CIDRs, Ports: s.Egress.Ports}
}

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

// network is what one box on its way needs of the host for its network. A box without one, and without published ports, needs nothing.
type network struct {
	spec      *sandbox.Spec
	published []sandbox.Port
	listeners []*os.File
	log       *os.File
	door      *os.File // the host's end
	inner     *os.File // the box's end
	birth     *guest.Conn
	proc      *pidfd
}

// needed tells whether a network host is needed.
func (n *network) needed() bool { return n.door != nil }

func (n *network) tun() bool { return n.spec != nil && n.spec.Network != sandbox.NetNone }

// publish takes the ports of the host's loopback.
func (n *network) publish(ports []sandbox.Port) error {
	for _, p := range ports {
		l, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.Host))))
		if err != nil {
			return fmt.Errorf("publish port %d of the sandbox: %w", p.Box, err)
		}
		p.Host = uint16(l.Addr().(*net.TCPAddr).Port)
		f, err := l.(*net.TCPListener).File()
		l.Close()
		if err != nil {
			return fmt.Errorf("publish port %d of the sandbox: %w", p.Box, err)
		}
		n.listeners = append(n.listeners, f)
		n.published = append(n.published, p)
	}
	return nil
}

// prepare makes the log and the door.
func (n *network) prepare(s *slot, spec *sandbox.Spec) error {
	n.spec = spec
	if !n.tun() && len(spec.Publish) == 0 {
		return nil
	}
	fd, err := unix.Openat(int(s.dir.Fd()), s.id+networkSuffix, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("make the log of the sandbox's network: %w", err)
	}
	n.log = os.NewFile(uintptr(fd), s.path+networkSuffix)
	n.door, n.inner, err = socketPair()
	return err
}

// start forks the network host, so that it is there when the box has a TUN. Its words go to log.
func (n *network) start(ctx context.Context, m *making, log *os.File) error {
	if !n.needed() {
		return nil
	}
	near, far, err := socketPair()
	if err != nil {
		return err
	}
	defer near.Close()
	defer far.Close()
	conn, err := net.FileConn(near)
	if err != nil {
		return fmt.Errorf("open the network host's socket: %w", err)
	}
	l := &guest.Launch{Host: true, Size: 1}
	if m.p.host.wide { // an id that is nobody's: the last of the box's own
		l.UID, l.GID, l.Size = m.base+idRange-1, m.base+idRange-1, idRange
	}
	program, err := m.p.hosts.get()
	if err != nil {
		conn.Close()
		return err
	}
	self, err := os.Open(program)
	if err != nil {
		conn.Close()
		return fmt.Errorf("open the network host's program: %w", err)
	}
	defer self.Close()
	_, n.proc, err = m.p.launcher.fork(ctx, l, far, log, self)
	if err != nil {
		conn.Close()
		return fmt.Errorf("start the network host: %w", err)
	}
	n.birth = guest.NewConn(conn.(*net.UnixConn))
	return nil
}

// join says in the boot message what network the box has, and answers the descriptors that go with it.
func (n *network) join(b *guest.Boot, pid int, wide bool) ([]*os.File, error) {
	if !n.needed() {
		return nil, nil
	}
	b.Network.Door = true
	files := []*os.File{n.inner}
	if b.Network.TUN = n.tun(); b.Network.TUN && wide {
		device, err := openDeviceIn(pid)
		if err != nil {
			return nil, err
		}
		b.Network.Device = true
		n.listeners = append(n.listeners, device) // closed with them
		files = append(files, device)
	}
	return files, nil
}

// resolvConf is the box's /etc/resolv.conf.
func (n *network) resolvConf() string {
	if !n.tun() {
		return "# no network\n"
	}
	return "nameserver " + guest.DNS4.String() + "\nnameserver " + guest.DNS6.String() + "\n"
}

// serve tells the network host to begin, and waits until it has. It takes over tun, and lets go of all that is the host's or the box's now.
func (n *network) serve(ctx context.Context, p *Provider, tun *os.File) error {
	if !n.needed() {
		return nil
	}
	req := &guest.HostNetwork{TUN: n.tun()}
	files := []*os.File{n.door, n.log}
	if req.TUN {
		if tun == nil {
			return errors.New("the sandbox's init process made no network")
		}
		defer tun.Close()
		r := rules(n.spec)
		req.Mode, req.Hosts, req.CIDRs, req.Ports = r.Mode, r.Hosts, r.CIDRs, r.Ports
		files = append(files, tun)
		if p.opts.Proxy != nil {
			var err error
			if req.Proxy, err = p.opts.Proxy(); err != nil {
				return fmt.Errorf("find the way out of this machine: %w", err)
			}
		}
	}
	for i, port := range n.published {
		req.Publish = append(req.Publish, port.Box)
		files = append(files, n.listeners[i])
	}
	stop := context.AfterFunc(ctx, func() { n.birth.SetDeadline(time.Now()) })
	defer stop()
	var reply guest.Reply
	err := n.birth.SendJSON(guest.FrameRequest, &guest.Request{Op: guest.OpHost, Host: req}, files...)
	if err == nil {
		err = n.birth.RecvJSON(guest.FrameReply, &reply)
	}
	if err == nil {
		err = reply.Fault.Err()
	}
	if err != nil {
		return fmt.Errorf("start the sandbox's network: %w", err)
	}
	return nil
}

// close lets go of all that this process holds. A host whose box is gone ends by itself.
func (n *network) close() {
	for _, f := range append(n.listeners, n.log, n.door, n.inner) {
		if f != nil {
			f.Close()
		}
	}
	if n.birth != nil {
		n.birth.Close()
	}
	if n.proc != nil {
		n.proc.close()
	}
	*n = network{spec: n.spec, published: n.published}
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

// hostEndLimit is how long a network host has to notice that its box is gone.
const hostEndLimit = 2 * time.Second

// removeNetwork takes the network's log away once the network host has ended, which it does by itself unless it was stopped.
func (s *slot) removeNetwork() error {
	name := s.path + networkSuffix
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for until, wait := time.Now().Add(hostEndLimit), time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		l := unix.Flock_t{Type: unix.F_WRLCK}
		if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil {
			return err
		}
		if l.Type == unix.F_UNLCK {
			return os.Remove(name)
		}
		if time.Now().After(until) {
			if l.Pid <= 0 {
				return fmt.Errorf("the network host of sandbox %s does not end, and is out of this process's sight", s.id)
			}
			if err := endHost(f, int(l.Pid)); err != nil {
				return err
			}
			until = time.Now().Add(hostEndLimit)
		}
		time.Sleep(wait)
	}
}

// endHost kills the process that holds the lock on f, which was seen to be pid.
func endHost(f *os.File, pid int) error {
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	p := newPidfd(fd)
	defer p.close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil || l.Type == unix.F_UNLCK || int(l.Pid) != pid {
		return err
	}
	return ignoreGone(p.signal(unix.SIGKILL))
}

// Blocked is what a box's policy kept it from.
func (p *Provider) Blocked(_ context.Context, id string) ([]guest.Blocked, error) {
	s, err := openSlot(p.boxes, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", id, sandbox.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open sandbox %s: %w", id, err)
	}
	defer s.close()
	f, err := os.OpenFile(s.path+networkSuffix, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // no network, nothing to be kept from
	}
	if err != nil {
		return nil, fmt.Errorf("read what sandbox %s was kept from: %w", id, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4<<20))
	if err != nil {
		return nil, fmt.Errorf("read what sandbox %s was kept from: %w", id, err)
	}
	return readBlocked(b), nil
}

// readBlocked reads the log. Its last line may be half written.
func readBlocked(b []byte) []guest.Blocked {
	var out []guest.Blocked
	for line := range bytes.Lines(b) {
		var e guest.Blocked
		if json.Unmarshal(line, &e) == nil {
			out = append(out, e)
		}
	}
	return out
}
