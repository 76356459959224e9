package storetest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/store"
)

func testLatest(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	var ds []store.Doc
	var names []string
	for i := range 300 {
		id := fmt.Sprintf("id %d", i)
		names = append(names, id)
		for v := range 1 + i%3 {
			ds = append(ds, doc(store.Agent, id, v+1))
		}
	}
	write(t, s, ds...)
	for _, n := range []int{0, 1, 2, 15, 17, 128, 145, 300} {
		got, err := s.Latest(t.Context(), store.Agent, append(slices.Clone(names[:n]), "missing", "Missing"))
		if err != nil || len(got) != n {
			t.Fatalf("%d ids: %d documents, %v", n, len(got), err)
		}
		for i, id := range names[:n] {
			if d := got[id]; d.ID != id || d.Version != 1+i%3 || string(d.Body) != fmt.Sprintf(`{"id":%q,"version":%d}`, id, d.Version) {
				t.Errorf("%s: %+v", id, d)
			}
		}
	}
	got, err := s.Latest(t.Context(), store.Agent, []string{"id 2", "id 2"})
	if err != nil || len(got) != 1 || got["id 2"].Version != 3 {
		t.Errorf("one id twice: %v, %v", got, err)
	}
}

func testList(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	g := begin(t, s)
	for i, d := range []store.Doc{
		{Kind: store.Artifact, ID: "@local/a/one", Type: "file", Owner: "a"},
		{Kind: store.Artifact, ID: "@local/a/two", Type: "skill", Owner: "a"},
		{Kind: store.Artifact, ID: "@local/b/one", Type: "file", Owner: "b"},
		{Kind: store.Artifact, ID: "@local/ä", Type: "file"},
		{Kind: store.Artifact, ID: "@local/a_one%", Type: "file"},
		{Kind: store.Task, ID: "@local/a/one", Type: "task", Owner: "a"},
	} {
		d.Version, d.Body = 1, fmt.Appendf(nil, "%d", i)
		g.Doc(d, store.Absent)
	}
	commit(t, g)
	write(t, s, store.Doc{Kind: store.Artifact, ID: "@local/a/one", Version: 2, Type: "file", Owner: "c", Body: []byte("{}")})
	tests := []struct {
		q    store.Query
		want string
	}{
		{store.Query{Kind: store.Artifact}, "@local/a/one@2 @local/a_one%@1 @local/ä@1 @local/b/one@1 @local/a/two@1"},
		{store.Query{Kind: store.Artifact, AllVersions: true}, "@local/a/one@2 @local/a_one%@1 @local/ä@1 @local/b/one@1 @local/a/two@1 @local/a/one@1"},
		{store.Query{Kind: store.Task}, "@local/a/one@1"},
		{store.Query{Kind: store.Env}, ""},
		{store.Query{}, ""},
		{store.Query{Kind: store.Artifact, Type: "skill"}, "@local/a/two@1"},
		{store.Query{Kind: store.Artifact, Prefix: "@local/a/"}, "@local/a/one@2 @local/a/two@1"},
		{store.Query{Kind: store.Artifact, Prefix: "@local/a_"}, "@local/a_one%@1"},
		{store.Query{Kind: store.Artifact, Prefix: "@local/ä"}, "@local/ä@1"},
		{store.Query{Kind: store.Artifact, Prefix: "@LOCAL"}, ""},
		{store.Query{Kind: store.Artifact, Owner: "a"}, "@local/a/two@1"},
		{store.Query{Kind: store.Artifact, Owner: "a", AllVersions: true}, "@local/a/two@1 @local/a/one@1"},
		{store.Query{Kind: store.Artifact, Owner: "c", Type: "file", Prefix: "@"}, "@local/a/one@2"},
		{store.Query{Kind: store.Artifact, ID: "@local/a/one"}, "@local/a/one@2"},
		{store.Query{Kind: store.Artifact, ID: "@local/a/one", AllVersions: true}, "@local/a/one@2 @local/a/one@1"},
		{store.Query{Kind: store.Artifact, ID: "@local/a"}, ""},
	}
	for _, tt := range tests {
		p, err := s.List(t.Context(), tt.q)
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(ids(p), " "); got != tt.want || p.Next != "" {
			t.Errorf("%+v:\n got %s (next %q)\nwant %s", tt.q, got, p.Next, tt.want)
		}
	}
}

// testOwn: ids whose last segment holds "__" belong to others.
func testOwn(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	for _, id := range []string{
		"a", "a__b", "@local/x__y/a", "@local/x__y/a__file", "@local/a_", "@local/a_/_b", "__", "@local/__a/b", "@local/b/__", "@local/a/a/a__a", "@local/ä__/ö", "@local/ä__/ö__ü",
	} {
		write(t, s, doc(store.Artifact, id, 1))
	}
	p, err := s.List(t.Context(), store.Query{Kind: store.Artifact, Own: true})
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, ids(p), "@local/ä__/ö@1", "@local/__a/b@1", "@local/a_/_b@1", "@local/a_@1", "@local/x__y/a@1", "a@1")
}

func testPages(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	var ds []store.Doc
	for i := range 250 {
		ds = append(ds, doc(store.Eval, fmt.Sprintf("e%03d", i), 1))
	}
	write(t, s, ds...)
	for _, limit := range []int{0, 1, 99, 125, 249, 250, 251} {
		var got []string
		q := store.Query{Kind: store.Eval, Limit: limit}
		for {
			p, err := s.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			want := limit
			if limit == 0 {
				want = store.DefaultLimit
			}
			if len(p.Docs) > want || p.Next != "" && len(p.Docs) != want {
				t.Fatalf("limit %d: a page of %d", limit, len(p.Docs))
			}
			got = append(got, ids(p)...)
			if p.Next == "" {
				break
			}
			q.After = p.Next
		}
		if len(got) != 250 || got[0] != "e249@1" || got[249] != "e000@1" || !slices.IsSortedFunc(got, func(a, b string) int { return strings.Compare(b, a) }) {
			t.Errorf("limit %d: %d documents, %v", limit, len(got), got)
		}
	}
	for _, after := range []string{"x", "1", "1.", "a.b.c", "-1.5", "zzzzzzzzzzzzzzzzzzzz.1"} {
		if p, err := s.List(t.Context(), store.Query{Kind: store.Eval, After: after}); err == nil {
			t.Errorf("After %q: %v", after, ids(p))
		}
	}
}

// What is written between two pages neither repeats a document nor hides one.
func testPagesUnderWrites(t *testing.T, again func(*testing.T) store.Store) {
	s := again(t)
	var ds []store.Doc
	var want []string
	for i := range 20 {
		ds = append(ds, doc(store.Artifact, fmt.Sprintf("a%02d", i), 1))
		want = append(want, fmt.Sprintf("a%02d@1", 19-i))
	}
	write(t, s, ds...)
	var got []string
	q := store.Query{Kind: store.Artifact, Limit: 3}
	for n := 0; ; n++ {
		p, err := s.List(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids(p)...)
		if p.Next == "" {
			break
		}
		q.After = p.Next
		// New ids, and new versions of what the next pages hold.
		write(t, s, doc(store.Artifact, fmt.Sprintf("new%d", n), 1), doc(store.Artifact, "a00", 2+n))
	}
	wantIDs(t, got, want...)
	p, err := s.List(t.Context(), store.Query{Kind: store.Artifact, Limit: 3})
	if err != nil {
		t.Fatal(err)
	}
	wantIDs(t, ids(p), "a00@7", "new5@1", "new4@1")
}
