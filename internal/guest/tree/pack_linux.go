package tree

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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

// Packer writes a tar, one entry at a time.
type Packer struct {
	// Records go into every header from now on. Their keys are "VENDOR.key".
	Records map[string]string
	// Owner, when set, changes the owner of every entry.
	Owner func(uid, gid int) (int, int)
	// Exact keeps times to the nanosecond.
	Exact bool
	// Max is how many bytes files may have together, holes included; 0: any number. Beyond it packing fails with ENOSPC.
	Max int64
	// Brief leaves the bytes of files out: their size is in the record SizeRecord.
	Brief bool

	bytes int64
	w     *tar.Writer
	links map[[2]uint64]string // files with several names: the first one packed
	buf   []byte
}

// NewPacker writes to w. The caller ends the archive with Close, which leaves w open.
func NewPacker(w io.Writer) *Packer {
	return &Packer{w: tar.NewWriter(w), links: map[[2]uint64]string{}, buf: make([]byte, 64<<10)}
}

// Close ends the archive.
func (p *Packer) Close() error { return p.w.Close() }

// Add packs the entry name of the folder dir, a descriptor, as rel; of a folder itself alone. Sockets and devices but for whiteouts are
// passed over.
func (p *Packer) Add(dir int, name, rel string, st *unix.Stat_t) error {
	if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return p.entry(dir, name, rel, st)
	}
	return p.node(dir, name, rel, st, unix.O_RDONLY|unix.O_NOFOLLOW)
}

// File packs a file that is in memory.
func (p *Packer) File(name string, data []byte) error {
	if err := p.w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := p.w.Write(data)
	return err
}

// Pack writes a tar of the folder, or of the one file, that name leads to. Names are relative to it; device nodes other than
// whiteouts and sockets are left out, and so are /proc and /dev below a root that holds them.
func Pack(w io.Writer, name string) error {
	p := NewPacker(w)
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
	return p.Close()
}

// one packs a single file under its own name.
func (p *Packer) one(name string, st *unix.Stat_t) error {
	dir, err := OpenPlain(path.Dir(path.Clean(name)), unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return &fs.PathError{Op: "open", Path: path.Dir(name), Err: err}
	}
	defer unix.Close(dir)
	return p.node(dir, path.Base(name), path.Base(name), st, unix.O_RDONLY)
}

// dir packs what is in the folder fd. at is its name in the archive, full its path in the box.
func (p *Packer) dir(fd int, at, full string) error {
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
func (p *Packer) entry(fd int, name, rel string, st *unix.Stat_t) error {
	h := header(rel+"/", st)
	h.Typeflag = tar.TypeDir
	return p.header(h, xattrs(fd, name))
}

// node packs anything but a folder.
func (p *Packer) node(dir int, name, rel string, st *unix.Stat_t, flags int) error {
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
	return p.header(h, nil)
}

// header writes h with its records.
func (p *Packer) header(h *tar.Header, records map[string]string) error {
	if len(p.Records) > 0 {
		if records == nil {
			records = map[string]string{}
		}
		maps.Copy(records, p.Records)
	}
	h.PAXRecords = records
	if p.Owner != nil {
		h.Uid, h.Gid = p.Owner(h.Uid, h.Gid)
	}
	if p.Exact {
		h.Format = tar.FormatPAX
	}
	return p.w.WriteHeader(h)
}

func (p *Packer) file(dir int, name string, h *tar.Header, st *unix.Stat_t, flags int) error {
	if st.Nlink > 1 {
		id := [2]uint64{st.Dev, st.Ino}
		if first, seen := p.links[id]; seen {
			h.Typeflag, h.Linkname = tar.TypeLink, first
			return p.header(h, nil)
		}
		p.links[id] = h.Name
	}
	if p.Brief {
		h.Typeflag = tar.TypeReg
		return p.header(h, map[string]string{SizeRecord: strconv.FormatInt(st.Size, 10)})
	}
	if p.bytes += st.Size; p.Max > 0 && p.bytes > p.Max {
		return fmt.Errorf("the files have more than %d bytes, holes included: %w", p.Max, unix.ENOSPC)
	}
	fd, err := unix.Openat(dir, name, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	h.Typeflag, h.Size = tar.TypeReg, st.Size
	if err := p.header(h, xattrs(dir, name)); err != nil {
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
		Name: name, Mode: int64(st.Mode & 0o7777), Uid: int(st.Uid), Gid: int(st.Gid), ModTime: time.Unix(st.Mtim.Sec, st.Mtim.Nsec),
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
		records[XattrPrefix+attr] = string(value[:n])
	}
	return records
}

// carried tells which attributes travel. Of those by which overlays keep their books only the one that means something elsewhere.
func carried(attr string) bool {
	if book, ok := strings.CutPrefix(attr, "user.overlay."); ok {
		return attr == Opaque || strings.HasPrefix(book, "overlay.") // the latter is how an overlay keeps a user's own
	}
	return strings.HasPrefix(attr, "user.") || attr == "security.capability"
}
