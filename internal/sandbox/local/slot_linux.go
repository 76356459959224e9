package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// A slot is a box's place on the host: one file and one socket, since making and removing inodes is what a start costs on a disk.
// The file holds the lease's end, which PID 1 writes, then the record as one line of JSON. PID 1 holds a POSIX lock on it while it lives;
// whoever makes or removes the box holds a flock. Nothing of it needs to outlast a crash of the machine, since no box does.
type slot struct {
	id   string
	path string
	file *os.File
	dir  *os.File // of all boxes: socket addresses are short through it
}

// record is what a slot tells of its box.
type record struct {
	sandbox.Info
	Cgroups []string `json:"cgroups,omitempty"`
	Layers  []layer  `json:"layers,omitempty"` // of the snapshot that it began with, topmost first
	Shift   int      `json:"shift,omitempty"`  // what its layers' ids are raised by on the disk: file systems that can't map ids carry them so
}

const (
	sockSuffix   = ".sock"
	outputSuffix = ".out" // what its programs write
	maxRecord    = 256 << 10
)

// makeSlot makes a new box's slot and takes it. fs.ErrExist when the id is taken.
func makeSlot(boxes, id string) (*slot, error) {
	if err := os.MkdirAll(boxes, 0o700); err != nil {
		return nil, err
	}
	s, err := openIn(boxes, id, unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(s.fd(), unix.LOCK_EX); err != nil { // a sweep may hold it for a moment
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
	dir, err := unix.Open(boxes, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: boxes, Err: err}
	}
	s := &slot{id: id, path: filepath.Join(boxes, id), dir: os.NewFile(uintptr(dir), boxes)}
	fd, err := unix.Openat(dir, id, flags|unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		s.dir.Close()
		return nil, &fs.PathError{Op: "open", Path: s.path, Err: err}
	}
	s.file = os.NewFile(uintptr(fd), s.path)
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
	fd, err := unix.Openat(int(s.dir.Fd()), s.id, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: s.path, Err: err}
	}
	return os.NewFile(uintptr(fd), s.path), nil
}

// address is the socket's address, short however long the state root's path is.
func (s *slot) address() string {
	return "/proc/self/fd/" + strconv.Itoa(int(s.dir.Fd())) + "/" + s.id + sockSuffix
}

// listen makes the box's socket, for PID 1 to take.
func (s *slot) listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make the sandbox's socket: %w", err)
	}
	f := os.NewFile(uintptr(fd), "listener")
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: s.address()}); err != nil {
		f.Close()
		return nil, fmt.Errorf("bind the sandbox's socket: %w", err)
	}
	if err := unix.Listen(fd, 1024); err != nil {
		f.Close()
		return nil, fmt.Errorf("listen on the sandbox's socket: %w", err)
	}
	return f, nil
}

// write replaces the record. The lease before it is PID 1's.
func (s *slot) write(r *record) error { return hostside.WriteRecord(s.file, r) }

// read is the record with the state and the lease as they are now. A record that can't be read is one of an id and a state.
func (s *slot) read() record {
	r, lease := s.stored()
	r.ID, r.Provider = s.id, Name
	switch pid, err := s.holder(); {
	case err != nil || pid == 0:
		if r.State != sandbox.StateStarting || !s.taken() {
			r.State = sandbox.StateDead
		}
	case r.State == "":
		r.State = sandbox.StateRunning
	}
	if at, err := strconv.ParseInt(lease, 10, 64); err == nil {
		if end, err := hostside.Wall(at); err == nil {
			r.Expires = end
		}
	}
	if r.State == sandbox.StateDead {
		r.Cause = cause(&r, strings.TrimSpace(lease))
	}
	return r
}

// cause is why a box is dead. Who ends it writes the word in the lease's place; what the kernel kills leaves none.
func cause(r *record, lease string) string {
	if sandbox.Why(lease) != "" {
		return lease
	}
	for _, dir := range r.Cgroups { // a unified group holds PID 1 too
		if b, err := os.ReadFile(filepath.Join(dir, "memory.events")); err == nil && !bytes.Contains(b, []byte("\noom_kill 0\n")) {
			return sandbox.CauseMemory
		}
	}
	if r.Tied && unix.Kill(r.OwnerPID, 0) != nil || r.Isolation.Level == "" { // the second: it died with its maker, before it lived
		return sandbox.CauseOwner
	}
	return sandbox.CauseSignal
}

// mark says why the box is about to be killed.
func (s *slot) mark(cause string) {
	_, _ = s.file.WriteAt(fmt.Appendf(nil, guest.CauseFormat, cause), 0) // the end is the same without it
}

// why says in words why the box died; "" when it lives.
func (s *slot) why() string { return hostside.Why(func() sandbox.Info { return s.read().Info }) }

// stored reads the file. Its writer may be in the middle of a line, so a bad one is read again.
func (s *slot) stored() (r record, lease string) {
	buf := make([]byte, 8<<10)
	for range 3 {
		n, err := s.file.ReadAt(buf, 0)
		if errors.Is(err, nil) && n == len(buf) && n < maxRecord {
			buf = make([]byte, maxRecord)
			n, _ = s.file.ReadAt(buf, 0)
		}
		if n < hostside.LeaseSize {
			return record{}, ""
		}
		lease = string(bytes.Trim(buf[:hostside.LeaseSize], "\x00\n"))
		line, _, whole := bytes.Cut(buf[hostside.LeaseSize:n], []byte("\n"))
		r = record{}
		if whole && json.Unmarshal(line, &r) == nil {
			return r, lease
		}
		time.Sleep(time.Millisecond)
	}
	return record{}, lease
}

// taken tells whether somebody makes or removes the box.
func (s *slot) taken() bool { return hostside.Taken(s.file) }

// holder is the pid of the box's PID 1 as this process sees it; 0: the box is dead; -1: it lives where this process can't see it.
func (s *slot) holder() (int, error) {
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(s.file.Fd(), unix.F_GETLK, &l); err != nil {
		return 0, err
	}
	switch {
	case l.Type == unix.F_UNLCK:
		return 0, nil
	case l.Pid <= 0:
		return -1, nil
	}
	return int(l.Pid), nil
}

// kill ends the box's PID 1, leaves the cause, and waits for its end. It is nil when there is none.
func (s *slot) kill(ctx context.Context, cause string) error {
	pid, err := s.holder()
	if err != nil || pid == 0 {
		return err
	}
	if pid < 0 { // in another pid namespace: PID 1 has to do it
		err := guest.NewClient(s.id, s.dial, nil).Die(ctx)
		if errors.Is(err, guest.ErrGone) {
			return nil
		}
		return err
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	p := hostside.NewProcess(fd)
	defer p.Close()
	// The pid may have been another's when the descriptor was opened: the lock decides once more.
	if again, err := s.holder(); err != nil || again != pid {
		return err
	}
	s.mark(cause)
	if err := p.Signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return p.Wait(ctx)
}

// remove takes away all that a dead box left: its file last, since that is what names the rest. The caller has taken the slot.
func (s *slot) remove() error {
	r, _ := s.stored()
	for _, dir := range r.Cgroups {
		if err := removeCgroup(dir, s.id); err != nil {
			return err
		}
	}
	if err := removeDisk(s.path + diskSuffix); err != nil {
		return err
	}
	if r.Network != sandbox.NetNone || len(r.Published) > 0 {
		if err := hostside.RemoveLog(s.path+networkSuffix, s.id); err != nil {
			return err
		}
	}
	for _, name := range []string{s.path + outputSuffix, s.path + sockSuffix, s.path} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// here tells whether the slot is still the one of its path.
func (s *slot) here() bool {
	var a, b unix.Stat_t
	return unix.Fstat(s.fd(), &a) == nil && unix.Lstat(s.path, &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev
}

// slots are the ids in a folder of boxes; none when there is no folder.
func slots(boxes string) ([]string, error) {
	d, err := os.Open(boxes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer d.Close()
	var ids []string
	for {
		names, err := d.Readdirnames(1000)
		for _, name := range names {
			if hostside.ValidID(name) && !strings.HasSuffix(name, sockSuffix) {
				ids = append(ids, name)
			}
		}
		if errors.Is(err, io.EOF) {
			return ids, nil
		}
		if err != nil {
			return ids, err
		}
	}
}
