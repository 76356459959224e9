package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/sandbox"
)

// program is PID 1's program as a file of the state root, since an engine can bind nothing else. Its name holds its digest, and it is
// looked at again for each box: who may write the state root may not choose what runs.
type program struct {
	dir   string
	bytes func() ([]byte, error)

	mu   sync.Mutex
	path string
	sum  [sha256.Size]byte
	size int64
	seen stamp // of the file that was verified
}

// errNoGuest: this build has no guest program to show.
var errNoGuest = fmt.Errorf("this program holds no sandbox guest, build it with make build: %w", sandbox.ErrUnsupported)

const programPrefix = "guest-"

// get is the file's path.
func (p *program) get() (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.path != "" && p.same() {
		return p.path, nil
	}
	if p.bytes == nil {
		return "", errNoGuest
	}
	b, err := p.bytes()
	if err != nil {
		return "", err
	}
	p.sum, p.size = sha256.Sum256(b), int64(len(b))
	p.path = filepath.Join(p.dir, programPrefix+hex.EncodeToString(p.sum[:12]))
	if p.verify() {
		return p.path, nil
	}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return "", err
	}
	if err := atomicfile.WriteBytes(p.path, 0o755, b); err != nil {
		return "", fmt.Errorf("write the guest program: %w", err)
	}
	if !p.verify() {
		path := p.path
		p.path = ""
		return "", fmt.Errorf("the guest program %s is not what was written", path)
	}
	return p.path, nil
}

// stamp is what nobody can change of a file without leaving a trace: the kernel alone sets the time of its last change.
type stamp struct {
	dev, ino uint64
	changed  unix.Timespec
}

func stampOf(info fs.FileInfo) stamp {
	st := info.Sys().(*syscall.Stat_t)
	return stamp{st.Dev, st.Ino, unix.Timespec(st.Ctim)}
}

// same tells whether the file is the one that was verified.
func (p *program) same() bool {
	info, err := os.Lstat(p.path)
	return err == nil && stampOf(info) == p.seen
}

// verify reads the file.
func (p *program) verify() bool {
	fd, err := unix.Open(p.path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	f := os.NewFile(uintptr(fd), p.path)
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o122 != 0o100 || info.Size() != p.size {
		return false
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil || [sha256.Size]byte(h.Sum(nil)) != p.sum {
		return false
	}
	p.seen = stampOf(info)
	return true
}

// programAge is how long the program of another version is kept: a process of it may make boxes still, and writes it anew when it is gone.
const programAge = 24 * time.Hour

// sweep removes those of other versions. Containers that run have theirs still.
func (p *program) sweep() error {
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	p.mu.Lock()
	mine := filepath.Base(p.path)
	p.mu.Unlock()
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || e.Name() == mine || !strings.HasPrefix(e.Name(), programPrefix) || time.Since(info.ModTime()) < programAge {
			continue
		}
		if err := os.Remove(filepath.Join(p.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}
