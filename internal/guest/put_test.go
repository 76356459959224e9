package guest

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// tarBox keeps what Extract got.
type tarBox struct {
	Box
	stopAfter int // files after which it stops reading; 0: never
	got       []string
}

func (b *tarBox) Extract(_ context.Context, dir string, r io.Reader) error {
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("extract: %w", err)
		}
		body, err := io.ReadAll(t)
		if err != nil {
			return fmt.Errorf("extract: %w", err)
		}
		if h.Typeflag == tar.TypeSymlink {
			body = []byte("-> " + h.Linkname)
		}
		b.got = append(b.got, fmt.Sprintf("%s/%s %o %s", dir, h.Name, h.Mode, body))
		if len(b.got) == b.stopAfter {
			return errors.New("no space left")
		}
	}
}

func source(s string, size int64, err error) PutFile {
	return PutFile{Path: "bad", Mode: 0o644, Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.MultiReader(strings.NewReader(s), failing{err})), nil
	}}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}

func TestPutLinksAndFolders(t *testing.T) {
	b := &tarBox{}
	err := Put(t.Context(), b, "/d", []PutFile{{Path: "l", Link: "a/b"}, {Path: "empty", Mode: 0o755}, PutBytes("a/b", 0o644, []byte("hi"))})
	if got := strings.Join(b.got, "|"); err != nil || got != "/d/l 0 -> a/b|/d/empty/ 755 |/d/a/b 644 hi" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestPut(t *testing.T) {
	long := strings.Repeat("x", 300)
	b := &tarBox{}
	err := Put(t.Context(), b, "/d", []PutFile{PutBytes("a b/ü", 0o755, []byte("hi")), PutBytes(long, 0o600, nil)})
	if got := strings.Join(b.got, "|"); err != nil || got != "/d/a b/ü 755 hi|/d/"+long+" 600 " {
		t.Errorf("%q, %v", got, err)
	}
	if err := Put(t.Context(), &tarBox{}, "/d", nil); err != nil {
		t.Error("nothing:", err)
	}
}

func TestPutTellsWhoseFaultItIs(t *testing.T) {
	corrupt := errors.New("corrupt")
	for name, f := range map[string]PutFile{
		"read fails": source("abc", 3, corrupt),
		"short":      source("ab", 3, nil),
		"long":       source("abcd", 3, nil),
		"no open":    {Path: "bad", Open: func() (io.ReadCloser, error) { return nil, corrupt }},
	} {
		err := Put(t.Context(), &tarBox{}, "/d", []PutFile{PutBytes("ok", 0o644, []byte("1")), f})
		if src, ok := errors.AsType[*SourceError](err); !ok || src.Path != "bad" {
			t.Errorf("%s: %v", name, err)
		}
	}
	big := PutBytes("big", 0o644, make([]byte, 1<<20))
	err := Put(t.Context(), &tarBox{stopAfter: 1}, "/d", []PutFile{PutBytes("ok", 0o644, nil), big, big})
	if _, ok := errors.AsType[*SourceError](err); ok || err == nil || err.Error() != "no space left" {
		t.Errorf("box fails: %v", err)
	}
}
