package guest

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"
)

// PutFile is one file for Put; a symbolic link where Link says where it leads, and a folder where Open is nil without it.
type PutFile struct {
	Path string // relative, "/"-separated
	Mode fs.FileMode
	Size int64
	Open func() (io.ReadCloser, error)
	Link string
}

// PutBytes is a file for Put that is in memory.
func PutBytes(path string, mode fs.FileMode, b []byte) PutFile {
	return PutFile{Path: path, Mode: mode, Size: int64(len(b)), Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
}

// SourceError is the error of Put when what it was to send could not be read: the box is not to blame.
type SourceError struct {
	Path string
	Err  error
}

func (e *SourceError) Error() string { return fmt.Sprintf("read %s: %v", e.Path, e.Err) }
func (e *SourceError) Unwrap() error { return e.Err }

// Put writes files below dir, which is made when absent, as one stream; nothing is held in memory. Folders that are not there get mode 0755.
// After an error some of the files may have been written. Without files it makes dir alone.
func Put(ctx context.Context, b Box, dir string, files []PutFile) error {
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := tarFiles(w, files)
		w.CloseWithError(err)
		done <- err
	}()
	err := b.Extract(ctx, dir, r)
	r.CloseWithError(io.ErrClosedPipe) // a box that stopped reading ends the writer
	var src *SourceError
	if sent := <-done; errors.As(sent, &src) {
		return src
	}
	return err
}

func tarFiles(w io.Writer, files []PutFile) error {
	t := tar.NewWriter(w)
	now := time.Now()
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: int64(f.Mode.Perm()), Size: f.Size, ModTime: now, Format: tar.FormatPAX}
		switch {
		case f.Link != "":
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, f.Link, 0
		case f.Open == nil:
			h.Typeflag, h.Name, h.Size = tar.TypeDir, f.Path+"/", 0
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if f.Link != "" || f.Open == nil {
			continue
		}
		if err := copyFile(t, f); err != nil {
			return err
		}
	}
	return t.Close()
}

func copyFile(t *tar.Writer, f PutFile) error {
	r, err := f.Open()
	if err != nil {
		return &SourceError{f.Path, err}
	}
	defer r.Close()
	source := &sourceReader{r: r}
	n, err := io.Copy(t, source)
	switch {
	case source.err != nil:
		return &SourceError{f.Path, source.err}
	case err == nil && n != f.Size:
		return &SourceError{f.Path, fmt.Errorf("it has %d bytes where %d were expected", n, f.Size)}
	case errors.Is(err, tar.ErrWriteTooLong):
		return &SourceError{f.Path, fmt.Errorf("it has more than the %d bytes that were expected", f.Size)}
	}
	return err
}

// sourceReader remembers that a copy failed at its reading end.
type sourceReader struct {
	r   io.Reader
	err error
}

func (s *sourceReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
