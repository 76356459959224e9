package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// A slot is a box's folder on the host: a file with the lease's end, which PID 1 writes, then the record as a line of JSON; the socket that
// PID 1 serves; and, while the box is made, the folder of its birth. PID 1 holds a POSIX lock on the file while it lives, whoever makes or
// removes the box holds a flock. Nothing of it needs to outlast a crash of the machine, since no box does.
type slot struct {
	id   string
	path string   // of the folder
	dir  *os.File // the folder: socket addresses are short through it
	file *os.File
}

// record is what a slot tells of its box.
type record struct {
	sandbox.Info
	Engine string `json:"engine"` // the socket
}

const (
	slotName   = "slot"
	sockName   = "sock"
	birthName  = "birth"
	netName    = "net"    // the log of its network, of boxes that have one; the network host holds a POSIX lock on it
	outputName = "output" // what its programs write
	recordSize = 256 << 10
)

// makeSlot makes a new box's slot and takes it. fs.ErrExist when the id is taken.
func makeSlot(boxes, id string) (*slot, error) {
	if err := os.MkdirAll(boxes, 0o700); err != nil {
		return nil, err
	}
	if err := os.Mkdir(filepath.Join(boxes, id), 0o700); err != nil {
		return nil, err
	}
	s, err := openIn(boxes, id, unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(s.fd(), unix.LOCK_EX); err != nil {
		s.close()
		return nil, fmt.Errorf("take %s: %w", s.path, err)
	}
	return s, nil
}

// slot opens the slot of a box that somebody asked for by its id; ErrNotFound when there is none.
func (p *Provider) slot(id string) (*slot, error) {
	s, err := openSlot(p.boxes, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", id, sandbox.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open sandbox %s: %w", id, err)
	}
	return s, nil
}

// openSlot opens a box's slot without taking it; fs.ErrNotExist when there is none.
func openSlot(boxes, id string) (*slot, error) {
	if !hostside.ValidID(id) {
		return nil, &fs.PathError{Op: "open", Path: id, Err: fs.ErrNotExist}
	}
	return openIn(boxes, id, 0)
}

func openIn(boxes, id string, flags int) (*slot, error) {
	s := &slot{id: id, path: filepath.Join(boxes, id)}
	dir, err := unix.Open(s.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: s.path, Err: err}
	}
	s.dir = os.NewFile(uintptr(dir), s.path)
	fd, err := unix.Openat(dir, slotName, flags|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		s.dir.Close()
		return nil, &fs.PathError{Op: "open", Path: filepath.Join(s.path, slotName), Err: err}
	}
	s.file = os.NewFile(uintptr(fd), filepath.Join(s.path, slotName))
	return s, nil
}

func (s *slot) fd() int { return int(s.file.Fd()) }

// close lets go of the slot. Closing the file alone would leave it taken by a child that is being started, which has copies of all open files until it runs.
func (s *slot) close() {
	_ = unix.Flock(s.fd(), unix.LOCK_UN)
	s.file.Close()
	s.dir.Close()
}

// forGuest is another descriptor of the file, for PID 1: a flock is the descriptor's, and that one must not have ours.
func (s *slot) forGuest() (*os.File, error) {
	fd, err := unix.Openat(int(s.dir.Fd()), slotName, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: s.path, Err: err}
	}
	return os.NewFile(uintptr(fd), s.path), nil
}

// address is a socket's address in the folder, short however long the state root's path is.
func (s *slot) address(name string) string {
	return "/proc/self/fd/" + strconv.Itoa(int(s.dir.Fd())) + "/" + name
}

// listen makes a socket in the folder, open to whoever gets as far.
func (s *slot) listen(name string) (*net.UnixListener, error) {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: s.address(name)})
	if err != nil {
		return nil, fmt.Errorf("make the sandbox's socket: %w", err)
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

// write replaces the record. The lease before it is PID 1's.
func (s *slot) write(r *record) error { return hostside.WriteRecord(s.file, r) }

// read is the record with the state and the lease as they are now. A record that can't be read is one of an id and a state.
func (s *slot) read() record {
	r, lease := s.stored()
	r.ID, r.Provider = s.id, Name
	switch alive, err := s.alive(); {
	case err != nil || !alive:
		if r.State != sandbox.StateStarting || !s.taken() {
			r.State = sandbox.StateDead
		}
	case r.State == "":
		r.State = sandbox.StateRunning
	}
	lease = strings.TrimSpace(lease)
	if at, err := strconv.ParseInt(lease, 10, 64); err == nil {
		if end, err := hostside.Wall(at); err == nil {
			r.Expires = end
		}
	}
	if r.State == sandbox.StateDead && sandbox.Why(lease) != "" { // PID 1 writes the word in the lease's place
		r.Cause = lease
	}
	return r
}

// why says in words why the box died, as far as it told itself; "" when it lives.
func (s *slot) why() string { return hostside.Why(func() sandbox.Info { return s.read().Info }) }

// stored reads the file. Its writer may be in the middle of a line, so a bad one is read again.
func (s *slot) stored() (r record, lease string) {
	buf := make([]byte, recordSize)
	for range 3 {
		n, _ := s.file.ReadAt(buf, 0) // it ends before the buffer does
		if n < hostside.LeaseSize {
			return record{}, ""
		}
		var err error
		if r, lease, err = parseSlot(buf[:n]); err == nil {
			return r, lease
		}
		time.Sleep(time.Millisecond)
	}
	return record{}, lease
}

// parseSlot reads a slot's bytes.
func parseSlot(b []byte) (r record, lease string, err error) {
	if len(b) < hostside.LeaseSize {
		return record{}, "", errors.New("too short")
	}
	lease = string(bytes.Trim(b[:hostside.LeaseSize], "\x00\n"))
	line, _, whole := bytes.Cut(b[hostside.LeaseSize:], []byte("\n"))
	if !whole {
		return record{}, lease, errors.New("half a record")
	}
	if err := json.Unmarshal(line, &r); err != nil {
		return record{}, lease, err
	}
	return r, lease, nil
}

// taken tells whether somebody makes or removes the box.
func (s *slot) taken() bool { return hostside.Taken(s.file) }

// alive tells whether PID 1 holds its lock.
func (s *slot) alive() (bool, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(s.file.Fd(), unix.F_GETLK, &l); err != nil {
		return false, err
	}
	return l.Type != unix.F_UNLCK, nil
}

// awaitEnd waits until PID 1 has let go of its lock.
func (s *slot) awaitEnd(ctx context.Context) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if alive, err := s.alive(); err != nil || !alive {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// dial opens one connection to the box's PID 1.
func (s *slot) dial(ctx context.Context) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", s.address(sockName))
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// die asks PID 1 to end; it is nil when there is none.
func (s *slot) die(ctx context.Context) error {
	c := guest.NewClient(s.id, s.dial, nil)
	defer c.Close()
	if err := c.Die(ctx); err != nil && !errors.Is(err, guest.ErrGone) {
		return err
	}
	return nil
}

// remove takes the folder away, what names the box last, once the box's network host has ended.
func (s *slot) remove() error {
	if err := hostside.RemoveLog(filepath.Join(s.path, netName), s.id); err != nil {
		return err
	}
	for _, name := range []string{birthName, sockName} {
		if err := os.RemoveAll(filepath.Join(s.path, name)); err != nil {
			return err
		}
	}
	return os.RemoveAll(s.path)
}

// here tells whether the slot is still the one of its path.
func (s *slot) here() bool {
	var a, b unix.Stat_t
	return unix.Fstat(s.fd(), &a) == nil && unix.Lstat(filepath.Join(s.path, slotName), &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev
}

// slots are the ids in a folder of boxes; none when there is no folder.
func slots(boxes string) ([]string, error) {
	entries, err := os.ReadDir(boxes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []string
	for _, e := range entries {
		if e.IsDir() && hostside.ValidID(e.Name()) {
			ids = append(ids, e.Name())
		}
	}
	return ids, err
}
