package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/sandbox"
)

// Files of a box's folder. They need not outlast a crash of the machine, since no box does, so they are written without a sync.
const (
	infoFile  = "info.json"
	lockFile  = "lock"  // PID 1 holds a POSIX lock on it while it lives
	leaseFile = "lease" // the deadline, written by PID 1
	sockFile  = "sock"  // PID 1 listens
	logFile   = "log"   // PID 1's last words
)

// record is what a folder's info file holds.
type record struct {
	sandbox.Info
	Cgroups []string `json:"cgroups,omitempty"`
}

// folder is one box's place on the host. Whoever makes or removes it holds a flock on the folder itself.
type folder struct {
	id   string
	path string
	dir  *os.File
}

// makeFolder makes a new box's folder and takes it.
func makeFolder(boxes, id string) (*folder, error) {
	if err := os.MkdirAll(boxes, 0o700); err != nil {
		return nil, err
	}
	f := &folder{id: id, path: filepath.Join(boxes, id)}
	if err := os.Mkdir(f.path, 0o700); err != nil {
		return nil, err
	}
	if err := f.open(); err != nil {
		return nil, err
	}
	if err := unix.Flock(f.fd(), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.close()
		return nil, fmt.Errorf("take %s: %w", f.path, err)
	}
	return f, nil
}

// openFolder opens a box's folder without taking it; fs.ErrNotExist when there is none.
func openFolder(boxes, id string) (*folder, error) {
	if !validID(id) {
		return nil, &fs.PathError{Op: "open", Path: id, Err: fs.ErrNotExist}
	}
	f := &folder{id: id, path: filepath.Join(boxes, id)}
	return f, f.open()
}

func (f *folder) open() error {
	fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: f.path, Err: err}
	}
	f.dir = os.NewFile(uintptr(fd), f.path)
	return nil
}

func (f *folder) fd() int { return int(f.dir.Fd()) }

func (f *folder) close() { f.dir.Close() }

// short is a name of a file of the folder that is short enough for a socket address, however long the state root's path is.
func (f *folder) short(name string) string {
	return "/proc/self/fd/" + strconv.Itoa(f.fd()) + "/" + name
}

// create makes one of the folder's files.
func (f *folder) create(name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(f.fd(), name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC|flags, 0o600)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: filepath.Join(f.path, name), Err: err}
	}
	return os.NewFile(uintptr(fd), filepath.Join(f.path, name)), nil
}

// listen makes the box's socket, for PID 1 to take.
func (f *folder) listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make the sandbox's socket: %w", err)
	}
	s := os.NewFile(uintptr(fd), "listener")
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: f.short(sockFile)}); err != nil {
		s.Close()
		return nil, fmt.Errorf("bind the sandbox's socket: %w", err)
	}
	if err := unix.Listen(fd, 1024); err != nil {
		s.Close()
		return nil, fmt.Errorf("listen on the sandbox's socket: %w", err)
	}
	return s, nil
}

// write puts the record into the folder at once, whole.
func (f *folder) write(r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	const temp = infoFile + ".new"
	w, err := f.create(temp, unix.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = w.Write(b)
	if closed := w.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	if err := unix.Renameat(f.fd(), temp, f.fd(), infoFile); err != nil {
		return &fs.PathError{Op: "write", Path: filepath.Join(f.path, infoFile), Err: err}
	}
	return nil
}

// read is the record with the state and the lease as they are now. A record that can't be read is one of an id and a state.
func (f *folder) read() record {
	var r record
	b, err := f.readFile(infoFile)
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil {
		r = record{}
	}
	r.ID, r.Provider = f.id, Name
	switch pid, err := f.holder(); {
	case err != nil || pid == 0:
		if r.State != sandbox.StateStarting || f.taken() != nil {
			r.State = sandbox.StateDead
		}
	case r.State == "":
		r.State = sandbox.StateRunning
	}
	if at, err := f.deadline(); err == nil {
		r.Expires = at
	}
	return r
}

// taken is nil while somebody makes or removes the folder.
func (f *folder) taken() error {
	if unix.Flock(f.fd(), unix.LOCK_SH|unix.LOCK_NB) != nil {
		return nil
	}
	unix.Flock(f.fd(), unix.LOCK_UN)
	return errors.New("nobody's")
}

func (f *folder) readFile(name string) ([]byte, error) {
	fd, err := unix.Openat(f.fd(), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	r := os.NewFile(uintptr(fd), name)
	defer r.Close()
	b := make([]byte, 64<<10)
	n, err := r.ReadAt(b, 0)
	if n == 0 && err != nil {
		return nil, err
	}
	return b[:n], nil
}

// deadline is the lease's end on the wall clock.
func (f *folder) deadline() (time.Time, error) {
	b, err := f.readFile(leaseFile)
	if err != nil {
		return time.Time{}, err
	}
	at, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil {
		return time.Time{}, err
	}
	return wall(at)
}

// wall is a moment of the boot clock on the wall clock.
func wall(at int64) (time.Time, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(time.Duration(at - ts.Nano())).UTC().Round(time.Millisecond), nil
}

// holder is the pid of the box's PID 1 as this process sees it; 0: the box is dead; -1: it lives where this process can't see it.
func (f *folder) holder() (int, error) {
	fd, err := unix.Openat(f.fd(), lockFile, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	l := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(uintptr(fd), unix.F_GETLK, &l); err != nil {
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

// kill ends the box's PID 1 and waits for its end. It is nil when there is none.
func (f *folder) kill(ctx context.Context) error {
	pid, err := f.holder()
	if err != nil || pid == 0 {
		return err
	}
	if pid < 0 {
		return fmt.Errorf("sandbox %s runs in another pid namespace; destroy it there", f.id)
	}
	fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	p := newPidfd(fd)
	defer p.close()
	// The pid may have been another's when the descriptor was opened: the lock decides once more.
	if again, err := f.holder(); err != nil || again != pid {
		return err
	}
	if err := p.signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return p.wait(ctx)
}

// remove takes the folder and its cgroups away. The caller has taken it and knows that the box is dead.
func (f *folder) remove() error {
	for _, dir := range f.read().Cgroups {
		if err := removeCgroup(dir); err != nil {
			return err
		}
	}
	return os.RemoveAll(f.path)
}

// here tells whether the folder is still the one of its path.
func (f *folder) here() bool {
	var a, b unix.Stat_t
	return unix.Fstat(f.fd(), &a) == nil && unix.Lstat(f.path, &b) == nil && a.Ino == b.Ino && a.Dev == b.Dev
}

// validID keeps ids from being paths.
func validID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
