package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// OpenPlain opens a path that a caller names, never by one of /proc's links to open files: what is "self" there is PID 1, whose descriptors
// and program are not for commands, and a command can leave a link to them under any name.
func OpenPlain(name string, flags uint64) (int, error) {
	how := &unix.OpenHow{Flags: flags | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(unix.AT_FDCWD, name, how)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// xattrPrefix is how tar archives carry extended attributes.
const xattrPrefix = "SCHILY.xattr."

// packer writes a tree as a tar.
type packer struct {
	w     *tar.Writer
	links map[[2]uint64]string // files with several names: the first one packed
	buf   []byte
}

// Pack writes a tar of the folder, or of the one file, that name leads to. Names are relative to it; device nodes other than
// whiteouts and sockets are left out, and so are /proc and /dev below a root that holds them.
func Pack(w io.Writer, name string) error {
	p := &packer{w: tar.NewWriter(w), links: map[[2]uint64]string{}, buf: make([]byte, 64<<10)}
	fd, err := OpenPlain(name, unix.O_PATH)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		if err := p.entry(fd, ".", ".", &st); err != nil {
			return err
		}
		if err := p.dir(fd, "", name); err != nil {
			return err
		}
	} else if err := p.one(name, &st); err != nil {
		return err
	}
	return p.w.Close()
}

// one packs a single file under its own name.
func (p *packer) one(name string, st *unix.Stat_t) error {
	dir, err := OpenPlain(path.Dir(path.Clean(name)), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path.Dir(name), Err: err}
	}
	defer unix.Close(dir)
	return p.node(dir, path.Base(name), path.Base(name), st, unix.O_RDONLY)
}

// dir packs what is in the folder fd. at is its name in the archive, full its path in the box.
func (p *packer) dir(fd int, at, full string) error {
	read, err := unix.Openat(fd, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: full, Err: err}
	}
	f := os.NewFile(uintptr(read), full)
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		sub := path.Join(full, name)
		if sub == "/proc" || sub == "/dev" {
			continue
		}
		var st unix.Stat_t
		if err := unix.Fstatat(read, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			if errors.Is(err, unix.ENOENT) {
				continue // gone meanwhile
			}
			return &fs.PathError{Op: "stat", Path: sub, Err: err}
		}
		rel := at + name
		if st.Mode&unix.S_IFMT != unix.S_IFDIR {
			if err := p.node(read, name, rel, &st, unix.O_RDONLY|unix.O_NOFOLLOW); err != nil {
				return fmt.Errorf("pack %s: %w", sub, err)
			}
			continue
		}
		child, err := unix.Openat(read, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &fs.PathError{Op: "open", Path: sub, Err: err}
		}
		err = p.entry(child, ".", rel, &st)
		if err == nil {
			err = p.dir(child, rel+"/", sub)
		}
		unix.Close(child)
		if err != nil {
			return err
		}
	}
	return nil
}

// entry packs a folder's own entry.
func (p *packer) entry(fd int, name, rel string, st *unix.Stat_t) error {
	h := header(rel+"/", st)
	h.Typeflag = tar.TypeDir
	h.PAXRecords = xattrs(fd, name)
	return p.w.WriteHeader(h)
}

// node packs anything but a folder.
func (p *packer) node(dir int, name, rel string, st *unix.Stat_t, flags int) error {
	h := header(rel, st)
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return p.file(dir, name, h, st, flags)
	case unix.S_IFLNK:
		n, err := unix.Readlinkat(dir, name, p.buf)
		if err != nil {
			return err
		}
		h.Typeflag, h.Linkname = tar.TypeSymlink, string(p.buf[:n])
	case unix.S_IFIFO:
		h.Typeflag = tar.TypeFifo
	case unix.S_IFCHR:
		if st.Rdev != 0 {
			return nil
		}
		h.Typeflag = tar.TypeChar // a whiteout
	default:
		return nil
	}
	return p.w.WriteHeader(h)
}

func (p *packer) file(dir int, name string, h *tar.Header, st *unix.Stat_t, flags int) error {
	if st.Nlink > 1 {
		id := [2]uint64{st.Dev, st.Ino}
		if first, seen := p.links[id]; seen {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return p.w.WriteHeader(h)
		}
		p.links[id] = h.Name
	}
	fd, err := unix.Openat(dir, name, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	h.PAXRecords = xattrs(dir, name)
	if err := p.w.WriteHeader(h); err != nil {
		return err
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{p.w}, io.LimitReader(f, st.Size), p.buf)
	if err != nil {
		return err
	}
	// A file that shrank meanwhile is filled up, since its size is already written.
	_, err = io.CopyN(p.w, zeros{}, st.Size-n)
	return err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func header(name string, st *unix.Stat_t) *tar.Header {
	return &tar.Header{
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(st.Mtim.Sec, 0),
	}
}

// xattrs are the extended attributes that a tar shall carry: the users' own and file capabilities.
func xattrs(dir int, name string) map[string]string {
	at := "/proc/self/fd/" + strconv.Itoa(dir) + "/" + name
	var list [4096]byte
	n, err := unix.Llistxattr(at, list[:])
	if err != nil || n == 0 {
		return nil
	}
	var records map[string]string
	for attr := range strings.SplitSeq(strings.TrimRight(string(list[:n]), "\x00"), "\x00") {
		if !carried(attr) {
			continue
		}
		value := make([]byte, 64<<10)
		n, err := unix.Lgetxattr(at, attr, value)
		if err != nil {
			continue
		}
		if records == nil {
			records = map[string]string{}
		}
		records[xattrPrefix+attr] = string(value[:n])
	}
	return records
}

func carried(attr string) bool {
	return strings.HasPrefix(attr, "user.") || attr == "security.capability"
}
