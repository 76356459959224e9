package git

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

const manifest = "id: p\nname: P\n"

// Rows 36, 37, 41, 43, 46: what a repository may not hold; nothing stays of it.
func TestRefusedContent(t *testing.T) {
	link := func(target, name string) func(*gittest.Repo) {
		return func(r *gittest.Repo) {
			if err := os.Symlink(target, r.Path(name)); err != nil {
				t.Fatal(err)
			}
			r.Commit()
		}
	}
	write := func(files ...string) func(*gittest.Repo) { return func(r *gittest.Repo) { r.Commit(files...) } }
	deep := strings.Repeat("d/", 32) + "f"
	many := func(r *gittest.Repo) {
		var all []string
		for i := range 60 {
			all = append(all, fmt.Sprintf("f%d", i), "x")
		}
		r.Commit(all...)
	}
	for name, c := range map[string]struct {
		make func(*gittest.Repo)
		want string
	}{
		"no manifest":        {func(r *gittest.Repo) { r.InWork("rm", "-q", PluginFile); r.Commit("x", "1") }, "neither agentenv.plugin.yaml nor agentenv.bundle.yaml"},
		"both manifests":     {write(PeerBundleFile, "id: b\nname: B\nplugins: []\n"), "ambiguous"},
		"a broken manifest":  {write(PluginFile, "id: p\n"), "p/agentenv.plugin.yaml:1: name: is missing"},
		"a link to a file":   {link("/etc/passwd", "passwd"), "symbolic links, which plugins may not have: 'passwd'"},
		"a link upward":      {link("../..", "up"), "'up'"},
		"a link to a folder": {link("skills", "link"), "'link'"},
		"a manifest's link": {func(r *gittest.Repo) {
			r.InWork("rm", "-q", PluginFile)
			r.Commit("m", manifest)
			link("m", PluginFile)(r)
		}, "'agentenv.plugin.yaml'"},
		"too deep":            {write(deep, "x"), "lies more than 32 folders deep"},
		"too many files":      {many, "it has 61 files, and at most 50 are allowed"},
		"too large":           {write("big", strings.Repeat("x", 2<<20)), "more than 1 MiB together"},
		"a device's name":     {write("aux.txt", "x"), "'aux.txt' holds the name of a device of Windows"},
		"a dot at the end":    {write("dir./x", "x"), "ends with a dot or a blank"},
		"case":                {write("Read", "x", "read", "y"), "'Read' and 'read' are one name"},
		"case of folders":     {write("A/x", "x", "a/y", "y"), "'A' and 'a' are one name"},
		"Unicode forms":       {write("caf\u00e9", "x", "cafe\u0301", "y"), "are one name"},
		"a backslash":         {write(`a\b`, "x"), "holds a backslash"},
		"a control character": {write("a\tb", "x"), "holds control characters"},
		"no UTF-8":            {write("a\xff", "x"), "is not UTF-8"},
		"a .git below": {func(r *gittest.Repo) {
			blob := r.InWork("hash-object", "-w", PluginFile)
			r.InWork("-c", "core.protectNTFS=false", "update-index", "--add", "--cacheinfo", "100644,"+blob+",sub/git~1/config")
			r.InWork("commit", "-q", "-m", "x")
			r.Publish()
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := gittest.Plugin(t, "p")
			c.make(r)
			s := newStore(t, func(o *Options) { o.Fetch.Limits = Limits{8 << 20, 1 << 20, 50, 32} })
			_, err := install(t.Context(), s, false, Want{URL: r.URL()})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if lockBytes(t, s) != "" || len(staged(t, s)) > 0 {
				t.Error("something is left")
			}
			if all, err := s.trees.List(t.Context()); err != nil || len(all) > 0 {
				t.Errorf("trees are left: %v, %v", all, err)
			}
		})
	}
}

// Row 43: what is downloaded is bounded too.
func TestPackedLimit(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "p")
	noise := make([]byte, 600<<10)
	for i, x := 0, uint32(1); i < len(noise); i++ {
		x = x*1664525 + 1013904223
		noise[i] = byte(x >> 24)
	}
	r.Commit("noise", string(noise))
	s := newStore(t, func(o *Options) { o.Fetch.Limits = Limits{200 << 10, 8 << 20, 50, 32} })
	if _, err := install(t.Context(), s, false, Want{URL: r.URL()}); err == nil || !strings.Contains(err.Error(), "packed") {
		t.Errorf("%v", err)
	}
}

// Rows 44, 45, 112: submodules and pointers are left as they are, and told; hooks and filters have no say; folders may be called anything.
func TestOddContent(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "p", ".gitattributes", "*.bin filter=evil\n", "x.bin", "raw", "lfs.bin", pointerHead+"v1\noid sha256:0\n", ".gitmodules", "[submodule \"m\"]\n\tpath = m\n\turl = https://example.com/m\n")
	r.InWork("update-index", "--add", "--cacheinfo", "160000,"+sha+",m")
	r.InWork("commit", "-q", "-m", "x")
	r.Publish()
	root := filepath.Join(t.TempDir(), "a b é 'q\"")
	if err := os.MkdirAll(filepath.Join(root, folder.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	hooks := t.TempDir()
	trap := filepath.Join(hooks, "ran")
	for _, h := range []string{"post-checkout", "reference-transaction", "pre-auto-gc"} {
		if err := os.WriteFile(filepath.Join(hooks, h), []byte("#!/bin/sh\ntouch '"+trap+"'\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(hooks, "config")
	text := fmt.Sprintf("[core]\n\thooksPath = %s\n[init]\n\ttemplateDir = %s\n[filter \"evil\"]\n\tsmudge = touch %s\n\trequired = true\n[url \"file:///nowhere\"]\n\tinsteadOf = file:///\n", hooks, hooks, trap)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, func(o *Options) {
		o.Folder, o.Dir = folder.At(root), filepath.Join(root, "state x")
		o.Fetch.Env = func(name string) (string, bool) {
			switch name {
			case "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM":
				return config, true
			case "HOME":
				return hooks, true
			}
			return os.LookupEnv(name)
		}
	})
	p := mustInstall(t, s, false, Want{URL: r.URL()})
	warned := strings.Join(p.Items[0].Warnings, "\n")
	if !strings.Contains(warned, "submodules are not fetched: 'm'") || !strings.Contains(warned, "git LFS are only pointers: 'lfs.bin'") {
		t.Errorf("warnings: %s", warned)
	}
	if got := files(t, s, row(t, s, "p").TreeSHA256); !strings.Contains(got, `x.bin="raw"`) || strings.Contains(got, "m=") {
		t.Errorf("files %s", got)
	}
	if _, err := os.Stat(trap); err == nil {
		t.Error("a hook or a filter ran")
	}
}

// Row 18: what git is started with, seen by a git that notes it.
func TestGitCommandLine(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "p")
	dir := t.TempDir()
	log := filepath.Join(dir, "log")
	path := os.Getenv("PATH")
	script := fmt.Sprintf("#!/bin/sh\n{ for a in \"$@\"; do printf '%%s\\n' \"$a\"; done; /usr/bin/env; } > '%s'.$$\nPATH='%s' exec git \"$@\"\n", log, path)
	if err := os.WriteFile(filepath.Join(dir, "git"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s := newStore(t, func(o *Options) {
		o.Fetch.Env = func(name string) (string, bool) {
			switch name {
			case "PATH":
				return dir + string(filepath.ListSeparator) + path, true
			case "GITHUB_TOKEN":
				return "s3cret", true
			}
			return os.LookupEnv(name)
		}
	})
	mustInstall(t, s, false, Want{URL: r.URL(), Ref: "main"})
	noted, err := filepath.Glob(log + ".*")
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for _, file := range noted {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, string(b))
	}
	if len(calls) < 4 {
		t.Fatalf("%d calls of git", len(calls))
	}
	for _, call := range calls {
		for _, want := range []string{
			"core.hooksPath=/dev/null\n", "protocol.allow=never\n", "http.followRedirects=false\n", "GIT_TERMINAL_PROMPT=0\n", "GIT_CONFIG_NOSYSTEM=1\n", "GIT_CONFIG_GLOBAL=/dev/null\n", "GIT_ALLOW_PROTOCOL=",
		} {
			if !strings.Contains(call, want) {
				t.Errorf("a call lacks %q:\n%s", want, call)
			}
		}
		if strings.Contains(call, "s3cret") {
			t.Errorf("the token went to another host:\n%s", call)
		}
		if strings.Contains(call, r.URL()) && !strings.Contains(call, "\n--\n"+r.URL()+"\n") {
			t.Errorf("no -- stands before the URL:\n%s", call)
		}
		if strings.Contains(call, "\ninit\n") && !strings.Contains(call, "\n--template=\n") {
			t.Errorf("a template is used:\n%s", call)
		}
	}
	f := NewFetcher(FetchOptions{Dir: t.TempDir(), Env: func(string) (string, bool) { return "s3cret", true }})
	hub, _ := ParseSource("https://github.com/o/r")
	if env := strings.Join(f.environ(hub), "\n"); !strings.Contains(env, "extraheader") || strings.Contains(strings.Join(f.argv(command{source: hub}), " "), "s3cret") {
		t.Error("the token for github.com is not handed over in the environment")
	}
}

// Rows 38, 40, 72, 73, 74: whose id it is.
func TestIdentity(t *testing.T) {
	t.Parallel()
	a, b := gittest.Plugin(t, "same"), gittest.Plugin(t, "same", "other", "x")
	builtin := gittest.Plugin(t, "delegates")
	bundle := gittest.New(t, "b")
	bundle.Commit(BundleFile, "id: b\nname: B\nplugins: []\n")
	s := newStore(t, func(o *Options) {
		o.Builtins = []Builtin{{ID: "delegates", Supersedes: []Source{{Scheme: HTTPS, Host: "h.example", Path: "/o/delegates.git"}}}}
	})
	mustInstall(t, s, false, Want{URL: a.URL()})
	before := lockBytes(t, s)
	parent, _ := ParseSource("/srv/b")
	for name, c := range map[string]struct {
		wants []Want
		force bool
		want  string
	}{
		"another origin":   {[]Want{{URL: b.URL()}}, false, "a plugin same is installed already, from " + a.URL()},
		"a builtin":        {[]Want{{URL: builtin.URL()}}, true, "the id delegates is a plugin's that comes with agent-env"},
		"one id twice":     {[]Want{{URL: a.URL()}, {URL: b.URL()}}, true, "the id same is claimed twice"},
		"declared":         {[]Want{{URL: a.URL(), Declared: "other", Parent: parent}}, true, "the bundle calls it 'other', and its manifest 'same'"},
		"bundle in bundle": {[]Want{{URL: bundle.URL(), Parent: parent}}, true, "a bundle may not name bundles"},
		"one fails":        {[]Want{{URL: a.URL(), Ref: "none"}, {URL: b.URL(), Ref: "neither"}}, true, "neither"},
	} {
		if _, err := install(t.Context(), s, c.force, c.wants...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if lockBytes(t, s) != before {
		t.Error("the lock has changed")
	}
	if p := mustInstall(t, s, true, Want{URL: b.URL()}); p.Items[0].Outcome != Updated || row(t, s, "same").SourceURL != b.URL() {
		t.Errorf("with force: %+v", p.Items[0])
	}
	if p := mustInstall(t, s, false, Want{URL: b.URL()}, Want{URL: b.URL()}); len(p.Items) != 1 {
		t.Errorf("asked for twice: %d items", len(p.Items))
	}
	// Row 71: what the program brings itself isn't fetched, whatever the transport, and although the source isn't allowed.
	s.o.Policy.Allow = []string{}
	if p := mustInstall(t, s, false, Want{URL: "git@h.example:o/delegates", Declared: "delegates"}); p.Items[0].Outcome != Superseded || p.Items[0].Superseded != "delegates" {
		t.Errorf("superseded: %+v", p.Items[0])
	}
}

// Row 11: a plugin that needs a newer program is told of when it is installed.
func TestMinVersion(t *testing.T) {
	t.Parallel()
	r := gittest.New(t, "m")
	r.Commit(PluginFile, "id: m\nname: M\nmin_agentenv_version: '0.10'\n")
	s := newStore(t)
	if p := mustInstall(t, s, false, Want{URL: r.URL()}); !strings.Contains(strings.Join(p.Items[0].Warnings, " "), "it needs agent-env 0.10") {
		t.Errorf("warnings %v", p.Items[0].Warnings)
	}
	for v, refused := range map[string]bool{"": false, "0.8": false, "0.9.0": false, "0.9.1": true, "odd": false} {
		if got := s.TooNew(&Manifest{MinVersion: v}) != ""; got != refused {
			t.Errorf("%q of agent-env: %v, want %v", v, got, refused)
		}
	}
	if s.TooNew(&Manifest{MinVersion: "0.145.1", Peer: true}) == "" || s.TooNew(&Manifest{MinVersion: "0.145.0", Peer: true}) != "" {
		t.Error("a version of protoAgent is compared with another number")
	}
}

// Rows 54, 58, 59, 60: what sync and verify do with each state; the lock's own texts are checked again.
func TestSync(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "one")
	other := gittest.Plugin(t, "two", "x", "y")
	gone := gittest.Plugin(t, "three")
	s := newStore(t)
	mustInstall(t, s, false, Want{URL: r.URL(), By: "bundle:b", Ref: "main"}, Want{URL: other.URL()}, Want{URL: gone.URL()})
	err := s.Change(t.Context(), func(_ *folder.Tx, l *Lock) error {
		one := *l.Plugin("one")
		one.TreeSHA256, one.Fetch = "", "" // as the peer's lock has it
		l.Put(one)
		l.Put(Row{ID: "evil", SourceURL: "--upload-pack=touch x", RequestedRef: "/tmp", ResolvedSHA: sha})
		l.Put(Row{ID: "blank", ResolvedSHA: sha})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	before := row(t, s, "one")
	r.Commit("later", "x") // the branch has moved on
	three := row(t, s, "three")
	if err := s.trees.Remove(three.TreeSHA256); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(gone.Bare); err != nil {
		t.Fatal(err)
	}
	spoil(t, s, row(t, s, "two").TreeSHA256)
	states := func(all []Standing, err error) string {
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, st := range all {
			out = append(out, fmt.Sprintf("%s %s", st.ID, st.State))
		}
		return strings.Join(out, ", ")
	}
	if got := states(s.Verify(t.Context())); got != "blank missing, evil missing, one unpinned, three missing, two modified" {
		t.Errorf("verify: %s", got)
	}
	if got := states(s.Sync(t.Context())); got != "blank failed, evil failed, one present, three failed, two restored" {
		t.Errorf("sync: %s", got)
	}
	after := row(t, s, "one")
	if after.TreeSHA256 == "" || after.By != before.By || after.RequestedRef != "main" || after.ResolvedSHA != before.ResolvedSHA || after.InstalledAt != before.InstalledAt {
		t.Errorf("sync made %+v of %+v", after, before)
	}
	// A source that isn't allowed any more is failed, and no other.
	if err := s.trees.Remove(after.TreeSHA256); err != nil {
		t.Fatal(err)
	}
	s.o.Policy.Allow = []string{filepath.Dir(other.Bare)}
	if got := states(s.Sync(t.Context())); !strings.Contains(got, "one failed") || !strings.Contains(got, "two present") {
		t.Errorf("sync with a closed list: %s", got)
	}
	// What a lock calls the files of a commit has to be so.
	s.o.Policy.Allow = nil
	if err := s.Change(t.Context(), func(_ *folder.Tx, l *Lock) error { l.Plugin("one").TreeSHA256 = strings.Repeat("0", 64); return nil }); err != nil {
		t.Fatal(err)
	}
	all, err := s.Sync(t.Context())
	if err != nil || all[2].State != Failed || !strings.Contains(all[2].Err.Error(), "has other files") {
		t.Errorf("another digest: %+v, %v", all[2], err)
	}
}

// spoil changes a file of a tree.
func spoil(t *testing.T, s *Store, sum string) {
	t.Helper()
	p := filepath.Join(s.trees.PathOf(sum), PluginFile)
	if err := errors.Join(os.Chmod(p, 0o644), os.WriteFile(p, []byte("id: evil\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// Rows 51, 52, 56: a lock that can't be used, or not be written, is refused before anything is fetched.
func TestLockGuards(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	path := s.Folder().Path(folder.Lock)
	for _, src := range []string{"{", `{"version": 9}`} {
		if err := os.WriteFile(path, []byte(src), 0o644); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := s.Writable(t.Context()); !errors.Is(err, ErrLock) {
				t.Errorf("%s: %v", src, err)
			}
		}
		if lockBytes(t, s) != src {
			t.Errorf("%s became %s", src, lockBytes(t, s))
		}
	}
	if kept, err := filepath.Glob(path + ".corrupt-*"); err != nil || len(kept) != 2 {
		t.Errorf("copies: %v, %v", kept, err)
	}
	if err := errors.Join(os.WriteFile(path, []byte(`{"plugins":[]}`), 0o644), os.Chmod(path, 0o444)); err != nil {
		t.Fatal(err)
	}
	if err := s.Writable(t.Context()); err == nil || !strings.Contains(err.Error(), "is read-only") {
		t.Errorf("read-only: %v", err)
	}
}

// Rows 108, 109: twelve installs at once lose no row, and installs of one plugin agree.
func TestConcurrent(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var repos []*gittest.Repo
	for i := range 6 {
		repos = append(repos, gittest.Plugin(t, fmt.Sprintf("p%d", i)))
	}
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			own := Open(s.o) // as another process has it
			if _, err := install(t.Context(), own, false, Want{URL: repos[i%6].URL()}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l, err := s.Lock(t.Context())
	if err != nil || len(l.Plugins) != 6 {
		t.Fatalf("%+v, %v", l, err)
	}
	all, err := s.Verify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range all {
		if st.State != Present {
			t.Errorf("%s is %s", st.ID, st.State)
		}
	}
	if left := staged(t, s); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// Rows 107, 111: what a killed install left is swept by the next one, and what one under way holds isn't.
func TestSweep(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	live, err := s.stage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dead := filepath.Join(s.o.Dir, stagingDir, "DEAD", "0", "files")
	if err := errors.Join(os.MkdirAll(dead, 0o700), os.WriteFile(filepath.Join(dead, PluginFile), []byte(manifest), 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := staged(t, s); len(left) != 1 || left[0] != live.dir {
		t.Errorf("left: %v", left)
	}
	if err := live.close(); err != nil {
		t.Error(err)
	}
}

// Prune keeps what any workspace's lock names.
func TestPrune(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "one")
	s := newStore(t)
	second := newStore(t, func(o *Options) { o.Dir = s.o.Dir })
	mustInstall(t, s, false, Want{URL: r.URL()})
	old := row(t, s, "one").TreeSHA256
	mustInstall(t, second, false, Want{URL: r.URL()})
	r.Commit("more", "x")
	mustInstall(t, s, false, Want{URL: r.URL()})
	if _, err := s.Prune(t.Context()); err != nil || !s.trees.Has(old) {
		t.Errorf("another workspace's tree is pruned: %v", err)
	}
	if err := os.RemoveAll(second.Folder().Root()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Prune(t.Context()); err != nil || s.trees.Has(old) || !s.trees.Has(row(t, s, "one").TreeSHA256) {
		t.Errorf("after the workspace is gone: %v", err)
	}
	if _, err := second.Tree(t.Context(), old); !errors.Is(err, ErrMissing) {
		t.Errorf("a pruned tree: %v", err)
	}
}

// Row 113: a server that hangs is given up in time, with all of git's processes.
func TestTimeout(t *testing.T) {
	t.Parallel()
	r := gittest.Plugin(t, "web")
	server := gittest.Serve(t, r)
	stop := make(chan struct{})
	server.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case <-stop:
		case <-r.Context().Done():
		}
		return true
	}
	defer close(stop)
	s := newStore(t, func(o *Options) { o.Fetch.Lookup = 300 * time.Millisecond })
	begin := time.Now()
	_, err := install(t.Context(), s, false, Want{URL: server.Of(r), Ref: "main"})
	if fail, ok := errors.AsType[*Failure](err); !ok || !fail.Timeout || time.Since(begin) > 5*time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("enough"))
	defer cancel()
	if _, err := install(ctx, s, false, Want{URL: server.Of(r), Ref: sha}); err == nil || time.Since(begin) > 10*time.Second {
		t.Errorf("cancelled: %v", err)
	}
	if len(staged(t, s)) > 0 {
		t.Error("something is left")
	}
}
