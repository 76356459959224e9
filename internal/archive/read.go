package archive

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// UnpackFile unpacks an archive of any format, told by its first bytes, into root.
func UnpackFile(ctx context.Context, f *os.File, root *os.Root, o Options) (Report, error) {
	head := make([]byte, 4)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return Report{}, fmt.Errorf("read the archive: %w", err)
	}
	if sniff(head[:n]) == Zip {
		fi, err := f.Stat()
		if err != nil {
			return Report{}, err
		}
		return UnpackZip(ctx, f, fi.Size(), root, o)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return Report{}, err
	}
	return Unpack(ctx, f, root, o)
}

// Unpack unpacks a tar, tar.gz or tar.zst into root. A zip can't be read from a stream: see UnpackFile and UnpackZip.
func Unpack(ctx context.Context, r io.Reader, root *os.Root, o Options) (Report, error) {
	packed := &counter{r: r}
	u := newUnpacker(ctx, root, o, func() int64 { return packed.n })
	err := u.stream(bufio.NewReader(packed))
	return u.finish(err)
}

// stream reads the compressed form.
func (u *unpacker) stream(r *bufio.Reader) error {
	head, err := r.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the archive: %w", err)
	}
	switch sniff(head) {
	case TarGzip:
		z, err := gzip.NewReader(r)
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		return u.tar(z)
	case TarZstd:
		const window = 128 << 20 // what `zstd --long` and image builders use
		z, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(window), zstd.WithDecoderMaxMemory(window))
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		defer z.Close()
		return u.tar(z)
	case Zip:
		return errors.New("a zip archive can't be unpacked from a stream: save it as a file first")
	default:
		return u.tar(r)
	}
}

func (u *unpacker) tar(r io.Reader) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return drain(r)
		}
		if errors.Is(err, tar.ErrInsecurePath) {
			err = nil // names are checked here
		}
		if err != nil {
			return fmt.Errorf("read the archive: %w", err)
		}
		m := member{name: h.Name, mode: fs.FileMode(h.Mode) & fs.ModePerm, target: h.Linkname, time: h.ModTime, body: t, size: h.Size}
		m.mode |= special(h.Mode)
		m.uid, m.gid = h.Uid, h.Gid
		switch h.Typeflag {
		case tar.TypeReg, '\x00', tar.TypeGNUSparse: // nothing else is a file, whatever its size says
			m.kind = file
		case tar.TypeDir:
			m.kind = dir
		case tar.TypeSymlink:
			m.kind = symlink
		case tar.TypeLink:
			m.kind = hardlink
		case tar.TypeFifo:
			m.kind = fifo
		case tar.TypeChar, tar.TypeBlock:
			m.kind = device
		case tar.TypeXGlobalHeader:
			continue
		default:
			m.kind = other
		}
		for k, v := range h.PAXRecords {
			if name, ok := strings.CutPrefix(k, "SCHILY.xattr."); ok && u.o.keepsXattr(name) {
				m.xattrs = append(m.xattrs, xattr{name, v})
			}
		}
		if err := u.member(m); err != nil {
			return err
		}
	}
}

// drain reads the padding behind a tar, so that a checksum at the end of a compressed one is looked at.
func drain(r io.Reader) error {
	const padding = 1 << 20
	if _, err := io.CopyN(io.Discard, r, padding); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the end of the archive: %w", err)
	}
	return nil
}

// special are the bits of a Unix mode that Go keeps elsewhere.
func special(mode int64) fs.FileMode {
	var m fs.FileMode
	for bit, flag := range map[int64]fs.FileMode{0o4000: fs.ModeSetuid, 0o2000: fs.ModeSetgid, 0o1000: fs.ModeSticky} {
		if mode&bit != 0 {
			m |= flag
		}
	}
	return m
}
