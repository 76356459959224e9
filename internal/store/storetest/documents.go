package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

func testDocuments(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	d := store.Doc{
		Kind: store.Artifact, ID: "@local/~/mein bündel/a, b & c", Version: 1, Type: "file", Owner: "@local/~/mein bündel",
		Body: []byte("{\"text\":\"zwei\\nZeilen \U0001F600  \",\"n\":1e400}"), Objects: nil,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 678901999, time.FixedZone("", 3600)),
	}
	o1, o2 := Bytes(10, 1), Bytes(20, 2)
	g := begin(t, s)
	d.Objects = []ref.Digest{put(t, g, o2), put(t, g, o1)}
	g.Doc(d, store.Absent)
	e := doc(store.Ledger, "artifact "+d.ID, 1)
	g.Doc(e, store.Absent)
	before := time.Now().UTC().Truncate(time.Microsecond)
	commit(t, g)

	got, err := again(t).Get(t.Context(), d.Kind, d.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if want := d.Created.UTC().Truncate(time.Microsecond); !got.Created.Equal(want) || got.Created.Location() != time.UTC {
		t.Errorf("Created is %v, want %v", got.Created, want)
	}
	if got.Kind != d.Kind || got.ID != d.ID || got.Version != 1 || got.Type != d.Type || got.Owner != d.Owner ||
		!bytes.Equal(got.Body, d.Body) || !slices.Equal(got.Objects, d.Objects) {
		t.Errorf("got %+v, want %+v", got, d)
	}
	got, err = s.Get(t.Context(), store.Ledger, e.ID, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got.Created.Before(before) || got.Created.After(time.Now()) || len(got.Objects) > 0 {
		t.Errorf("got %+v", got)
	}
	_, err = s.Get(t.Context(), store.Env, d.ID, 0) // ids are unique within a kind
	wantErr(t, err, store.ErrNotFound)
}

func testVersions(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	for v := 1; v <= 3; v++ {
		write(t, s, doc(store.Task, "t", v))
	}
	for v, want := range map[int]int{0: 3, 1: 1, 2: 2, 3: 3} {
		got, err := s.Get(t.Context(), store.Task, "t", v)
		if err != nil || got.Version != want || string(got.Body) != fmt.Sprintf(`{"id":"t","version":%d}`, want) {
			t.Errorf("version %d: got %+v, %v", v, got, err)
		}
	}
	_, err := s.Get(t.Context(), store.Task, "t", 4)
	wantErr(t, err, store.ErrNotFound)
	if !strings.Contains(err.Error(), "version 4") {
		t.Errorf("the error doesn't name the version: %v", err)
	}
	// Two versions in one stage, and a gap that only Any allows.
	g := begin(t, s)
	g.Doc(doc(store.Task, "t", 4), store.LatestIs(3))
	g.Doc(doc(store.Task, "t", 5), store.LatestIs(4))
	g.Doc(doc(store.Task, "t", 9), store.Cond{Any: true})
	commit(t, g)
	p, err := s.List(t.Context(), store.Query{Kind: store.Task, AllVersions: true})
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, ids(p), "t@9", "t@5", "t@4", "t@3", "t@2", "t@1")
	p, err = s.List(t.Context(), store.Query{Kind: store.Task})
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, ids(p), "t@9")
}

func testConds(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	write(t, s, doc(store.Env, "e", 1), doc(store.Env, "e", 2))
	tests := []struct {
		name     string
		version  int
		cond     store.Cond
		conflict bool
		ok       bool
	}{
		{"absent, but there", 1, store.Absent, true, false},
		{"older than the latest", 2, store.LatestIs(1), true, false},
		{"newer than the latest", 4, store.LatestIs(3), true, false},
		{"a gap", 4, store.LatestIs(2), false, false},
		{"the same version", 2, store.LatestIs(2), false, false},
		{"version 0", 0, store.Cond{Any: true}, false, false},
		{"any, taken", 2, store.Cond{Any: true}, true, false},
		{"next", 3, store.LatestIs(2), false, true},
		{"any", 7, store.Cond{Any: true}, false, true},
	}
	for _, tt := range tests {
		g := begin(t, s)
		g.Doc(doc(store.Env, "other "+tt.name, 1), store.Absent)
		g.Doc(doc(store.Env, "e", tt.version), tt.cond)
		err := g.Commit(t.Context())
		if (err == nil) != tt.ok || errors.Is(err, store.ErrConflict) != tt.conflict {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err != nil && !strings.Contains(err.Error(), "env e") {
			t.Errorf("%s: the error doesn't name the document: %v", tt.name, err)
		}
		if _, err := s.Get(t.Context(), store.Env, "other "+tt.name, 0); (err == nil) != tt.ok {
			t.Errorf("%s: the other document of the stage: %v", tt.name, err)
		}
	}
	for _, d := range []store.Doc{{Kind: store.Env, Version: 1}, {ID: "x", Version: 1}} {
		g := begin(t, s)
		g.Doc(d, store.Absent)
		if err := g.Commit(t.Context()); err == nil || errors.Is(err, store.ErrConflict) {
			t.Errorf("%+v: %v", d, err)
		}
	}
}

func testAllOrNothing(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	write(t, s, doc(store.Artifact, "taken", 1))
	small, large := Bytes(100, 1), Bytes(store.MaxInline+100, 2)
	g := begin(t, s)
	a, b := put(t, g, small), put(t, g, large)
	g.Doc(doc(store.Artifact, "fresh", 1, a, b), store.Absent)
	g.Delete(store.Artifact, "taken", 1)
	g.Doc(doc(store.Artifact, "taken", 2), store.LatestIs(1)) // deleted by now
	wantErr(t, g.Commit(t.Context()), store.ErrConflict)
	_, err := s.Get(t.Context(), store.Artifact, "fresh", 0)
	wantErr(t, err, store.ErrNotFound)
	if _, err := s.Get(t.Context(), store.Artifact, "taken", 1); err != nil {
		t.Errorf("the deletion of a failed stage: %v", err)
	}
	for _, d := range []ref.Digest{a, b} {
		_, _, err := s.Open(t.Context(), d)
		wantErr(t, err, store.ErrNotFound)
	}
	// The same again, planned anew.
	g = begin(t, s)
	g.Doc(doc(store.Artifact, "fresh", 1, put(t, g, small), put(t, g, large)), store.Absent)
	commit(t, g)
	if got := Read(t, s, b); !bytes.Equal(got, large) {
		t.Error("the large object differs")
	}
}

func testDelete(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	write(t, s, doc(store.Blob, "a", 1), doc(store.Blob, "a", 2), doc(store.Blob, "a", 3), doc(store.Blob, "b", 1))
	del := func(id string, version int) {
		t.Helper()
		g := begin(t, s)
		g.Delete(store.Blob, id, version)
		commit(t, g)
	}
	list := func(all bool) []string {
		t.Helper()
		p, err := s.List(t.Context(), store.Query{Kind: store.Blob, AllVersions: all})
		if err != nil {
			t.Fatal(err)
		}
		return ids(p)
	}
	del("a", 2)
	wantIDs(t, list(true), "b@1", "a@3", "a@1")
	del("a", 3)
	wantIDs(t, list(false), "b@1", "a@1")
	if d, err := s.Get(t.Context(), store.Blob, "a", 0); err != nil || d.Version != 1 {
		t.Errorf("the latest after a deletion: %+v, %v", d, err)
	}
	write(t, s, doc(store.Blob, "a", 2))
	wantIDs(t, list(false), "a@2", "b@1")
	del("a", 0)
	wantIDs(t, list(true), "b@1")
	del("a", 0) // what isn't there
	del("nothing", 5)
	write(t, s, doc(store.Blob, "a", 1))
	g := begin(t, s)
	g.Delete(store.Blob, "a", 1)
	g.Doc(doc(store.Blob, "a", 1), store.Absent) // in the order of the calls
	commit(t, g)
	wantIDs(t, list(true), "a@1", "b@1")
}
