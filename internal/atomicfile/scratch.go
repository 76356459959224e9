package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// Scratch is a folder for work under way. A process that is killed leaves its folder to the next NewScratchIn of that name and place, which takes it away:
// a lock tells whether somebody works in it.
type Scratch struct {
	Dir  string
	lock *os.File
	once sync.Once
	err  error
}

// NewScratch is NewScratchIn the folder of temporary files.
func NewScratch(name string) (*Scratch, error) { return NewScratchIn("", name) }

// NewScratchIn makes a folder whose name begins with name in parent, where "" is the folder of temporary files; the caller removes it. Folders of that name
// that dead processes of this user have left there go first.
func NewScratchIn(parent, name string) (*Scratch, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	sweepScratch(parent, name)
	const tries = 100 // a folder can be swept between the moment it is made and the moment it is locked
	for range tries {
		dir, err := os.MkdirTemp(parent, name+"-")
		if err != nil {
			return nil, fmt.Errorf("make a folder for work under way: %w", err)
		}
		f, err := lockFolder(dir)
		switch {
		case err == nil:
			return &Scratch{Dir: dir, lock: f}, nil
		case !errors.Is(err, ErrLocked) && !errors.Is(err, fs.ErrNotExist):
			return nil, errors.Join(fmt.Errorf("lock a folder for work under way: %w", err), os.RemoveAll(dir))
		}
	}
	return nil, errors.New("make a folder for work under way: each is swept at once")
}

// Remove takes the folder away. It may be called again.
func (s *Scratch) Remove() error {
	s.once.Do(func() { s.err = errors.Join(os.RemoveAll(s.Dir), release(s.lock)) })
	return s.err
}

// lockFolder opens and locks a folder of this user's.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	err = unix.Fstat(int(f.Fd()), &st)
	if err == nil && int(st.Uid) != os.Geteuid() {
		err = fs.ErrPermission
	}
	if err == nil {
		err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	}
	if err == nil && !names(f, dir) {
		err = fs.ErrNotExist
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// sweepScratch removes what nobody holds any more. What can't be removed stays: it is in nobody's way.
func sweepScratch(parent, name string) {
	all, err := filepath.Glob(filepath.Join(parent, name+"-[0-9]*"))
	if err != nil {
		return
	}
	for _, dir := range all {
		if f, err := lockFolder(dir); err == nil {
			_ = os.RemoveAll(dir)
			f.Close()
		}
	}
}
