// Package storetest is the suite that every store.Store passes.
package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// Open answers an empty store. Calling again answers another handle of the same store where there can be one, else the same.
// Handles are closed by the test's cleanup.
type Open func(t *testing.T) (again func(t *testing.T) store.Store)

// Run runs the suite; each test has a store of its own.
func Run(t *testing.T, open Open) {
	tests := []struct {
		name string
		test func(*testing.T, func(*testing.T) store.Store)
	}{
		{"Empty", testEmpty},
		{"Documents", testDocuments},
		{"Versions", testVersions},
		{"Conds", testConds},
		{"AllOrNothing", testAllOrNothing},
		{"Delete", testDelete},
		{"Discard", testDiscard},
		{"Finished", testFinished},
		{"Objects", testObjects},
		{"ManyObjects", testManyObjects},
		{"ObjectReader", testObjectReader},
		{"BrokenReader", testBrokenReader},
		{"Dangling", testDangling},
		{"Require", testRequire},
		{"RequireRace", testRequireRace},
		{"Prune", testPrune},
		{"PruneRace", testPruneRace},
		{"InterruptedPut", testInterruptedPut},
		{"Racers", testRacers},
		{"ConcurrentPuts", testConcurrentPuts},
		{"Latest", testLatest},
		{"List", testList},
		{"Own", testOwn},
		{"Pages", testPages},
		{"PagesUnderWrites", testPagesUnderWrites},
		{"PruneOfRuns", testPruneOfRuns},
		{"Cancelled", testCancelled},
		{"Aliasing", testAliasing},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, open(t)) })
	}
}

// Bytes are n bytes that no other seed gives.
func Bytes(n int, seed uint64) []byte {
	b := make([]byte, n)
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	_, _ = rand.NewChaCha8(key).Read(b) // never fails
	return b
}

func begin(t *testing.T, s store.Store) store.Stage {
	t.Helper()
	g, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func put(t *testing.T, g store.Stage, b []byte) ref.Digest {
	t.Helper()
	d, n, err := g.Put(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if d != ref.DigestOf(b) || n != int64(len(b)) {
		t.Fatalf("Put answered %s, %d; want %s, %d", d, n, ref.DigestOf(b), len(b))
	}
	return d
}

func commit(t *testing.T, g store.Stage) {
	t.Helper()
	if err := g.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func doc(k store.Kind, id string, version int, objects ...ref.Digest) store.Doc {
	return store.Doc{Kind: k, ID: id, Version: version, Type: "file", Body: fmt.Appendf(nil, `{"id":%q,"version":%d}`, id, version), Objects: objects}
}

// write commits documents, each as the version after the one before.
func write(t *testing.T, s store.Store, ds ...store.Doc) {
	t.Helper()
	g := begin(t, s)
	for _, d := range ds {
		g.Doc(d, store.LatestIs(d.Version-1))
	}
	commit(t, g)
}

// Read is an object's bytes.
func Read(t *testing.T, s store.Store, d ref.Digest) []byte {
	t.Helper()
	r, size, err := s.Open(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(b)) != size {
		t.Fatalf("object %s: Open says %d bytes, and there are %d", d, size, len(b))
	}
	return b
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got error %v, want %v", got, want)
	}
}

func ids(p store.Page) []string {
	var out []string
	for _, d := range p.Docs {
		out = append(out, fmt.Sprintf("%s@%d", d.ID, d.Version))
	}
	return out
}

func wantIDs(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}

func testEmpty(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	ctx := t.Context()
	_, err := s.Get(ctx, store.Artifact, "a", 0)
	wantErr(t, err, store.ErrNotFound)
	if !strings.Contains(err.Error(), "artifact a") {
		t.Errorf("the error doesn't name the document: %v", err)
	}
	_, _, err = s.Open(ctx, ref.DigestOf(nil))
	wantErr(t, err, store.ErrNotFound)
	wantErr(t, s.Verify(ctx, ref.DigestOf(nil)), store.ErrNotFound)
	wantErr(t, s.Verify(ctx, "sha256:short"), store.ErrNotFound)
	if m, err := s.Latest(ctx, store.Artifact, []string{"a", "b"}); err != nil || len(m) != 0 {
		t.Errorf("Latest: %v, %v", m, err)
	}
	if p, err := s.List(ctx, store.Query{Kind: store.Artifact}); err != nil || len(p.Docs) != 0 || p.Next != "" {
		t.Errorf("List: %v, %v", p, err)
	}
	g := begin(t, s)
	commit(t, g) // nothing
}

func testDiscard(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	g := begin(t, s)
	a, b := put(t, g, Bytes(10, 1)), put(t, g, Bytes(store.MaxInline*2, 2))
	g.Doc(doc(store.Artifact, "x", 1, a, b), store.Absent)
	for range 2 {
		if err := g.Discard(); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Commit(t.Context()); err == nil {
		t.Error("Commit after Discard")
	}
	if _, _, err := g.Put(strings.NewReader("x")); err == nil {
		t.Error("Put after Discard")
	}
	for _, d := range []ref.Digest{a, b} {
		_, _, err := s.Open(t.Context(), d)
		wantErr(t, err, store.ErrNotFound)
	}
	_, err := s.Get(t.Context(), store.Artifact, "x", 0)
	wantErr(t, err, store.ErrNotFound)
}

func testFinished(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	g := begin(t, s)
	large := Bytes(store.MaxInline*2, 1)
	d := put(t, g, large)
	g.Doc(doc(store.Artifact, "x", 1, d), store.Absent)
	commit(t, g)
	if err := g.Discard(); err != nil {
		t.Errorf("Discard after Commit: %v", err)
	}
	if err := g.Commit(t.Context()); err == nil {
		t.Error("a second Commit")
	}
	if _, _, err := g.Put(bytes.NewReader(Bytes(store.MaxInline*2, 9))); err == nil {
		t.Error("Put after Commit")
	}
	if got := Read(t, s, d); !bytes.Equal(got, large) {
		t.Error("the object differs after Discard")
	}
}

func testRacers(t *testing.T, again func(*testing.T) store.Store) {
	const racers = 12
	handles := []store.Store{again(t), again(t), again(t)}
	large := Bytes(store.MaxInline+1, 3)
	var wg sync.WaitGroup
	var mu sync.Mutex
	writers := 0
	for i := range racers {
		s := handles[i%len(handles)]
		wg.Go(func() {
			for range 20 {
				d, err := s.Get(t.Context(), store.Artifact, "new", 0)
				if err == nil && d.Version == 1 {
					return // everything is unchanged
				}
				if !errors.Is(err, store.ErrNotFound) {
					t.Errorf("Get: %+v, %v", d, err)
					return
				}
				g, err := s.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				o, _, err := g.Put(bytes.NewReader(large))
				if err != nil {
					t.Error(err)
					return
				}
				g.Doc(doc(store.Artifact, "new", 1, o), store.Absent)
				g.Doc(doc(store.Ledger, "artifact new", 1), store.Absent)
				switch err := g.Commit(t.Context()); {
				case err == nil:
					mu.Lock()
					writers++
					mu.Unlock()
					return
				case !errors.Is(err, store.ErrConflict):
					t.Error(err)
					return
				}
			}
			t.Error("twenty conflicts in a row")
		})
	}
	wg.Wait()
	if writers != 1 {
		t.Errorf("%d stages wrote, want 1", writers)
	}
	if err := handles[1].Verify(t.Context(), ref.DigestOf(large)); err != nil {
		t.Error(err)
	}
	// Each of many new versions is written by one.
	for i := range racers {
		s := handles[i%len(handles)]
		wg.Go(func() {
			for {
				d, err := s.Get(t.Context(), store.Artifact, "new", 0)
				if err != nil {
					t.Error(err)
					return
				}
				g, err := s.Begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				g.Doc(doc(store.Artifact, "new", d.Version+1), store.LatestIs(d.Version))
				if err := g.Commit(t.Context()); err == nil {
					return
				} else if !errors.Is(err, store.ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if d, err := handles[0].Get(t.Context(), store.Artifact, "new", 0); err != nil || d.Version != 1+racers {
		t.Errorf("%+v, %v", d, err)
	}
}

func testCancelled(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	ctx, cancel := context.WithCancel(t.Context())
	g, err := s.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	d := put(t, g, Bytes(store.MaxInline*3, 1))
	cancel()
	_, _, err = g.Put(bytes.NewReader(Bytes(store.MaxInline*3, 2)))
	wantErr(t, err, context.Canceled)
	g.Doc(doc(store.Artifact, "x", 1, d), store.Absent)
	wantErr(t, g.Commit(ctx), context.Canceled)
	_, err = s.Get(t.Context(), store.Artifact, "x", 0)
	wantErr(t, err, store.ErrNotFound)
	_, err = s.Begin(ctx)
	wantErr(t, err, context.Canceled)
	_, err = s.Get(ctx, store.Artifact, "x", 0)
	wantErr(t, err, context.Canceled)
	_, err = s.List(ctx, store.Query{Kind: store.Artifact})
	wantErr(t, err, context.Canceled)
}

func testAliasing(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	d := doc(store.Artifact, "x", 1)
	g := begin(t, s)
	d.Objects = []ref.Digest{put(t, g, []byte("one"))}
	g.Doc(d, store.Absent)
	clear(d.Body)
	d.Objects[0] = ""
	commit(t, g)
	for range 2 {
		got, err := s.Get(t.Context(), store.Artifact, "x", 0)
		if err != nil || string(got.Body) != `{"id":"x","version":1}` || got.Objects[0] != ref.DigestOf([]byte("one")) {
			t.Fatalf("%+v, %v", got, err)
		}
		clear(got.Body)
		got.Objects[0] = ""
	}
}
