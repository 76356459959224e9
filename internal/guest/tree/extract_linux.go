package tree

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

var (
	errLeaves  = fmt.Errorf("the name leaves the folder: %w", fs.ErrInvalid)
	errThrough = fmt.Errorf("the name goes through a link or a file: %w", fs.ErrInvalid)
)

// Extract unpacks a tar under the folder name, which is made when absent. No entry is written outside it or through a link in it.
func Extract(r io.Reader, name string) error {
	_, err := Options{}.Extract(r, name)
	return err
}

// Options is what unpacking does beside the usual.
type Options struct {
	// Shift is added to every owner.
	Shift int
	// Open lets the owner read every file and read, write and enter every folder, whatever the archive says: for one who has no power over modes.
	Open bool
	// Sparse makes holes of what is zeros.
	Sparse bool
	// Marks makes it an error that the file system can't keep an overlay's marks.
	Marks bool
	// Max is how many bytes files may have together; 0: any number. Beyond it is an error that is ENOSPC.
	Max int64
	// Each, when set, sees every entry first. What it takes is not unpacked.
	Each func(h *tar.Header, r io.Reader) (taken bool, err error)
}

// Report is what unpacking couldn't keep.
type Report struct {
	Owners int // entries that stay the caller's, since their owner can't be expressed or the caller may not
	Bytes  int64
	Files  int // entries of all kinds
}

// Extract is Extract with options. The report is complete without an error.
func (o Options) Extract(r io.Reader, name string) (Report, error) {
	u := &unpacker{o: o, parent: -1, buf: make([]byte, 64<<10)}
	err := u.extract(r, name)
	return u.report, err
}

func (u *unpacker) extract(r io.Reader, name string) error {
	if err := os.MkdirAll(name, 0o755); err != nil {
		return err
	}
	fd, err := OpenPlain(name, unix.O_PATH|unix.O_DIRECTORY)
	if err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	u.root = fd
	defer u.close()
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return u.finish()
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		if u.o.Each != nil {
			taken, err := u.o.Each(h, t)
			if err != nil {
				return err
			}
			if taken {
				continue
			}
		}
		if u.o.Max > 0 && u.report.Bytes > u.o.Max-h.Size {
			return fmt.Errorf("the archive holds more than %d bytes: %w", u.o.Max, unix.ENOSPC)
		}
		u.report.Files++
		u.report.Bytes += h.Size
		if err := u.entry(h, t); err != nil {
			return &fs.PathError{Op: "extract", Path: h.Name, Err: err}
		}
	}
}

// unpacker writes the entries of one archive below root.
type unpacker struct {
	o      Options
	report Report
	root   int
	parent int    // the folder of the last entry, since entries come folder by folder; -1: none
	at     string // its name
	dirs   []*tar.Header
	buf    []byte
}

func (u *unpacker) close() {
	if u.parent >= 0 {
		unix.Close(u.parent)
	}
	unix.Close(u.root)
}

// clean is an entry's name without decoration. "." is the root itself.
func clean(name string) (string, error) {
	if path.IsAbs(name) || strings.ContainsRune(name, 0) {
		return "", errLeaves
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return "", errLeaves
		}
	}
	return path.Clean(name), nil
}

func (u *unpacker) entry(h *tar.Header, r io.Reader) error {
	if h.Typeflag == tar.TypeXGlobalHeader {
		return nil
	}
	name, err := clean(h.Name)
	if err != nil {
		return err
	}
	h.Name = name
	if name == "." {
		if h.Typeflag == tar.TypeDir {
			u.dirs = append(u.dirs, h)
			return nil
		}
		return errLeaves
	}
	dir, err := u.folder(path.Dir(name))
	if err != nil {
		return err
	}
	base := path.Base(name)
	switch h.Typeflag {
	case tar.TypeDir:
		u.dirs = append(u.dirs, h)
		return makeDir(dir, base)
	case tar.TypeReg:
		return u.file(dir, base, h, r)
	}
	if err := replace(dir, base); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		err = unix.Symlinkat(h.Linkname, dir, base)
	case tar.TypeLink:
		return u.link(dir, base, h.Linkname)
	case tar.TypeFifo:
		err = unix.Mknodat(dir, base, unix.S_IFIFO|0o600, 0)
	case tar.TypeChar:
		if h.Devmajor != 0 || h.Devminor != 0 {
			return fmt.Errorf("a device node: %w", errors.ErrUnsupported)
		}
		err = unix.Mknodat(dir, base, unix.S_IFCHR, 0)
	default:
		return fmt.Errorf("an entry of type %q: %w", h.Typeflag, errors.ErrUnsupported)
	}
	if err != nil {
		return err
	}
	return u.attributes(dir, base, h)
}

// folder opens a folder below the root, making what lacks of it, never through a link.
func (u *unpacker) folder(name string) (int, error) {
	if name == "." {
		return u.root, nil
	}
	if u.parent >= 0 && u.at == name {
		return u.parent, nil
	}
	fd, err := openBeneath(u.root, name)
	if errors.Is(err, unix.ENOENT) {
		above, err := u.folder(path.Dir(name))
		if err != nil {
			return -1, err
		}
		if err := makeDir(above, path.Base(name)); err != nil {
			return -1, err
		}
		fd, err = openBeneath(u.root, name)
		if err != nil {
			return -1, err
		}
	} else if err != nil {
		return -1, err
	}
	if u.parent >= 0 {
		unix.Close(u.parent)
	}
	u.parent, u.at = fd, name
	return fd, nil
}

func openBeneath(root int, name string) (int, error) {
	fd, err := unix.Openat2(root, name, &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return -1, errThrough
	}
	return fd, err
}

func makeDir(dir int, name string) error {
	err := unix.Mkdirat(dir, name, 0o755)
	if !errors.Is(err, unix.EEXIST) {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstatat(dir, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return errThrough
	}
	return nil
}

// replace takes away what has the name, unless it is a folder.
func replace(dir int, name string) error {
	if err := unix.Unlinkat(dir, name, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

func (u *unpacker) file(dir int, name string, h *tar.Header, r io.Reader) error {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags, 0o600)
	if errors.Is(err, unix.EEXIST) {
		if err := replace(dir, name); err != nil {
			return err
		}
		fd, err = unix.Openat(dir, name, flags, 0o600)
	}
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), name)
	if u.o.Sparse {
		err = copySparse(f, r, u.buf)
	} else {
		_, err = io.CopyBuffer(struct{ io.Writer }{f}, r, u.buf)
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return err
	}
	return u.attributes(dir, name, h)
}

// copySparse copies r to the new file f, with holes where r has long stretches of zeros.
func copySparse(f *os.File, r io.Reader, buf []byte) error {
	var at int64
	for {
		n, err := io.ReadFull(r, buf)
		for b := buf[:n]; len(b) > 0; {
			run, hole := stretch(b)
			if !hole {
				if _, err := f.WriteAt(b[:run], at); err != nil {
					return err
				}
			}
			at += int64(run)
			b = b[run:]
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return f.Truncate(at)
		case err != nil:
			return err
		}
	}
}

// stretch is how many bytes of b, page by page, are zeros, or are not.
func stretch(b []byte) (n int, zeros bool) {
	const page = 4096
	for n < len(b) {
		piece := b[n:min(n+page, len(b))]
		z := piece[0] == 0 && bytes.Equal(piece[1:], piece[:len(piece)-1])
		if n > 0 && z != zeros {
			break
		}
		zeros = z
		n += len(piece)
	}
	return n, zeros
}

// link makes another name of a file that the archive, or the folder, already holds.
func (u *unpacker) link(dir int, name, target string) error {
	target, err := clean(target)
	if err != nil {
		return err
	}
	from := u.root
	if above := path.Dir(target); above != "." {
		if from, err = openBeneath(u.root, above); err != nil {
			return err
		}
		defer unix.Close(from)
	}
	return unix.Linkat(from, path.Base(target), dir, name, 0)
}

// finish gives the folders their modes and times, the deepest first, when nothing is written into them any more.
func (u *unpacker) finish() error {
	for i := len(u.dirs) - 1; i >= 0; i-- {
		h := u.dirs[i]
		dir, base := u.root, "."
		if h.Name != "." {
			var err error
			if dir, err = u.folder(path.Dir(h.Name)); err != nil {
				return &fs.PathError{Op: "extract", Path: h.Name, Err: err}
			}
			base = path.Base(h.Name)
		}
		if err := u.attributes(dir, base, h); err != nil {
			return &fs.PathError{Op: "extract", Path: h.Name, Err: err}
		}
	}
	return nil
}

// attributes sets owner, mode, extended attributes and time. An owner that the box can't express stays the box's root.
func (u *unpacker) attributes(dir int, name string, h *tar.Header) error {
	if uid, gid := h.Uid+u.o.Shift, h.Gid+u.o.Shift; uid != 0 || gid != 0 {
		err := unix.Fchownat(dir, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW)
		switch {
		case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EPERM):
			u.report.Owners++
		case err != nil:
			return err
		}
	}
	if h.Typeflag == tar.TypeSymlink || h.Typeflag == tar.TypeChar {
		return setTime(dir, name, h)
	}
	// The name is ours since its making, but the box lives: a link put there meanwhile must not be followed.
	fd, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	at := fmt.Sprintf("/proc/self/fd/%d", fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFLNK {
		return errThrough
	}
	mode := uint32(h.Mode & 0o7777)
	switch {
	case u.o.Open && h.Typeflag == tar.TypeDir:
		mode |= 0o700
	case u.o.Open:
		mode |= 0o400
	}
	if err := unix.Chmod(at, mode); err != nil {
		return err
	}
	for key, value := range h.PAXRecords {
		attr, ok := strings.CutPrefix(key, XattrPrefix)
		if !ok || !carried(attr) {
			continue
		}
		err := unix.Setxattr(at, attr, []byte(value), 0)
		if err != nil && (attr == Opaque && u.o.Marks || !errors.Is(err, unix.ENOTSUP) && !errors.Is(err, unix.EPERM)) {
			return fmt.Errorf("set %s: %w", attr, err)
		}
	}
	return setTime(dir, name, h)
}

func setTime(dir int, name string, h *tar.Header) error {
	if h.ModTime.Unix() <= 0 {
		return nil
	}
	t := unix.NsecToTimespec(h.ModTime.UnixNano())
	return unix.UtimesNanoAt(dir, name, []unix.Timespec{t, t}, unix.AT_SYMLINK_NOFOLLOW)
}
