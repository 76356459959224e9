package storetest

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
)

// testRequire: what a stage requires is asked at its commit, sees what is there then and nothing of the stage, and its error ends the commit.
func testRequire(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	write(t, s, doc(store.Artifact, "a", 1))
	g := begin(t, s)
	g.Doc(doc(store.Artifact, "b", 1), store.Absent)
	calls := 0
	g.Require(func(ctx context.Context, d store.Docs) error {
		calls++
		if _, err := d.Get(ctx, store.Artifact, "b", 0); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("the stage's own document is seen: %v", err)
		}
		p, err := d.List(ctx, store.Query{Kind: store.Artifact, AllVersions: true})
		if err != nil {
			t.Error(err)
		}
		wantIDs(t, ids(p), "a@2", "a@1")
		m, err := d.Latest(ctx, store.Artifact, []string{"a", "b"})
		if err != nil || len(m) != 1 || m["a"].Version != 2 {
			t.Errorf("Latest: %v, %v", m, err)
		}
		return nil
	})
	write(t, again(t), doc(store.Artifact, "a", 2))
	commit(t, g)
	if calls != 1 {
		t.Errorf("asked %d times", calls)
	}

	own := errors.New("not now")
	g = begin(t, s)
	g.Doc(doc(store.Artifact, "c", 1), store.Absent)
	g.Delete(store.Artifact, "a", 0)
	g.Require(func(context.Context, store.Docs) error { return own })
	wantErr(t, g.Commit(t.Context()), own)
	p, err := s.List(t.Context(), store.Query{Kind: store.Artifact})
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, ids(p), "b@1", "a@2")
}

// testRequireRace: of writers that each require that nobody has written before them, one gets through.
func testRequireRace(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	const writers = 8
	var wg sync.WaitGroup
	errs := make([]error, writers)
	for i := range writers {
		wg.Go(func() {
			g, err := s.Begin(t.Context())
			if err != nil {
				errs[i] = err
				return
			}
			g.Doc(doc(store.Artifact, string(rune('a'+i)), 1), store.Absent)
			g.Require(func(ctx context.Context, d store.Docs) error {
				p, err := d.List(ctx, store.Query{Kind: store.Artifact})
				if err == nil && len(p.Docs) > 0 {
					err = store.ErrConflict
				}
				return err
			})
			errs[i] = g.Commit(t.Context())
		})
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		if err == nil {
			won++
		} else {
			wantErr(t, err, store.ErrConflict)
		}
	}
	if won != 1 {
		t.Errorf("%d got through", won)
	}
}

func pruner(t *testing.T, s store.Store) store.Pruner {
	t.Helper()
	p, ok := s.(store.Pruner)
	if !ok {
		t.Skip("the store can't prune")
	}
	return p
}

func testPrune(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	p := pruner(t, s)
	if got, err := p.Prune(t.Context(), nil, false); err != nil || got != (store.Pruned{}) {
		t.Errorf("of nothing: %+v, %v", got, err)
	}
	small, large, kept, shared := Bytes(100, 1), Bytes(store.MaxInline+1, 2), Bytes(store.MaxInline+2, 3), Bytes(50, 4)
	g := begin(t, s)
	d := doc(store.Artifact, "gone", 1, put(t, g, small), put(t, g, large), put(t, g, shared))
	g.Doc(d, store.Absent)
	g.Doc(doc(store.Task, "stays", 1, put(t, g, kept), d.Objects[2]), store.Absent)
	commit(t, g)
	if got, err := p.Prune(t.Context(), nil, false); err != nil || got != (store.Pruned{}) {
		t.Errorf("of what is named: %+v, %v", got, err)
	}
	g = begin(t, s)
	g.Delete(store.Artifact, "gone", 0)
	commit(t, g)
	want := store.Pruned{Objects: 2, Bytes: int64(len(small) + len(large))}
	if got, err := p.Prune(t.Context(), nil, true); err != nil || got != want {
		t.Errorf("dry: %+v, %v", got, err)
	}
	if got, err := p.Prune(t.Context(), []ref.Digest{ref.DigestOf(kept), ref.DigestOf(nil)}, false); err != nil || got != (store.Pruned{}) {
		t.Errorf("among others: %+v, %v", got, err)
	}
	if got, err := p.Prune(t.Context(), []ref.Digest{}, false); err != nil || got != (store.Pruned{}) {
		t.Errorf("among none: %+v, %v", got, err)
	}
	Read(t, s, ref.DigestOf(small))
	one := store.Pruned{Objects: 1, Bytes: int64(len(large))}
	if got, err := p.Prune(t.Context(), d.Objects[1:], false); err != nil || got != one {
		t.Errorf("among some: %+v, %v", got, err)
	}
	if got, err := p.Prune(t.Context(), nil, false); err != nil || got != (store.Pruned{Objects: 1, Bytes: int64(len(small))}) {
		t.Errorf("the rest: %+v, %v", got, err)
	}
	for _, b := range [][]byte{small, large} {
		_, _, err := again(t).Open(t.Context(), ref.DigestOf(b))
		wantErr(t, err, store.ErrNotFound)
	}
	Read(t, s, ref.DigestOf(kept))
	Read(t, s, ref.DigestOf(shared))
	g = begin(t, s) // what was pruned can be stored again
	g.Doc(doc(store.Artifact, "gone", 1, put(t, g, small), put(t, g, large)), store.Absent)
	commit(t, g)
	if !bytes.Equal(Read(t, s, ref.DigestOf(large)), large) {
		t.Error("other bytes")
	}
}

// testPruneRace: a stage's bytes are there when it commits, whatever is pruned meanwhile.
func testPruneRace(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	p := pruner(t, s)
	const rounds = 40
	small, large := Bytes(100, 1), Bytes(store.MaxInline+1, 2)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := p.Prune(t.Context(), nil, false); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := range rounds {
		for {
			g := begin(t, s)
			g.Doc(doc(store.Artifact, "a", 1, put(t, g, small), put(t, g, large)), store.Absent)
			err := g.Commit(t.Context())
			if err == nil {
				break
			}
			wantErr(t, err, store.ErrConflict)
		}
		for _, b := range [][]byte{small, large} {
			if err := s.Verify(t.Context(), ref.DigestOf(b)); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
		}
		g := begin(t, s)
		g.Delete(store.Artifact, "a", 0)
		commit(t, g)
	}
	close(stop)
	wg.Wait()
}

// testPruneOfRuns: what an event of a run names stays.
func testPruneOfRuns(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	runs, ok := s.(interface{ Runs() runlog.Log })
	if !ok {
		t.Skip("needs a store that holds runs")
	}
	g := begin(t, s)
	kept, large, gone := put(t, g, []byte("kept")), put(t, g, Bytes(store.MaxInline+1, 1)), put(t, g, []byte("gone"))
	commit(t, g)
	if err := runs.Runs().Create(t.Context(), runlog.Meta{ID: "r"}); err != nil {
		t.Fatal(err)
	}
	o, err := runs.Runs().Claim(t.Context(), "r")
	if err != nil {
		t.Fatal(err)
	}
	e := runlog.Event{Kind: runlog.StepLog, Data: []byte(`{"level":"info","object":{"digest":"` + string(kept) + `"},"attrs":{"also":"` + string(large) + `"}}`)}
	if err := errors.Join(o.Append(t.Context(), e), o.Release(t.Context())); err != nil {
		t.Fatal(err)
	}
	p, err := s.(store.Pruner).Prune(t.Context(), nil, false)
	if err != nil || p.Objects != 1 || p.Bytes != 4 {
		t.Errorf("pruned %+v, %v; want one object", p, err)
	}
	wantErr(t, s.Verify(t.Context(), gone), store.ErrNotFound)
	for _, d := range []ref.Digest{kept, large} {
		if err := s.Verify(t.Context(), d); err != nil {
			t.Error(err)
		}
	}
}
