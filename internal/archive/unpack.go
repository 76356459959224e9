package archive

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

type kind uint8

const (
	file kind = iota + 1
	dir
	symlink
	hardlink
	fifo
	device
	other
)

type xattr struct{ name, value string }

// member is one entry of an archive of any format.
type member struct {
	name   string // as the archive spells it
	kind   kind
	mode   fs.FileMode
	target string
	time   time.Time
	xattrs []xattr
	size   int64 // as the archive says; -1 where it doesn't
	body   io.Reader

	uid, gid int
	implied  bool // a folder without an entry of its own
}

// unpacker is one run.
type unpacker struct {
	ctx    context.Context //nolint:containedctx // it lives as long as the one call that made it
	root   *os.Root
	o      Options
	packed func() int64 // bytes of the archive read so far
	report Report
	count  int

	made   map[string]kind   // what stands at each name
	folded map[string]string // names by what they fold to
	dirs   []member          // whose modes and times are set at the end
	links  []member          // made at the end
	linkAt map[string]int    // the last of a name among them
	gone   []string          // of a layer: names that it takes away from those below, set at the end
	buf    []byte
}

func newUnpacker(ctx context.Context, root *os.Root, o Options, packed func() int64) *unpacker {
	o.Limits = o.filled()
	if o.Layer != nil {
		o.KeepSetuid, o.KeepClashes, o.Xattrs, o.Times, o.NoLinks = true, true, true, true, false
	}
	return &unpacker{ctx: ctx, root: root, o: o, packed: packed, made: map[string]kind{}, linkAt: map[string]int{}, folded: map[string]string{}, buf: make([]byte, 64<<10)}
}

// member unpacks one entry or refuses it. An error ends the work.
func (u *unpacker) member(m member) error {
	if err := u.ctx.Err(); err != nil {
		return err
	}
	if u.count++; u.count > u.o.Entries {
		return fmt.Errorf("%w: more than %d members", ErrLimit, u.o.Entries)
	}
	if u.o.Layer != nil && u.whiteout(&m) {
		return nil
	}
	name, why := u.check(m)
	if why == "" && name == "" {
		if u.o.Layer != nil && m.kind == dir {
			m.name = ""
			u.dirs = append(u.dirs, m)
		}
		return nil // the folder itself
	}
	if why != "" {
		u.report.refuse(m.name, why)
		return nil
	}
	as := m.name
	m.name = name
	why, err := u.place(m)
	if err != nil {
		return fmt.Errorf("unpack %q: %w", cut(as), err)
	}
	if why != "" {
		u.report.refuse(as, why)
	}
	return nil
}

const strangeKind = "it is neither a file nor a folder nor a link"

// check looks at what a member is without touching the disk.
func (u *unpacker) check(m member) (name, why string) {
	name, why = clean(m.name, u.o.Depth)
	if why != "" || name == "" {
		return name, why
	}
	switch m.kind {
	case fifo, device:
		if u.o.Layer == nil {
			return "", strangeKind
		}
	case other:
		return "", strangeKind
	case symlink:
		if u.o.NoLinks {
			return "", "it is a symbolic link"
		}
		if u.o.Layer == nil && !linkStays(name, m.target) {
			return "", "it links to a place outside"
		}
	case file, dir, hardlink:
	}
	if u.o.Refuse != nil {
		if why := u.o.Refuse(name, m.kind == dir); why != "" {
			return "", why
		}
	}
	if had, ok := u.made[name]; ok && (had != dir || m.kind != dir) && (u.o.Layer == nil || had == dir || m.kind == dir) {
		return "", "its name is taken by another member"
	}
	return name, u.clash(name)
}

// clash looks for another spelling of the name or of a folder above it.
func (u *unpacker) clash(name string) (why string) {
	if u.o.KeepClashes {
		return ""
	}
	for _, p := range append(parents(name), name) {
		if have, ok := u.folded[fold(p)]; ok && have != p {
			return fmt.Sprintf("its name differs from %q in case or Unicode form only", cut(have))
		}
	}
	return ""
}

// take notes that a name is taken.
func (u *unpacker) take(name string, k kind) {
	u.made[name] = k
	if !u.o.KeepClashes {
		u.folded[fold(name)] = name
	}
}

// place puts a checked member on the disk, or answers why it can't stand there.
func (u *unpacker) place(m member) (why string, err error) {
	if why, err := u.above(m.name); why != "" || err != nil {
		return why, err
	}
	if u.o.Layer != nil {
		if err := u.replace(m); err != nil {
			return "", err
		}
	}
	switch m.kind {
	case dir:
		why, err = u.mkdir(m.name)
		if why == "" && err == nil {
			u.dirs = append(u.dirs, m)
		}
	case symlink:
		u.addLink(m)
	case hardlink:
		why, err = u.hardlink(m)
	case file:
		why, err = u.file(m)
	case fifo:
		err = u.fifo(m)
	case device:
		u.report.Devices++
	case other:
	}
	return why, err
}

// above makes the folders above a name, which must be real ones.
func (u *unpacker) above(name string) (why string, err error) {
	for _, p := range parents(name) {
		if had, ok := u.made[p]; ok && had != dir {
			return fmt.Sprintf("%q above it is no folder", cut(p)), nil
		}
		if why, err = u.mkdir(p); why != "" || err != nil {
			return why, err
		}
	}
	return "", nil
}

func (u *unpacker) mkdir(name string) (why string, err error) {
	if u.made[name] == dir {
		return "", nil
	}
	err = u.root.Mkdir(name, 0o700)
	switch {
	case err == nil:
		u.report.Dirs++
		u.dirs = append(u.dirs, member{name: name, kind: dir, mode: 0o755, implied: true})
	case errors.Is(err, fs.ErrExist):
		fi, err := u.root.Lstat(name)
		if err != nil {
			return "", err
		}
		if !fi.IsDir() {
			return fmt.Sprintf("%q stands where a folder should be", cut(name)), nil
		}
	default:
		return "", err
	}
	u.take(name, dir)
	return "", nil
}

// makeAt makes something at a name where nothing may stand, by a call that fails when something does.
func (u *unpacker) makeAt(name string, create func() error) (why string, err error) {
	err = create()
	if !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if why, err = u.free(name); why != "" || err != nil {
		return why, err
	}
	return "", create()
}

// free makes room at a name.
func (u *unpacker) free(name string) (why string, err error) {
	fi, err := u.root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case fi.IsDir():
		return "a folder stands there", nil
	case !u.o.Overwrite:
		return "it exists already", nil
	}
	return "", u.root.Remove(name)
}

func (u *unpacker) file(m member) (why string, err error) {
	if m.size > u.o.Bytes-u.report.Bytes {
		return "", u.tooBig()
	}
	var f *os.File
	why, err = u.makeAt(m.name, func() (err error) {
		f, err = u.root.OpenFile(m.name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if why != "" || err != nil {
		return why, err
	}
	err = u.copy(f, m.body)
	if u.o.Layer != nil { // before the mode, whose setuid bit it takes away, and before the attributes, whose capabilities it takes away
		err = errors.Join(err, u.own(m, f.Chown))
	}
	for _, x := range m.xattrs {
		err = errors.Join(err, u.attribute(f, x))
	}
	err = errors.Join(err, f.Chmod(u.mode(m.mode)))
	err = errors.Join(err, f.Close())
	if err != nil {
		return "", err
	}
	u.report.Files++
	u.take(m.name, file)
	return "", u.times(m)
}

// mode is the bits that a member gets.
func (u *unpacker) mode(m fs.FileMode) fs.FileMode {
	if u.o.KeepSetuid {
		return m & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	}
	return m & fs.ModePerm
}

func (u *unpacker) times(m member) error {
	if !u.o.Times || m.time.IsZero() {
		return nil
	}
	return u.root.Chtimes(cmp.Or(m.name, "."), m.time, m.time)
}

func (u *unpacker) tooBig() error {
	return fmt.Errorf("%w: it unpacks to more than %d bytes", ErrLimit, u.o.Bytes)
}

// copy writes a file's bytes within the limits.
func (u *unpacker) copy(w io.Writer, r io.Reader) error {
	for {
		if err := u.ctx.Err(); err != nil {
			return err
		}
		n, err := r.Read(u.buf)
		u.report.Bytes += int64(n)
		if u.report.Bytes > u.o.Bytes {
			return u.tooBig()
		}
		if p := u.packed(); u.report.Bytes > ratioFrom && u.report.Bytes/u.o.Ratio > p {
			return fmt.Errorf("%w: %d bytes unpack to more than %d times as many", ErrLimit, p, u.o.Ratio)
		}
		if _, werr := w.Write(u.buf[:n]); werr != nil {
			return werr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// hardlink links to a file that this archive has brought, or copies it where there are no hard links.
func (u *unpacker) hardlink(m member) (why string, err error) {
	target, why := u.cleanTarget(m.target)
	if u.o.Layer != nil && why == "" && u.made[target] == symlink {
		return u.linkAgain(m, target)
	}
	if had := u.made[target]; why != "" || had != file && had != fifo {
		return "it is a hard link to a file that the archive does not hold before it", nil
	}
	why, err = u.makeAt(m.name, func() error {
		err := u.root.Link(target, m.name)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return u.duplicate(target, m.name)
		}
		return err
	})
	if why != "" || err != nil {
		return why, err
	}
	u.report.Files++
	u.take(m.name, u.made[target])
	return "", nil
}

func (u *unpacker) duplicate(from, to string) error {
	r, err := u.root.Open(from)
	if err != nil {
		return err
	}
	defer r.Close()
	fi, err := r.Stat()
	if err != nil {
		return err
	}
	w, err := u.root.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(u.copy(w, r), w.Chmod(fi.Mode()), w.Close())
}

// finish makes the links, then gives the folders their modes and times, innermost first.
func (u *unpacker) finish(err error) (Report, error) {
	for _, m := range u.finalLinks() {
		if err != nil {
			break
		}
		var why string
		if why, err = u.makeAt(m.name, func() error { return u.root.Symlink(m.target, m.name) }); why != "" {
			u.report.refuse(m.name, why)
		} else if err == nil {
			u.report.Links++
			err = u.ownLink(m)
		}
	}
	if err == nil {
		err = u.takeAway()
	}
	folders := u.final()
	for _, m := range slices.Backward(folders) {
		if err != nil {
			break
		}
		err = u.folder(m)
	}
	u.noteImplied(folders)
	if err == nil && u.o.Strict {
		err = u.report.strictly()
	}
	return u.report, err
}

// final is every folder once, with what its last entry said, outer ones first.
func (u *unpacker) final() []member {
	last := map[string]member{}
	for _, m := range u.dirs {
		last[m.name] = m
	}
	out := make([]member, 0, len(last))
	for _, m := range last {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return out
}

func (u *unpacker) folder(m member) error {
	at := cmp.Or(m.name, ".")
	if len(m.xattrs) > 0 {
		f, err := u.root.Open(at)
		if err != nil {
			return err
		}
		for _, x := range m.xattrs {
			err = errors.Join(err, u.attribute(f, x))
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if u.o.Layer != nil && !m.implied {
		if err := u.own(m, func(uid, gid int) error { return u.root.Lchown(at, uid, gid) }); err != nil {
			return err
		}
	}
	if err := u.root.Chmod(at, u.mode(m.mode)); err != nil {
		return err
	}
	return u.times(m)
}
