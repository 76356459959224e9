package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/iotest"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

var sizes = []int{0, 1, 4095, store.MaxInline - 1, store.MaxInline, store.MaxInline + 1, 1 << 20, 3<<20 + 7, 9<<20 + 1}

func testObjects(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	dir := t.TempDir()
	for i, n := range sizes {
		b := Bytes(n, uint64(i))
		path := filepath.Join(dir, fmt.Sprint(n))
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		readers := map[string]func() io.Reader{
			"memory":   func() io.Reader { return bytes.NewReader(b) },
			"halves":   func() io.Reader { return iotest.HalfReader(bytes.NewReader(b)) },
			"data+EOF": func() io.Reader { return iotest.DataErrReader(bytes.NewReader(b)) },
			"file":     func() io.Reader { return opened(t, path, 0) },
		}
		for name, r := range readers {
			g := begin(t, s)
			d, size, err := g.Put(r())
			if err != nil {
				t.Fatalf("%d bytes from %s: %v", n, name, err)
			}
			if d != ref.DigestOf(b) || size != int64(n) {
				t.Fatalf("%d bytes from %s: %s, %d", n, name, d, size)
			}
			commit(t, g)
			if got := Read(t, again(t), d); !bytes.Equal(got, b) {
				t.Fatalf("%d bytes from %s differ", n, name)
			}
			if err := s.Verify(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		if n > 10 { // a file that is read from where it stands
			g := begin(t, s)
			d, size, err := g.Put(opened(t, path, 7))
			if err != nil || d != ref.DigestOf(b[7:]) || size != int64(n-7) {
				t.Fatalf("%d bytes from 7: %s, %d, %v", n, d, size, err)
			}
			commit(t, g)
			if got := Read(t, s, d); !bytes.Equal(got, b[7:]) {
				t.Fatalf("%d bytes from 7 differ", n)
			}
		}
	}
}

func opened(t *testing.T, path string, at int64) *os.File {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Seek(at, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	return f
}

func testManyObjects(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	g := begin(t, s)
	var want [][]byte
	var ds []ref.Digest
	for i := range 600 { // more than a stage holds in memory
		b := Bytes(store.MaxInline-i, uint64(i))
		want, ds = append(want, b), append(ds, put(t, g, b))
	}
	put(t, g, want[3]) // twice
	g.Doc(doc(store.Artifact, "many", 1, ds...), store.Absent)
	commit(t, g)
	for i, d := range ds {
		if got := Read(t, s, d); !bytes.Equal(got, want[i]) {
			t.Fatalf("object %d differs", i)
		}
	}
	if d, err := s.Get(t.Context(), store.Artifact, "many", 1); err != nil || len(d.Objects) != len(ds) || d.Objects[599] != ds[599] {
		t.Errorf("%d objects, %v", len(d.Objects), err)
	}
}

func testObjectReader(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	for _, n := range []int{1000, store.MaxInline + 1000} {
		b := Bytes(n, 5)
		g := begin(t, s)
		d := put(t, g, b)
		commit(t, g)
		r, _, err := s.Open(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Seek(-10, io.SeekEnd); err != nil {
			t.Fatal(err)
		}
		tail, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(tail, b[n-10:]) {
			t.Errorf("the tail of %d bytes differs: %v", n, err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A reader that fails stores nothing, and its error comes out.
func testBrokenReader(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	broken := errors.New("the cable was pulled")
	for _, n := range []int{0, 10, store.MaxInline, store.MaxInline + 1, 3 << 20} {
		g := begin(t, s)
		_, _, err := g.Put(io.MultiReader(bytes.NewReader(Bytes(n, 1)), iotest.ErrReader(broken)))
		wantErr(t, err, broken)
		d := put(t, g, []byte("fine"))
		commit(t, g)
		Read(t, s, d)
		if n > 0 {
			_, _, err = s.Open(t.Context(), ref.DigestOf(Bytes(n, 1)))
			wantErr(t, err, store.ErrNotFound)
		}
	}
}

func testDangling(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	for _, missing := range []ref.Digest{ref.DigestOf([]byte("never stored")), "no digest"} {
		g := begin(t, s)
		d := put(t, g, []byte("stored"))
		g.Doc(doc(store.Artifact, "a", 1, d, missing), store.Absent)
		err := g.Commit(t.Context())
		wantErr(t, err, store.ErrNotFound)
		_, err = s.Get(t.Context(), store.Artifact, "a", 0)
		wantErr(t, err, store.ErrNotFound)
	}
	g := begin(t, s)
	d := put(t, g, []byte("stored"))
	commit(t, g)
	g = begin(t, s) // an object of an earlier stage
	g.Doc(doc(store.Artifact, "a", 1, d), store.Absent)
	commit(t, g)
}

// A put that never comes to its end is in nobody's way.
func testInterruptedPut(t *testing.T, again func(*testing.T) store.Store) {
	b := Bytes(2<<20, 1)
	stuck := begin(t, again(t))
	put(t, stuck, b)
	stuck.Doc(doc(store.Artifact, "a", 1, ref.DigestOf(b)), store.Absent)
	half, w := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() { _, _, _ = stuck.Put(half) })
	if _, err := w.Write(b[:1<<20]); err != nil {
		t.Fatal(err)
	}

	s := again(t)
	g := begin(t, s)
	g.Doc(doc(store.Artifact, "a", 1, put(t, g, b)), store.Absent)
	commit(t, g)
	if got := Read(t, s, ref.DigestOf(b)); !bytes.Equal(got, b) {
		t.Error("the object differs")
	}
	w.CloseWithError(io.ErrClosedPipe)
	wg.Wait()
	wantErr(t, stuck.Commit(t.Context()), store.ErrConflict)
	if got := Read(t, s, ref.DigestOf(b)); !bytes.Equal(got, b) {
		t.Error("the object differs after the conflict of another stage that had put it")
	}
}

func testConcurrentPuts(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	g := begin(t, s)
	var wg sync.WaitGroup
	const n = 24
	for i := range n {
		wg.Go(func() {
			b := Bytes(1+i*20_000, uint64(i/2)) // pairs share a prefix, not a digest
			d, _, err := g.Put(bytes.NewReader(b))
			if err != nil {
				t.Error(err)
				return
			}
			g.Doc(doc(store.Artifact, fmt.Sprint(i), 1, d), store.Absent)
			if _, _, err := g.Put(bytes.NewReader(Bytes(300_000, 77))); err != nil { // the same in all
				t.Error(err)
			}
		})
	}
	wg.Wait()
	commit(t, g)
	for i := range n {
		d, err := s.Get(t.Context(), store.Artifact, fmt.Sprint(i), 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := Read(t, s, d.Objects[0]); !bytes.Equal(got, Bytes(1+i*20_000, uint64(i/2))) {
			t.Errorf("object %d differs", i)
		}
	}
	if err := s.Verify(t.Context(), ref.DigestOf(Bytes(300_000, 77))); err != nil {
		t.Error(err)
	}
}
