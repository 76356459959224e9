package artifactstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

func TestList(t *testing.T) {
	for _, l := range []*Library{first(library(t)), inMemory()} {
		dir := write(t, t.TempDir(), map[string]string{"u/a": "1", "u/b": "2", "f": "x"})
		for i := range 5 {
			mustPut(t, l, Put{Type: artifact.File, ID: fmt.Sprintf("@local/f/%d", i), Paths: []string{filepath.Join(dir, "f")}})
		}
		mustPut(t, l, Put{Type: artifact.FileUniverse, ID: "@local/u", Paths: []string{filepath.Join(dir, "u")}})
		mustPut(t, l, Put{Type: artifact.File, ID: "@local/f/3", Paths: []string{filepath.Join(dir, "f")}, Description: "the third"})
		for _, tc := range []struct {
			q    Query
			want string
			more bool
		}{
			{Query{}, "[@local/f/3 v2 @local/u v1 @local/f/4 v1 @local/f/2 v1 @local/f/1 v1 @local/f/0 v1]", false},
			{Query{Limit: 2}, "[@local/f/3 v2 @local/u v1]", true},
			{Query{Limit: 2, Offset: 1}, "[@local/u v1 @local/f/4 v1]", true},
			{Query{Limit: 2, Offset: 5}, "[@local/f/0 v1]", false},
			{Query{Offset: 9}, "[]", false},
			{Query{Type: artifact.FileUniverse}, "[@local/u v1]", false},
			{Query{Prefix: "@local/f/", Limit: 1}, "[@local/f/3 v2]", true},
			{Query{Prefix: "@local/u", All: true, Limit: 2}, "[@local/u__", true},
		} {
			p, err := l.List(t.Context(), tc.q)
			if got := fmt.Sprint(p.Artifacts); err != nil || !strings.HasPrefix(got, tc.want) || (p.Next != "") != tc.more {
				t.Errorf("%+v: %s, %q, %v; want %s", tc.q, got, p.Next, err, tc.want)
			}
		}
		var seen []string
		for q := (Query{Limit: 2}); ; {
			p, err := l.List(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			seen = append(seen, fmt.Sprint(p.Artifacts))
			if q.After = p.Next; q.After == "" {
				break
			}
		}
		same(t, "pages", seen, []string{"[@local/f/3 v2 @local/u v1]", "[@local/f/4 v1 @local/f/2 v1]", "[@local/f/1 v1 @local/f/0 v1]"})
		if p, err := l.List(t.Context(), Query{Limit: 2}); err != nil || p.Artifacts[0].About != "f: the third" || p.Artifacts[1].About != "2 files" {
			t.Errorf("%+v, %v", p, err)
		}
		if _, err := l.Versions(t.Context(), "@local/none", Query{}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%v", err)
		}
		if p, err := l.Versions(t.Context(), "@local/f/3", Query{Limit: 1, Offset: 1}); err != nil || fmt.Sprint(p.Artifacts) != "[@local/f/3 v1]" || p.Next != "" {
			t.Errorf("%v, %v", p, err)
		}
	}
	if p, err := inMemory().List(t.Context(), Query{}); err != nil || len(p.Artifacts) != 0 {
		t.Errorf("%v, %v", p, err)
	}
}

// Puts of one id that come at once all get through, each as a version of its own, whole.
func TestConcurrentPuts(t *testing.T) {
	l, root := library(t)
	const putters = 12
	var wg sync.WaitGroup
	versions := make([]int, putters)
	for i := range putters {
		mine := l
		if i%2 == 1 {
			mine = reopen(t, root) // as another process would
		}
		wg.Go(func() {
			dir := write(t, t.TempDir(), map[string]string{"a": fmt.Sprint(i), "b": strings.Repeat(fmt.Sprint(i), 70_000), "c": "same"})
			out, err := mine.Put(t.Context(), Put{Type: artifact.FileUniverse, ID: "@local/u", Paths: []string{dir}})
			if err != nil {
				t.Error(err)
			}
			versions[i] = out.Version
		})
	}
	wg.Wait()
	seen := map[int]bool{}
	for i, v := range versions {
		if seen[v] || v < 1 || v > putters {
			t.Errorf("versions %v", versions)
			break
		}
		seen[v] = true
		got := tree(t, mustGet(t, l, "@local/u", v))
		if len(got) != 3 || got[0] != fmt.Sprintf("644 a=%d", i) {
			t.Errorf("version %d: %q, and %d put it", v, got, i)
		}
	}
}

// stalled is a store whose commits wait for a call in between.
type stalled struct {
	store.Store
	before func()
}

type stalledStage struct {
	store.Stage
	before func()
}

func (s *stalled) Begin(ctx context.Context) (store.Stage, error) {
	g, err := s.Store.Begin(ctx)
	return stalledStage{g, s.before}, err
}

func (g stalledStage) Commit(ctx context.Context) error {
	g.before()
	return g.Stage.Commit(ctx)
}

// What a put names and somebody removes before its commit is looked for again: the put pins the version that is there, or is refused.
func TestPinsThatGo(t *testing.T) {
	l := inMemory()
	dir := write(t, t.TempDir(), map[string]string{"f": "x"})
	for range 2 {
		mustPut(t, l, Put{Type: artifact.File, ID: "@local/f", Paths: []string{filepath.Join(dir, "f")}})
	}
	remove := func(version int) {
		g, err := l.store.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		g.Delete(store.Artifact, "@local/f", version)
		if err := g.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	calls := 0
	racing := New(&stalled{l.store, func() {
		if calls++; calls == 1 {
			remove(2)
		}
	}})
	out, err := racing.Put(t.Context(), Put{Type: artifact.Environment, ID: "@local/e", File: "@local/f", EnvironmentName: "m"})
	if err != nil || calls != 2 {
		t.Fatalf("%v after %d commits", err, calls)
	}
	d, err := l.store.Get(t.Context(), store.Artifact, out.ID, 1)
	if err != nil || !bytes.Contains(d.Body, []byte(`"file_artifact_ref":{"id":"@local/f","version":1}`)) {
		t.Errorf("%s, %v", d.Body, err)
	}
	calls = 0
	racing = New(&stalled{l.store, func() { remove(0) }})
	_, err = racing.Put(t.Context(), Put{Type: artifact.Environment, ID: "@local/e2", File: "@local/f:1", EnvironmentName: "m"})
	if text := problems(t, err); !strings.Contains(text, "--file: there is no artifact '@local/f' in the store") {
		t.Error(text)
	}
}

// A file that changes while it is put is stored as one whole reading of it, with the digest of that.
func TestPutOfAChangingFile(t *testing.T) {
	l, _ := library(t)
	dir := write(t, t.TempDir(), map[string]string{"f": strings.Repeat("a", 1<<20)})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				if err := os.WriteFile(filepath.Join(dir, "f"), bytes.Repeat([]byte{byte('a' + i%2)}, 1<<20+i%7), 0o644); err != nil {
					t.Error(err)
				}
			}
		}
	})
	for v := range 10 {
		mustPut(t, l, Put{Type: artifact.File, ID: "@local/f", Paths: []string{filepath.Join(dir, "f")}})
		mustGet(t, l, "@local/f", v+1) // checks the digest
	}
	close(stop)
	wg.Wait()
}

func TestTrees(t *testing.T) {
	in := write(t, filepath.Join(t.TempDir(), "in"), map[string]string{"b/x.sh": "x 1", "a": "2", "l": "-> a", "empty/": "", ".DS_Store": "junk", "__pycache__/a.pyc": "junk"})
	pack := func(dir string) []byte {
		var b bytes.Buffer
		if err := PackTree(t.Context(), dir, &b); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	want := pack(in)
	again := write(t, filepath.Join(t.TempDir(), "again"), map[string]string{"l": "-> a", "a": "2", "empty/": "", "b/x.sh": "x 1"})
	if !bytes.Equal(pack(again), want) {
		t.Error("equal folders make different bytes")
	}
	if bytes.Contains(want, []byte("junk")) || bytes.Contains(want, []byte("DS_Store")) {
		t.Error("leavings are packed")
	}
	out := filepath.Join(t.TempDir(), "notes.tree.zip")
	for i, tc := range []struct {
		file  string
		force bool
		want  string
	}{
		{out, false, ""},
		{out, false, "exists already; name another file, or replace it with --force"},
		{out, true, ""},
		{filepath.Join(in, "b/x.zip"), false, "this is in the folder that is packed"},
		{filepath.Join(in, "x.tar"), false, "end it with .tree.zip"},
	} {
		if text := problems(t, PackTreeFile(t.Context(), in, tc.file, tc.force)); tc.want == "" && text != "" || !strings.Contains(text, tc.want) {
			t.Errorf("%d: %q", i, text)
		}
	}
	if text := problems(t, PackTreeFile(t.Context(), filepath.Join(in, "nosuch"), filepath.Join(t.TempDir(), "x.zip"), false)); !strings.Contains(text, "there is no such file or folder") {
		t.Error(text)
	}

	// The file of --tree is the packed one, and known as a tree by its name.
	l := inMemory()
	mustPut(t, l, Put{Type: artifact.Environment, ID: "@local/e", Tree: in, EnvironmentName: "notes"})
	mustPut(t, l, Put{Type: artifact.Environment, ID: "@local/p", Paths: []string{out}, EnvironmentName: "notes"})
	for _, id := range []string{"@local/e", "@local/p"} {
		d, err := l.store.Get(t.Context(), store.Artifact, id+"__file", 0)
		if err != nil || !bytes.Contains(d.Body, []byte(`"application/vnd.agentenv.file-tree+zip"`)) || !bytes.Contains(d.Body, []byte(`"filename":"notes.tree.zip"`)) || !bytes.Contains(d.Body, []byte(`"mode":420`)) {
			t.Errorf("%s, %v", d.Body, err)
		}
		got, err := os.ReadFile(filepath.Join(mustGet(t, l, id, 0), "notes.tree.zip"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s holds other bytes, %v", id, err)
		}
	}
}

// A store that fails makes a put fail with its reason, once.
func TestPutOnAFailingStore(t *testing.T) {
	own := errors.New("the disk is full")
	l := New(failing{inMemory().store, own})
	dir := write(t, t.TempDir(), map[string]string{"a": "1", "b": "2"})
	_, err := l.Put(t.Context(), Put{Type: artifact.FileUniverse, ID: "@local/u", Paths: []string{dir}})
	if !errors.Is(err, own) {
		t.Errorf("%v", err)
	}
}

type failing struct {
	store.Store
	err error
}

type failingStage struct {
	store.Stage
	err error
}

func (f failing) Begin(ctx context.Context) (store.Stage, error) {
	g, err := f.Store.Begin(ctx)
	return failingStage{g, f.err}, err
}

func (g failingStage) Put(io.Reader) (ref.Digest, int64, error) { return "", 0, g.err }
