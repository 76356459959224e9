package export

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// small is a rig with a task over a few files.
func small(t *testing.T) *rig {
	t.Helper()
	r := newRig(t)
	r.bundle("b", files{"artifacts/u/a": "a", "artifacts/u/sub/b": "#!b", "tasks/t.json": load("u")})
	return r
}

func TestTarget(t *testing.T) {
	r := small(t)
	from := fromTask("@local/~/b/t")
	files{"full/x": "1", "file": "1"}.write(t, r.home)
	for _, name := range []string{"empty", "away"} {
		if err := os.Mkdir(r.path(name), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("away", r.path("link")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"full": "this folder is not empty; name a new or empty folder", "file": "this is no folder; name a new or empty folder", "link": "this is no folder",
		"no/where": "no such folder; make it first", "file/x": "not a directory", "a:b": "contains ':'", "b/artifacts": "this folder is not empty",
	} {
		_, err := r.init(name, from)
		if _, ok := diag.From(err); !ok || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), r.home) {
			t.Errorf("%s: %v, want %s", name, err, want)
		}
	}
	if _, err := Init(t.Context(), "/", from, r.o); err == nil {
		t.Error("the root of the file system became a bundle")
	}
	r.clean()
	// An empty folder keeps its mode; a way through a link leads to the real folder.
	r.must("empty", from)
	if info, err := os.Stat(r.path("empty")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", info, err)
	}
	rep, err := Init(t.Context(), r.path("link/deep"), from, r.o)
	if err != nil || rep.Bundle != r.path("away/deep") || rep.IDRoot != "@local/~/away/deep" {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A home folder whose own path can't be part of ids does no harm: ids count from it.
func TestOddHome(t *testing.T) {
	r := small(t)
	odd := r.path("a=b:c")
	if err := os.Mkdir(odd, 0o755); err != nil {
		t.Fatal(err)
	}
	r.o.Home = odd
	rep, err := Init(t.Context(), filepath.Join(odd, "out"), fromTask("@local/~/b/t"), r.o)
	if err != nil || rep.IDRoot != "@local/~/out" {
		t.Errorf("%q, %v", rep.IDRoot, err)
	}
}

// What killed exports left goes with the next one into the same target; what belongs to others stays.
func TestSweep(t *testing.T) {
	r := small(t)
	const dead, alive, other, odd = ".out.import-00000001", ".out.import-00000002", ".else.import-00000003", ".out.import-zz"
	for _, name := range []string{dead, alive, other, odd} {
		files{name + "/artifacts/f/x": "1"}.write(t, r.home)
	}
	files{".out.import-00000004": "a file"}.write(t, r.home)
	lock, err := lockFolder(r.path(alive))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if _, err := r.init("out", fromTask("@local/~/b/t")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{dead: false, alive: true, other: true, odd: true, ".out.import-00000004": true} {
		if _, err := os.Stat(r.path(name)); (err == nil) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Of many exports into one target one is put there, whole, and the others say so.
func TestRacingInits(t *testing.T) {
	r := small(t)
	var wg sync.WaitGroup
	errs := make([]error, 12)
	for i := range errs {
		wg.Go(func() { _, errs[i] = Init(t.Context(), r.path("out"), fromTask("@local/~/b/t"), r.o) })
	}
	wg.Wait()
	won := 0
	for _, err := range errs {
		switch {
		case err == nil:
			won++
		case !strings.Contains(err.Error(), "something was put there meanwhile") && !strings.Contains(err.Error(), "this folder is not empty"):
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d won", won)
	}
	r.clean()
	if got := read(t, r.path("out")); len(got) != 4 {
		t.Errorf("%q", got)
	}
}

// broken is a store whose objects can't be read, in one way or another.
type broken struct {
	Reader
	open func(ctx context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error)
}

func (b broken) Open(ctx context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error) {
	return b.open(ctx, d)
}

type text struct{ *strings.Reader }

func (text) Close() error { return nil }

// A failure at any moment leaves nothing, also where the target was an empty folder.
func TestFailures(t *testing.T) {
	r := small(t)
	if err := os.Mkdir(r.path("out"), 0o700); err != nil {
		t.Fatal(err)
	}
	good := r.o.Store
	ctx, cancel := context.WithCancel(t.Context())
	for name, tc := range map[string]struct {
		open func(ctx context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error)
		want error
	}{
		"damaged bytes": {func(context.Context, ref.Digest) (io.ReadSeekCloser, int64, error) {
			return text{strings.NewReader("other")}, 5, nil
		}, store.ErrCorrupt},
		"bytes that are gone": {func(context.Context, ref.Digest) (io.ReadSeekCloser, int64, error) {
			return nil, 0, store.ErrNotFound
		}, store.ErrNotFound},
		"cancelled": {func(ctx context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error) {
			cancel()
			return good.Open(ctx, d)
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			o := r.o
			o.Store = broken{good, tc.open}
			if _, err := Init(ctx, r.path("out"), fromTask("@local/~/b/t"), o); !errors.Is(err, tc.want) {
				t.Errorf("%v", err)
			}
			if got := read(t, r.path("out")); len(got) > 0 {
				t.Errorf("%q", got)
			}
			r.clean()
		})
		if name == "cancelled" {
			ctx, cancel = context.WithCancel(t.Context())
		}
	}
	cancel()
	r.must("out", fromTask("@local/~/b/t"))
}

// A folder that is no sound bundle is never put in place.
func TestCheckedBeforeItIsPlaced(t *testing.T) {
	r := small(t)
	r.universe("@local/x/loop", artifact.Bytes{Path: "a/b"}, artifact.Bytes{Path: "a/l", Link: "../a"})
	r.task("@local/x/t", load("@local/x/loop"))
	_, err := r.init("out", fromTask("@local/x/t"))
	l, ok := diag.From(err)
	if !ok || err.Error() != "artifacts/loop/a/l: this link leads back to a folder that holds it; remove it" || len(l.Of(diag.Hint)) == 0 {
		t.Error(err)
	}
	if _, err := os.Stat(r.path("out")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	r.clean()
}

// Memory doesn't grow with what is exported, and neither do open files.
func TestManyFiles(t *testing.T) {
	r := newRig(t)
	f := files{"tasks/t.json": load("u")}
	for i := range 600 {
		f[fmt.Sprintf("artifacts/u/d%d/f%d", i%20, i)] = fmt.Sprint(i)
	}
	r.bundle("b", f)
	r.must("out", fromTask("@local/~/b/t"))
	out := read(t, r.path("out"))
	if len(out) != 602 || out["artifacts/u/d7/f307"] != "307" {
		t.Errorf("%d files", len(out))
	}
}

func TestTemplate(t *testing.T) {
	r := newRig(t)
	files{
		"README.md":                 "# Does a thing.\n\nText.\n\n    agent-env run tmpl\n    agent-env run tmpl --k 5\n\nCopy it: `agent-env bundle init x --template tmpl`.\n",
		"artifacts/f/artifact.toml": "# a comment\nid = \"@local/dist/tmpl/own\"\ntype = \"file\"\n",
		"artifacts/f/run.sh":        "#!/bin/sh\n",
		"artifacts/e/artifact.toml": "type = 'environment' # kept\nenvironment_name = 'x'\nfile = '@local/dist/tmpl/own'\n",
		"envs/m/env.toml":           "id = '@local/dist/tmpl/m'\nenvironment_name = 'm'\nimage = { artifact = \"@local/dist/tmpl/i\" }\n",
		"artifacts/i/Dockerfile":    "FROM scratch\n",
		"tasks/t.json":              "[" + box + ",\n  {\"id\":\"l\", \"type\":\"load_artifact\", \"sandbox_name\":\"box\", \"artifacts\": [{\"id\": \"@local/dist/tmpl/own\"}, {\"id\":\"e\"}]}\n]\n",
		"evals/e.toml":              "id = '@local/dist/tmpl/e'\ntasks = ['@local/dist/tmpl/t']\n",
		"docs/more.md":              "kept",
	}.write(t, r.path("src"))
	src := r.source("src", "tmpl", "@local/dist/tmpl")
	rep, err := Template(t.Context(), r.path("out"), src, r.o)
	if err != nil {
		t.Fatal(err)
	}
	r.clean()
	if rep.From.String() != "template tmpl" || lineOf(rep.Written) != "envs/m: mcp_server\nartifacts/e: environment\nartifacts/f: file\nartifacts/i: docker_image" || lineOf(rep.Tasks) != "tasks/t.json: task\nevals/e.toml: eval" {
		t.Errorf("%+v", rep)
	}
	out := read(t, r.path("out"))
	for name, want := range (files{
		"artifacts/f/artifact.toml": "# a comment\ntype = \"file\"\n",
		"artifacts/f/run.sh":        "#!/bin/sh\n",
		"artifacts/e/artifact.toml": "type = 'environment' # kept\nenvironment_name = 'x'\nfile = \"f\"\n",
		"envs/m/env.toml":           "environment_name = 'm'\nimage = { artifact = \"i\" }\n",
		"tasks/t.json":              "[" + box + ",\n  {\"id\":\"l\", \"type\":\"load_artifact\", \"sandbox_name\":\"box\", \"artifacts\": [{\"id\": \"f\"}, {\"id\":\"e\"}]}\n]\n",
		"evals/e.toml":              "tasks = [\"t\"]\n",
		"docs/more.md":              "kept",
	}) {
		if out[name] != want {
			t.Errorf("%s is %q", name, out[name])
		}
	}
	if info, err := os.Stat(r.path("out/artifacts/f/run.sh")); err != nil || info.Mode().Perm()&0o111 == 0 {
		t.Errorf("%v, %v", info, err)
	}
	b, err := os.ReadFile(r.path("out/README.md"))
	if err != nil || string(b) != "# Does a thing.\n\nText.\n\n    agent-env run .\n    agent-env run . --k 5\n" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err = os.ReadFile(r.path("out/provenance.json")); err != nil || !strings.Contains(string(b), `"template": "tmpl"`) {
		t.Errorf("%s, %v", b, err)
	}
	if _, err := Template(t.Context(), r.path("out"), src, r.o); err == nil {
		t.Error("written twice")
	}
	files{"tasks/broken.json": "{"}.write(t, r.path("src"))
	if _, err := Template(t.Context(), r.path("new"), src, r.o); err == nil || !strings.HasPrefix(err.Error(), "tasks/broken.json: ") {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(r.home, "new")); err == nil {
		t.Error("written, though it is broken")
	}
}
