package git

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// childVar makes the test binary install something, as a process that another test kills.
const childVar = "GIT_TEST_CHILD"

type childPart struct {
	Dir, Root string
	URLs      []string
}

func TestMain(m *testing.M) {
	if text := os.Getenv(childVar); text != "" {
		if err := child(context.Background(), text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func child(ctx context.Context, text string) error {
	var part childPart
	if err := json.Unmarshal([]byte(text), &part); err != nil {
		return err
	}
	s := Open(Options{Dir: part.Dir, Folder: folder.At(part.Root), Policy: Policy{Files: true}, Fetch: FetchOptions{Env: os.LookupEnv, Home: part.Root}})
	var wants []Want
	for _, u := range part.URLs {
		wants = append(wants, Want{URL: u})
	}
	_, err := install(ctx, s, false, wants...)
	return err
}

// newStore is a store with a workspace of its own.
func newStore(t *testing.T, change ...func(*Options)) *Store {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, folder.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	o := Options{
		Dir: filepath.Join(t.TempDir(), "git_plugins"), Folder: folder.At(root), Policy: Policy{Files: true, PlainHTTP: true},
		Version: "0.9.0", Peer: "0.145.0", Fetch: FetchOptions{Env: os.LookupEnv, Home: root},
	}
	for _, c := range change {
		c(&o)
	}
	return Open(o)
}

// install fetches, plans and applies.
func install(ctx context.Context, s *Store, force bool, wants ...Want) (*Plan, error) {
	for i := range wants {
		if wants[i].By == "" {
			wants[i].By = "cli"
		}
	}
	if err := s.Writable(ctx); err != nil {
		return nil, err
	}
	items, err := s.Fetch(ctx, wants)
	if err != nil {
		return nil, err
	}
	p, err := s.Plan(ctx, items, force)
	if err == nil {
		p, err = s.Apply(ctx, p, nil)
	}
	return p, errors.Join(err, items.Close())
}

func mustInstall(t *testing.T, s *Store, force bool, wants ...Want) *Plan {
	t.Helper()
	p, err := install(t.Context(), s, force, wants...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func row(t *testing.T, s *Store, id string) Row {
	t.Helper()
	l, err := s.Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := l.Plugin(id)
	if r == nil {
		t.Fatalf("the lock has no %s: %+v", id, l)
	}
	return *r
}

func lockBytes(t *testing.T, s *Store) string {
	t.Helper()
	b, err := s.Folder().Read(folder.Lock)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// files lists a tree as "mode path=content", sorted.
func files(t *testing.T, s *Store, sum string) string {
	t.Helper()
	h, err := s.Tree(t.Context(), sum)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	es, err := walk(t.Context(), os.DirFS(h.Path()))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range es {
		b, err := os.ReadFile(filepath.Join(h.Path(), e.path))
		if err != nil {
			t.Fatal(err)
		}
		mark := ""
		if e.exec {
			mark = "*"
		}
		out = append(out, fmt.Sprintf("%s%s=%q", e.path, mark, b))
	}
	return strings.Join(out, " ")
}

// staged lists what installs left.
func staged(t *testing.T, s *Store) []string {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(s.o.Dir, stagingDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return left
}

// Rows 35, 39, 47.
func TestInstall(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "one", "bin/run", "#!/bin/sh\n", "crlf.txt", "a\r\nb\n", ".gitattributes", "* text eol=crlf\n*.txt filter=lfs ident\n", "id.txt", "$Id$\n")
	first := r.InWork("rev-parse", "HEAD")
	s := newStore(t)
	p := mustInstall(t, s, false, Want{URL: r.Bare})
	if got := p.Items[0]; got.Outcome != Added || got.ID() != "one" || got.Fetched.Commit != first {
		t.Errorf("installed %+v", got)
	}
	have := row(t, s, "one")
	if have.ResolvedSHA != first || have.SourceURL != r.URL() || have.RequestedRef != "" || have.By != "cli" || have.Fetch != ByGit || len(have.TreeSHA256) != 64 {
		t.Errorf("row %+v", have)
	}
	want := `.gitattributes="* text eol=crlf\n*.txt filter=lfs ident\n" agentenv.plugin.yaml="id: one\nname: Plugin one\nversion: 1.0.0\n" bin/run*="#!/bin/sh\n" crlf.txt="a\nb\n" id.txt="$Id$\n"`
	if got := files(t, s, have.TreeSHA256); got != want {
		t.Errorf("files %s\nwant %s", got, want)
	}
	before := lockBytes(t, s)
	if p := mustInstall(t, s, false, Want{URL: r.URL(), By: "bundle:x"}); p.Items[0].Outcome != Unchanged || !p.Items[0].Cached || lockBytes(t, s) != before {
		t.Errorf("again: %s, lock %s", p.Items[0].Outcome, lockBytes(t, s))
	}
	second := r.Commit("new.txt", "x")
	if p := mustInstall(t, s, false, Want{URL: r.URL()}); p.Items[0].Outcome != Updated || row(t, s, "one").ResolvedSHA != second {
		t.Errorf("a new commit: %s, %+v", p.Items[0].Outcome, row(t, s, "one"))
	}
	if left := staged(t, s); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// Rows 27, 28, 29: what refs mean.
func TestRefs(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "refs")
	first := r.InWork("rev-parse", "HEAD")
	r.InWork("tag", "light")
	r.InWork("tag", "-a", "-m", "x", "v1.0.0")
	r.InWork("tag", "-a", "-m", "x", "outer", "v1.0.0") // a tag of a tag
	second := r.Commit("a", "1")
	r.InWork("checkout", "-q", "-b", "release/1.2", first)
	third := r.Commit("b", "1")
	r.InWork("checkout", "-q", "-b", "deadbeef", first)
	fourth := r.Commit("c", "1")
	s := newStore(t)
	for ref, want := range map[string]string{
		"": second, "main": second, "light": first, "v1.0.0": first, "outer": first, "release/1.2": third, "deadbeef": fourth, "refs/tags/v1.0.0": first,
		first: first, second[:7]: second, strings.ToUpper(third[:9]): third,
	} {
		items, err := s.Fetch(t.Context(), []Want{{URL: r.URL(), Ref: ref}})
		if err != nil {
			t.Errorf("%q: %v", ref, err)
			continue
		}
		if got := items[0].Fetched.Commit; got != want {
			t.Errorf("%q is %s, want %s", ref, got, want)
		}
		if err := items.Close(); err != nil {
			t.Error(err)
		}
	}
	for ref, want := range map[string]string{"none": "has no branch and no tag 'none'", "abcdef1": "has no branch, tag or commit abcdef1", "a..b": "is no ref", sha: sha} {
		if _, err := s.Fetch(t.Context(), []Want{{URL: r.URL(), Ref: ref}}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", ref, err, want)
		}
	}
}

// Row 30.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	empty := gittest.New(t, "empty")
	for url, want := range map[string]string{
		filepath.Join(t.TempDir(), "none"): "there is no such repository", empty.URL(): "it is empty", "http://127.0.0.1:1/x": "nothing answers",
	} {
		_, err := install(t.Context(), s, false, Want{URL: url})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
	if lockBytes(t, s) != "" || len(staged(t, s)) > 0 {
		t.Error("something is left")
	}
}

// Rows 31, and http as a transport.
func TestHTTP(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "web")
	server := gittest.Serve(t, r)
	moved := redirecting(t, server) + "/moved"
	s := newStore(t)
	mustInstall(t, s, false, Want{URL: server.Of(r), Ref: "main"})
	before := server.Requests.Load()
	states, err := s.Sync(t.Context())
	if err != nil || states[0].State != Present || server.Requests.Load() != before {
		t.Errorf("sync of an intact set: %+v, %v, %d requests", states, err, server.Requests.Load()-before)
	}
	_, host, _ := strings.Cut(server.URL, "://")
	plain := newStore(t, func(o *Options) { o.Policy.PlainHTTP = false })
	if _, err := install(t.Context(), plain, false, Want{URL: server.Of(r)}); err == nil || !strings.Contains(err.Error(), "not encrypted") {
		t.Errorf("plain http: %v", err)
	}
	for name, allow := range map[string][]string{"": {host + "/moved", host + "/web"}, "no pattern": {host + "/moved"}} {
		s := newStore(t, func(o *Options) { o.Policy.Allow = allow })
		_, err := install(t.Context(), s, false, Want{URL: moved})
		if name == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("redirected with allow %v: %v", allow, err)
		}
	}
}

// redirecting makes a server that nobody has asked yet send everything of /moved to /web.git.
func redirecting(t *testing.T, s *gittest.Server) string {
	t.Helper()
	s.Before = func(w http.ResponseWriter, r *http.Request) bool {
		rest, ok := strings.CutPrefix(r.URL.Path, "/moved")
		if ok {
			http.Redirect(w, r, "/web.git"+rest+"?"+r.URL.RawQuery, http.StatusMovedPermanently)
		}
		return ok
	}
	return s.URL
}
