package pid1

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/tree"
)

// server answers the wire: one connection, one operation.
type server struct {
	listener net.Listener
	spawner  *spawner
	lease    *lease
	memory   *memory
	refused  *counter // forks beyond the box's limit; nil where no cgroup holds it
	env      []string
	user     string // of commands that name none; "" is root
	dir      string // of commands that name none; "" is the user's home
	pids     uint64
	null     *os.File
	holds    []*os.File // kept open for the box's life
	places   []*place
	most     int64 // bytes that a snapshot may have: holes in files count there, and not on the disk; 0: any number
	// still is held by what must find the box at rest, and read-held by what starts or writes something in it.
	still sync.RWMutex
	later guest.Later // of time-outs
	door  *guest.Conn // on which the network host asks; nil: there is none
	tun   *os.File    // until it is handed out
}

func (s *server) openNull() (err error) {
	s.null, err = os.OpenFile("/dev/null", os.O_RDWR, 0)
	return err
}

// die ends the box and tells outside why.
func (s *server) die(cause string) {
	s.lease.mark(cause)
	os.Exit(0)
}

// accept serves for ever. Clients that come too fast wait in the listener.
func (s *server) accept() {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			time.Sleep(10 * time.Millisecond) // out of descriptors: some connection will end
			continue
		}
		go s.serve(guest.NewConn(conn.(*net.UnixConn)))
	}
}

// mostKept is how many commands one connection may start, one after the other: the answers of so many fit into a socket's buffer, so that the
// reaper never waits for a client that doesn't read.
const mostKept = 100

// serve answers what comes on a connection: one request, or as many commands as its client asks to have kept for.
func (s *server) serve(c *guest.Conn) {
	defer c.Close()
	var x *running // the last command
	for n := 1; ; n++ {
		kind, payload, err := c.Recv()
		for x != nil && err == nil && kind != guest.FrameRequest { // nobody asked for it
			kind, payload, err = c.Recv()
		}
		if x != nil && (err != nil || !x.ended.Load()) {
			x.hangup()
			return
		}
		var r guest.Request
		if err != nil || kind != guest.FrameRequest || json.Unmarshal(payload, &r) != nil {
			return
		}
		r.Keep = r.Keep && n < mostKept
		if x = s.answer(c, &r); x == nil {
			return
		}
	}
}

// answer does what r asks for. A command that it started answers for itself.
func (s *server) answer(c *guest.Conn, r *guest.Request) *running {
	files := c.TakeFiles()
	defer func() {
		for _, f := range files {
			f.Close()
		}
	}()
	var reply guest.Reply
	var out []*os.File
	var err error
	switch r.Op {
	case guest.OpExec:
		var x *running
		if x, err = s.exec(c, r, &files); err == nil {
			return x
		}
	case guest.OpDial:
		out, err = dial(c, r)
	case guest.OpListen:
		out, err = listen(r)
	case guest.OpRead:
		err = sendFile(c, r.Path, r.Max)
	case guest.OpStat:
		var info os.FileInfo
		if info, err = os.Stat(r.Path); err == nil {
			reply.Stat = guest.StatOf(r.Path, info)
		}
	case guest.OpTree:
		err = tree.Pack(guest.DataWriter{Conn: c}, r.Path)
	case guest.OpExtract:
		s.still.RLock()
		err = receiveTree(c, r.Path)
		s.still.RUnlock()
	case guest.OpSnapshot:
		err = s.snapshot(hurried{c}, r.Merge)
	case guest.OpDiff:
		err = s.diff(hurried{c}, r.Brief)
	case guest.OpRenew:
		err = s.lease.renew(r.Lease)
	case guest.OpDie:
		s.die(guest.CauseRemoved)
	default:
		err = fmt.Errorf("operation %q: %w", r.Op, errors.ErrUnsupported)
	}
	reply.Fault = guest.FaultOf(err)
	_ = c.SendJSON(guest.FrameReply, &reply, out...) // a client that has gone needs no answer
	for _, f := range out {
		f.Close()
	}
	return nil
}

// hangup tells of the end of the client's half. It reads whatever the client still sends.
func hangup(c *guest.Conn) <-chan struct{} {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			if _, _, err := c.Recv(); err != nil {
				return
			}
		}
	}()
	return gone
}

// dialLimit ends a dial that nobody answers.
const dialLimit = 30 * time.Second

// dial connects in the box's net namespace and view of files. A client that hangs up leaves the attempt to its limit.
func dial(c *guest.Conn, r *guest.Request) ([]*os.File, error) {
	type outcome struct {
		files []*os.File
		err   error
	}
	result := make(chan outcome, 1)
	go func() {
		conn, err := net.DialTimeout(r.Network, r.Addr, dialLimit)
		if err != nil {
			result <- outcome{nil, err}
			return
		}
		defer conn.Close()
		files, err := fileOf(conn)
		result <- outcome{files, err}
	}()
	select {
	case o := <-result:
		return o.files, o.err
	case <-hangup(c):
		go func() {
			for _, f := range (<-result).files {
				f.Close()
			}
		}()
		return nil, errors.New("stopped by its caller")
	}
}

func listen(r *guest.Request) ([]*os.File, error) {
	l, err := net.Listen(r.Network, r.Addr)
	if err != nil {
		return nil, err
	}
	if ul, ok := l.(*net.UnixListener); ok {
		ul.SetUnlinkOnClose(false) // it lives on outside
	}
	defer l.Close()
	return fileOf(l)
}

func fileOf(v any) ([]*os.File, error) {
	f, err := v.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		return nil, err
	}
	return []*os.File{f}, nil
}

// sendFile sends a regular file that is not larger than max.
func sendFile(c *guest.Conn, name string, max int64) error {
	f, err := openRegular(name)
	if err != nil {
		return err
	}
	defer f.Close()
	tooBig := &os.PathError{Op: "read", Path: name, Err: guest.ErrTooBig}
	if info, err := f.Stat(); err != nil {
		return err
	} else if info.Size() > max {
		return tooBig
	}
	// Files of /proc have no size, and others grow.
	n, err := io.Copy(guest.DataWriter{Conn: c}, io.LimitReader(f, max+1))
	if err == nil && n > max {
		return tooBig
	}
	return err
}
