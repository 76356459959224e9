package hostside

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
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// Network is what one box on its way needs of the host for its network. A box without one, and without published ports, needs nothing. The
// calls are made in the order Publish, Prepare, Start, Join, Serve; Close comes last, whatever happened.
type Network struct {
	spec      *sandbox.Spec
	published []sandbox.Port
	listeners []*os.File
	log       *os.File
	door      *os.File // the host's end
	inner     *os.File // the box's end
	birth     *guest.Conn
	proc      *Process
}

func (n *Network) needed() bool { return n.door != nil }

// tun tells whether the box has more than published ports.
func (n *Network) tun() bool { return n.spec != nil && n.spec.Network != sandbox.NetNone }

// Publish takes the ports of the host's loopback.
func (n *Network) Publish(ctx context.Context, ports []sandbox.Port) error {
	var lc net.ListenConfig
	for _, p := range ports {
		l, err := lc.Listen(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(p.Host))))
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

// Published are the ports that were taken, those of the host filled in.
func (n *Network) Published() []sandbox.Port { return n.published }

// Prepare makes the door, and the log of what is blocked as the file name in dir. spec was checked by CheckNetwork.
func (n *Network) Prepare(dir *os.File, name string, spec *sandbox.Spec) error {
	n.spec = spec
	if !n.tun() && len(spec.Publish) == 0 {
		return nil
	}
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("make the log of the sandbox's network: %w", err)
	}
	n.log = os.NewFile(uintptr(fd), name)
	n.door, n.inner, err = SocketPair()
	return err
}

// Start forks the network host, so that it is there when the box has a TUN. It runs as the user and group id, which have to be nobody's, or
// as this process's where id is 0. Its words go to words.
func (n *Network) Start(ctx context.Context, l *Launcher, hosts *Program, id int, words *os.File) error {
	if !n.needed() {
		return nil
	}
	near, far, err := SocketPair()
	if err != nil {
		return err
	}
	defer near.Close()
	defer far.Close()
	conn, err := net.FileConn(near)
	if err != nil {
		return fmt.Errorf("open the network host's socket: %w", err)
	}
	req := &guest.Launch{Host: true, Size: 1}
	if id > 0 {
		req.UID, req.GID, req.Size = id, id, 2
	}
	program, err := hosts.Path()
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
	if _, n.proc, err = l.Fork(ctx, req, far, words, self); err != nil {
		conn.Close()
		return fmt.Errorf("start the network host: %w", err)
	}
	n.birth = guest.NewConn(conn.(*net.UnixConn))
	return nil
}

// Join says in the boot message what network the box has, and answers the descriptors that go with it. They stay n's.
func (n *Network) Join(b *guest.Boot) []*os.File {
	if !n.needed() {
		return nil
	}
	b.Network.Door, b.Network.TUN = true, n.tun()
	return []*os.File{n.inner}
}

// ResolvConf is the box's /etc/resolv.conf.
func (n *Network) ResolvConf() string {
	if !n.tun() {
		return "# no network\n"
	}
	return "nameserver " + guest.DNS4.String() + "\nnameserver " + guest.DNS6.String() + "\n"
}

// Serve tells the network host to begin, and waits until it has. It takes over tun, which came with the answer to Boot. proxy, which may be
// nil, answers the host's way out.
func (n *Network) Serve(ctx context.Context, proxy func() (guest.Proxy, error), tun *os.File) error {
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
		if proxy != nil {
			var err error
			if req.Proxy, err = proxy(); err != nil {
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

// Close lets go of all that this process holds. A network host whose box is gone ends by itself.
func (n *Network) Close() {
	for _, f := range append(n.listeners, n.log, n.door, n.inner) {
		if f != nil {
			f.Close()
		}
	}
	if n.birth != nil {
		n.birth.Close()
	}
	if n.proc != nil {
		n.proc.Close()
	}
	*n = Network{spec: n.spec, published: n.published}
}

// hostEndLimit is how long a network host has to notice that its box is gone.
const hostEndLimit = 2 * time.Second

// RemoveLog takes the log of a box's network away, if there is one, once the network host has ended, which it does by itself unless it was
// stopped. id names the box in errors.
func RemoveLog(name, id string) error {
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
				return fmt.Errorf("the network host of sandbox %s does not end, and is out of this process's sight", id)
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
	p := NewProcess(fd)
	defer p.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &l); err != nil || l.Type == unix.F_UNLCK || int(l.Pid) != pid {
		return err
	}
	if err := p.Signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// maxLog bounds what is read of a log; the network host writes a line at the 1st, 10th, 100th … time of one destination alone.
const maxLog = 4 << 20

// ReadLog is what a box's policy kept it from; none where the box has no network. id names the box in errors.
func ReadLog(name, id string) ([]guest.Blocked, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read what sandbox %s was kept from: %w", id, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxLog))
	if err != nil {
		return nil, fmt.Errorf("read what sandbox %s was kept from: %w", id, err)
	}
	return parseLog(b), nil
}

// parseLog reads a log. Its last line may be half written.
func parseLog(b []byte) []guest.Blocked {
	var out []guest.Blocked
	for line := range bytes.Lines(b) {
		var e guest.Blocked
		if json.Unmarshal(line, &e) == nil {
			out = append(out, e)
		}
	}
	return out
}
