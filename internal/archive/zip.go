package archive

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
)

// UnpackZip unpacks a zip of a size into root.
func UnpackZip(ctx context.Context, r io.ReaderAt, size int64, root *os.Root, o Options) (Report, error) {
	u := newUnpacker(ctx, root, o, func() int64 { return size })
	z, err := zip.NewReader(r, size)
	if err != nil && !errors.Is(err, zip.ErrInsecurePath) { // names are checked here
		return Report{}, fmt.Errorf("read the archive: %w", err)
	}
	if len(z.File) > u.o.Entries {
		return Report{}, fmt.Errorf("%w: more than %d members", ErrLimit, u.o.Entries)
	}
	for _, f := range z.File {
		if err = u.zipped(f); err != nil {
			break
		}
	}
	return u.finish(err)
}

const (
	encrypted   = 0x1 // flag of a zip entry
	creatorUnix = 3
	creatorMac  = 19
)

func (u *unpacker) zipped(f *zip.File) error {
	m := member{name: f.Name, kind: file, mode: f.Mode(), time: f.Modified, size: -1}
	if c := f.CreatorVersion >> 8; c != creatorUnix && c != creatorMac {
		m.mode = 0o644 | m.mode&fs.ModeType // others know no modes
		if m.mode.IsDir() {
			m.mode |= 0o755
		}
	}
	why := ""
	switch {
	case strings.Contains(f.Name, `\`):
		why = "its name holds a backslash"
	case f.Flags&encrypted != 0:
		why = "it is encrypted"
	case m.mode.IsDir() || strings.HasSuffix(f.Name, "/"):
		m.kind = dir
	case m.mode&fs.ModeSymlink != 0:
		m.kind = symlink
		m.target, why = zipTarget(f)
	case m.mode&fs.ModeType != 0:
		m.kind = other
	}
	if why != "" {
		if u.count++; u.count > u.o.Entries {
			return fmt.Errorf("%w: more than %d members", ErrLimit, u.o.Entries)
		}
		u.report.refuse(f.Name, why)
		return nil
	}
	if m.kind == file {
		body, err := f.Open()
		if err != nil {
			u.report.refuse(f.Name, "it can't be read: "+err.Error())
			return nil
		}
		defer body.Close()
		m.body = body
	}
	return u.member(m)
}

// zipTarget reads where a link leads: it is the entry's content.
func zipTarget(f *zip.File) (target, why string) {
	r, err := f.Open()
	if err != nil {
		return "", "it can't be read: " + err.Error()
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, longestPath+1))
	if err != nil {
		return "", "it can't be read: " + err.Error()
	}
	return string(b), ""
}
