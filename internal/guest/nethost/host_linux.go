package nethost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/usernet"
)

// Dispatch plays a network host and never returns when the process was started for that; otherwise it returns at once. Main functions and
// TestMain call it first, beside pid1.Dispatch.
func Dispatch() {
	if len(os.Args) != 1 || os.Args[0] != guest.HostArgv0 {
		guest.SetHostsNetworks()
		return
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "sandbox network:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run serves one box's network until the box ends.
func run() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("protect the network host: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("forbid new privileges: %w", err)
	}
	birth, err := birthConn()
	if err != nil {
		return err
	}
	defer birth.Close()
	var req guest.Request
	if err := birth.RecvJSON(guest.FrameRequest, &req); errors.Is(err, io.EOF) {
		return nil // its box came to nothing
	} else if err != nil {
		return fmt.Errorf("read what to serve: %w", err)
	}
	if req.Op != guest.OpHost || req.Host == nil {
		return errors.New("the first message does not say what to serve")
	}
	h, err := newHost(req.Host, birth.TakeFiles())
	if err != nil {
		return errors.Join(err, birth.SendJSON(guest.FrameReply, guest.Reply{Fault: guest.FaultOf(err)}))
	}
	defer h.close()
	return h.serve(func() {
		_ = birth.SendJSON(guest.FrameReply, guest.Reply{}) // its maker may have gone; the box says when to end
		birth.Close()
	})
}

// birthConn is the socket that the host was started with.
func birthConn() (*guest.Conn, error) {
	c, err := unixConn(os.NewFile(guest.BirthFD, "birth"))
	if err != nil {
		return nil, fmt.Errorf("open the birth socket: %w", err)
	}
	return c, nil
}

// unixConn takes over a descriptor of a unix socket.
func unixConn(f *os.File) (*guest.Conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	uc, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("it is no unix socket")
	}
	return guest.NewConn(uc), nil
}

// host is one box's network outside.
type host struct {
	life      *life
	log       *os.File
	tun       *os.File // nil: ports are published, no more
	policy    *usernet.Policy
	proxy     guest.Proxy
	listeners []net.Listener
	ports     []uint16
	box       *guest.Client
}

// newHost takes over the files.
func newHost(n *guest.HostNetwork, files []*os.File) (_ *host, err error) {
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	take := func() *os.File {
		f := files[0]
		files = files[1:]
		return f
	}
	fixed := 2
	if n.TUN {
		fixed++
	}
	if len(files) != fixed+len(n.Publish) {
		return nil, errors.New("the message lacks descriptors")
	}
	h := &host{proxy: n.Proxy, ports: n.Publish}
	defer func() {
		if err != nil {
			h.close()
		}
	}()
	door, log := take(), take()
	h.log = log
	if n.TUN {
		h.tun = take()
	}
	conn, err := unixConn(door)
	if err != nil {
		return nil, fmt.Errorf("open the door: %w", err)
	}
	h.life = newLife(conn)
	// Who looks for what a dead box left finds this process by the lock.
	if err := unix.FcntlFlock(log.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		return nil, fmt.Errorf("lock the network's log: %w", err)
	}
	h.box = guest.NewClient("", h.life.dial, nil)
	if h.tun != nil {
		if h.policy, err = usernet.NewPolicy(usernet.Rules{Mode: n.Mode, Hosts: n.Hosts, CIDRs: n.CIDRs, Ports: n.Ports}); err != nil {
			return nil, err
		}
	}
	for range n.Publish {
		f := take()
		l, err := net.FileListener(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("open a published port: %w", err)
		}
		h.listeners = append(h.listeners, l)
	}
	return h, nil
}

func (h *host) close() {
	for _, l := range h.listeners {
		l.Close()
	}
	for _, f := range []*os.File{h.log, h.tun} {
		if f != nil {
			f.Close()
		}
	}
	if h.life != nil {
		h.life.door.Close()
	}
}

// serve calls ready once the network stands, and returns when the box has ended.
func (h *host) serve(ready func()) error {
	go h.life.wait()
	var publishing sync.WaitGroup
	for i, l := range h.listeners {
		publishing.Go(func() { h.publish(l, h.ports[i]) })
	}
	var err error
	if h.tun == nil {
		ready()
		<-h.life.Done()
	} else if h.tun, err = pollable(h.tun); err == nil {
		err = usernet.Serve(h.life, h.tun, usernet.Config{Policy: h.policy, Proxy: h.proxy, Log: h.log}, ready)
	}
	for _, l := range h.listeners {
		l.Close()
	}
	publishing.Wait()
	return err
}

// pollable makes the TUN's descriptor one that the runtime waits for without a thread.
func pollable(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	f.Close()
	if err != nil {
		return nil, fmt.Errorf("open the TUN: %w", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("open the TUN: %w", err)
	}
	return os.NewFile(uintptr(fd), "tun"), nil
}

// maxPublished is how many connections to one published port may be open.
const maxPublished = 512

// publish carries connections to a port of the host's loopback into the box.
func (h *host) publish(l net.Listener, port uint16) {
	var conns sync.WaitGroup
	defer conns.Wait()
	places := make(chan struct{}, maxPublished)
	for {
		places <- struct{}{}
		out, err := l.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || h.life.Err() != nil {
				return
			}
			<-places
			time.Sleep(10 * time.Millisecond) // out of descriptors: some connection will end
			continue
		}
		conns.Go(func() {
			defer func() { <-places }()
			h.carry(out, port)
		})
	}
}

// carry joins a connection from outside with the server inside, wherever that listens.
func (h *host) carry(out net.Conn, port uint16) {
	defer out.Close()
	var in net.Conn
	var err error
	for _, addr := range []string{"127.0.0.1", "::1"} {
		if in, err = h.box.Dial(h.life, "tcp", net.JoinHostPort(addr, strconv.Itoa(int(port)))); err == nil {
			break
		}
	}
	if err != nil {
		return
	}
	defer in.Close()
	stop := context.AfterFunc(h.life, func() {
		in.Close()
		out.Close()
	})
	defer stop()
	half := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		if c, ok := dst.(interface{ CloseWrite() error }); ok {
			_ = c.CloseWrite()
		}
	}
	var up sync.WaitGroup
	up.Go(func() { half(in, out) })
	half(out, in)
	up.Wait()
}

// life is the box's, as a context: it is done when PID 1's end of the door is closed, which the end of PID 1 does.
type life struct {
	door *guest.Conn
	done chan struct{}
	mu   sync.Mutex // of sending on the door
}

var _ context.Context = (*life)(nil)

func newLife(door *guest.Conn) *life { return &life{door: door, done: make(chan struct{})} }

// wait watches the door. PID 1 sends nothing there.
func (l *life) wait() {
	defer close(l.done)
	for {
		if _, _, err := l.door.Recv(); err != nil {
			return
		}
	}
}

// dial opens a connection to PID 1 by handing one end of a pair through the door.
func (l *life) dial(context.Context) (*net.UnixConn, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	near, far := os.NewFile(uintptr(fds[0]), "near"), os.NewFile(uintptr(fds[1]), "far")
	defer near.Close()
	defer far.Close()
	l.mu.Lock()
	err = l.door.Send(guest.FrameData, nil, far)
	l.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c, err := net.FileConn(near)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// Deadline: none; a lease is PID 1's to keep.
func (l *life) Deadline() (time.Time, bool) { return time.Time{}, false }

// Done is closed when the box has ended.
func (l *life) Done() <-chan struct{} { return l.done }

// Err is nil while the box lives.
func (l *life) Err() error {
	select {
	case <-l.done:
		return context.Canceled
	default:
		return nil
	}
}

// Value knows nothing.
func (l *life) Value(any) any { return nil }
