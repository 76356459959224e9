package archive

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// PackOptions say what goes into an archive. Without Times equal trees make equal bytes, whoever packs them, when and where.
type PackOptions struct {
	Format     Format
	KeepSetuid bool // keep the setuid, setgid and sticky bits
	Xattrs     bool // keep extended attributes of the user namespace; a zip has none
	Times      bool // keep modification times; otherwise all are 1980-01-01
	// Skip leaves a file or a folder with all in it out. nil leaves out none.
	Skip func(name string, dir bool) bool
}

// Pack writes the tree below root to w: folders, files, symbolic links as they are, and hard links within the tree (a zip holds two files).
// Sockets, pipes and devices are left out and reported. A file that changes meanwhile is an error.
func Pack(ctx context.Context, w io.Writer, root *os.Root, o PackOptions) (Report, error) {
	p := &packer{ctx: ctx, root: root, o: o, first: map[identity]string{}, buf: make([]byte, 64<<10)}
	a, end, err := newWriter(w, o.Format)
	if err != nil {
		return Report{}, err
	}
	p.out = a
	err = p.folder(".")
	if eerr := end(err != nil); err == nil {
		err = eerr
	}
	return p.report, err
}

// writer is one format. add writes a member whose body, for files alone, is read from r.
type writer interface {
	add(m member, r io.Reader) error
}

// newWriter begins an archive; end finishes it, or drops what is buffered when the work failed.
func newWriter(w io.Writer, f Format) (a writer, end func(failed bool) error, err error) {
	switch f {
	case Zip:
		z := zip.NewWriter(w)
		z.RegisterCompressor(zip.Deflate, func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) })
		return &zipWriter{z}, func(failed bool) error {
			if failed {
				return nil
			}
			return z.Close()
		}, nil
	case TarGzip:
		return compressed(gzip.NewWriter(w))
	case TarZstd:
		z, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return compressed(z)
	default:
		t := tar.NewWriter(w)
		return &tarWriter{t}, func(failed bool) error {
			if failed {
				return nil
			}
			return t.Close()
		}, nil
	}
}

func compressed(z io.WriteCloser) (writer, func(bool) error, error) {
	t := tar.NewWriter(z)
	return &tarWriter{t}, func(failed bool) error {
		var err error
		if !failed {
			err = t.Close()
		}
		return errors.Join(err, z.Close())
	}, nil
}

// identity is a file whatever its name.
type identity struct{ dev, ino uint64 }

type packer struct {
	ctx    context.Context //nolint:containedctx // it lives as long as the one call that made it
	root   *os.Root
	o      PackOptions
	out    writer
	report Report
	first  map[identity]string // the first name of a file that has several
	buf    []byte
}

// folder packs what is in a folder, by name. (fs.WalkDir refuses names that are no UTF-8.)
func (p *packer) folder(name string) error {
	f, err := p.root.Open(name)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		below := path.Join(name, e.Name())
		if err := p.visit(below, e.IsDir()); err != nil {
			return err
		}
	}
	return nil
}

func (p *packer) visit(name string, isDir bool) error {
	if err := p.ctx.Err(); err != nil {
		return err
	}
	if p.o.Skip != nil && p.o.Skip(name, isDir) {
		return nil
	}
	fi, err := p.root.Lstat(name)
	if err != nil {
		return err
	}
	if err := p.entry(name, fi); err != nil {
		return fmt.Errorf("pack %q: %w", name, err)
	}
	if fi.IsDir() {
		return p.folder(name)
	}
	return nil
}

func (p *packer) entry(name string, fi fs.FileInfo) error {
	m := member{name: name, mode: fi.Mode() & fs.ModePerm, time: time.Unix(315532800, 0)} // 1980-01-01: a zip knows none before
	if p.o.KeepSetuid {
		m.mode = fi.Mode() & (fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky)
	}
	if p.o.Times {
		m.time = fi.ModTime()
	}
	switch {
	case fi.IsDir():
		m.kind = dir
		p.report.Dirs++
	case fi.Mode().IsRegular():
		m.kind, m.size = file, fi.Size()
		p.report.Files++
		return p.file(m, fi)
	case fi.Mode()&fs.ModeSymlink != 0:
		m.kind, m.mode = symlink, 0o777
		p.report.Links++
		target, err := p.root.Readlink(name)
		if err != nil {
			return err
		}
		m.target = target
		return p.out.add(m, nil)
	default:
		p.report.refuse(name, "it is neither a file nor a folder nor a link")
		return nil
	}
	if p.o.Xattrs && p.o.Format != Zip {
		f, err := p.root.Open(name)
		if err != nil {
			return err
		}
		m.xattrs, err = xattrs(f)
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return p.out.add(m, nil)
}

func (p *packer) file(m member, fi fs.FileInfo) error {
	if id, ok := several(fi); ok && p.o.Format != Zip {
		if first, ok := p.first[id]; ok {
			m.kind, m.target, m.size = hardlink, first, 0
			return p.out.add(m, nil)
		}
		p.first[id] = m.name
	}
	f, err := p.root.OpenFile(m.name, os.O_RDONLY|nonblock, 0) // never waits, should a pipe stand there by now
	if err != nil {
		return err
	}
	defer f.Close()
	now, err := f.Stat()
	if err != nil {
		return err
	}
	if !os.SameFile(fi, now) || now.Size() != fi.Size() {
		return errChanged
	}
	if p.o.Xattrs && p.o.Format != Zip {
		if m.xattrs, err = xattrs(f); err != nil {
			return err
		}
	}
	body := &counter{r: &cancelled{p.ctx, io.LimitReader(f, m.size)}}
	err = p.out.add(m, body)
	if cerr := p.ctx.Err(); cerr != nil {
		return cerr
	}
	if body.ended && body.n < m.size {
		return errChanged
	}
	if err != nil {
		return err
	}
	if n, _ := f.Read(p.buf[:1]); n > 0 {
		return errChanged
	}
	p.report.Bytes += m.size
	return nil
}

var errChanged = errors.New("it changed while it was read")

// cancelled is a reader that ends with its context.
type cancelled struct {
	ctx context.Context //nolint:containedctx // it lives as long as one file is read
	r   io.Reader
}

func (c *cancelled) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

type tarWriter struct{ w *tar.Writer }

func (t *tarWriter) add(m member, r io.Reader) error {
	h := &tar.Header{Name: m.name, Mode: unixMode(m.mode), ModTime: m.time, Linkname: m.target, Size: m.size}
	switch m.kind {
	case dir:
		h.Typeflag = tar.TypeDir
		h.Name += "/"
	case symlink:
		h.Typeflag = tar.TypeSymlink
	case hardlink:
		h.Typeflag = tar.TypeLink
	default:
		h.Typeflag = tar.TypeReg
	}
	for _, x := range m.xattrs {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{}
		}
		h.PAXRecords["SCHILY.xattr."+x.name] = x.value
	}
	if err := t.w.WriteHeader(h); err != nil {
		return err
	}
	if r == nil {
		return nil
	}
	_, err := io.Copy(t.w, r)
	if err == nil {
		err = t.w.Flush()
	}
	return err
}

// unixMode is the nine bits and the three above them as Unix numbers them.
func unixMode(m fs.FileMode) int64 {
	bits := int64(m.Perm())
	for flag, bit := range map[fs.FileMode]int64{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&flag != 0 {
			bits |= bit
		}
	}
	return bits
}

type zipWriter struct{ w *zip.Writer }

func (z *zipWriter) add(m member, r io.Reader) error {
	h := &zip.FileHeader{Name: m.name, Method: zip.Deflate, Modified: m.time.UTC()}
	mode := m.mode
	switch m.kind {
	case dir:
		h.Name += "/"
		h.Method = zip.Store
		mode |= fs.ModeDir
	case symlink:
		h.Method = zip.Store
		mode |= fs.ModeSymlink
	default:
	}
	h.SetMode(mode)
	w, err := z.w.CreateHeader(h)
	if err != nil {
		return err
	}
	if m.kind == symlink {
		_, err = io.WriteString(w, m.target)
		return err
	}
	if r == nil {
		return nil
	}
	_, err = io.Copy(w, r)
	return err
}
