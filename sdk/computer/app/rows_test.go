package app_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"agentenv.internal/agentenv/sdk/computer/app"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// TestA2 holds what an App can't say; all of it is told at once.
func TestA2(t *testing.T) {
	t.Parallel()
	_, err := app.Open(t.Context(), app.App{Name: "No", Paths: []string{"a", "a/b", "/x", ".agentenv/x", "a"}, Launch: []string{""}, Timeout: -1}, app.Options{Home: t.TempDir()})
	if err == nil {
		t.Fatal("it opened")
	}
	for _, want := range []string{
		`"No" can't be the name`, "a/b overlaps with a", `"/x": the path must be relative`, ".agentenv/x is where servers keep what is theirs", "a overlaps with a", "launch: it must begin with a program", "is negative",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if _, err := app.Open(t.Context(), notes(), app.Options{Lookup: func(string) (string, bool) { return "", false }}); err == nil || !strings.Contains(err.Error(), "HOME is not set") {
		t.Error(err)
	}
}

// TestA9: the socket is the user's alone; one that nobody answers at is replaced, and nothing else is.
func TestA9(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "s"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	stale.Close()
	open := func(name, socket string) *app.Server {
		s, err := app.Open(t.Context(), app.App{Name: name}, app.Options{Home: dir, Socket: socket, Lookup: os.LookupEnv})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
		return s
	}
	s := open("a", filepath.Join(dir, "s"))
	ctx, cancel := context.WithCancel(t.Context())
	l, err := s.Listen(ctx)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.ServeListener(ctx, l) }()
	if st, err := os.Stat(s.Socket()); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", s.Socket())
	}}
	defer tr.CloseIdleConnections()
	resp, err := (&http.Client{Transport: tr}).Get("http://app" + wire.CardPath)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	resp.Body.Close()
	if _, err := open("b", s.Socket()).Listen(ctx); err == nil || !strings.Contains(err.Error(), "another server answers at") {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	write(t, filepath.Join(dir, "file"), "x")
	for socket, want := range map[string]string{filepath.Join(dir, "file"): "is there and no socket", "/" + strings.Repeat("x", 107): "more than the 107 bytes"} {
		if _, err := open("c"+want[:1], socket).Listen(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", socket, err)
		}
	}
	if got := open("d", "").Socket(); got != filepath.Join(dir, ".agentenv/apps/d.sock") {
		t.Error(got)
	}
}

// TestA10 holds what is served, and what the card says of it (A11).
func TestA10(t *testing.T) {
	t.Parallel()
	add := func(context.Context, []*app.Part) error { return nil }
	get := func(context.Context, *env.Namespace) ([]wire.Part, error) {
		return []wire.Part{wire.TextPart("x")}, nil
	}
	reset := func(context.Context) error { return nil }
	for name, c := range map[string]struct {
		a              app.App
		methods, tree  string
		exportsToGrant bool
	}{
		"nothing": {app.App{}, "", "", false},
		"paths":   {app.App{Paths: []string{"N"}}, "data/reset data/add data/get", "add get", true},
		"hooks":   {app.App{Add: add, Get: get, Reset: reset}, "data/reset data/add data/get", "", true},
		"add":     {app.App{Add: add}, "data/add", "", false},
		"mixed":   {app.App{Paths: []string{"N"}, Get: get}, "data/reset data/add data/get", "add", true},
		"reset":   {app.App{Paths: []string{"N"}, Add: add, Reset: reset}, "data/reset data/add data/get", "get", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.a.Name = "notes"
			r := serve(t, c.a, nil)
			_, b := r.ask(http.MethodGet, wire.CardPath, "")
			card, err := wire.ParseCard([]byte(b))
			if err != nil {
				t.Fatal(err)
			}
			r.is("operations", strings.Join(card.Capabilities.Operations, " "), c.methods)
			tree := ""
			if x := card.Extension(wire.URNIntake); x != nil {
				var params map[string]json.RawMessage
				if err := json.Unmarshal(x.Params, &params); err != nil {
					t.Fatal(err)
				}
				for _, k := range []string{"add", "get"} {
					if strings.Contains(string(params[k]), "file-tree") {
						tree = strings.TrimSpace(tree + " " + k)
					}
				}
			}
			r.is("the tree", tree, c.tree)
			if got := card.Extension(wire.URNDataObjects) != nil; got != c.exportsToGrant {
				t.Errorf("data-objects: %v", got)
			}
			if !strings.Contains(c.methods, "reset") {
				r.is("a reset", r.reset(), "-32601 : method not found: data/reset")
			}
		})
	}
}

// TestA12: a load that would write elsewhere is refused before anything is written.
func TestA12(t *testing.T) {
	t.Parallel()
	outside := t.TempDir()
	r := serve(t, notes(), map[string]string{"Notes/welcome": "hi", "Documents/d": "d"})
	for link, to := range map[string]string{"Notes/up": "../Documents", "Notes/out": outside, "Notes/file": filepath.Join(r.home, "Documents/d"), "Notes/in": "deep", "linked": "Notes"} {
		if err := os.Symlink(to, filepath.Join(r.home, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(r.home, "Notes/deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The links came after the copy: each load that fails takes them away, so that each needs a server of its own state.
	links := map[string]string{"Notes/up/x": "by a link", "Notes/out/x": "it leads out of the home by a link", "linked/x": "it lies outside Notes, .notesrc", "NotesToo": "it lies outside", "../x": "the path must be relative", ".agentenv/x": "it lies outside", "Documents/d": "it lies outside", ".notesrc/x": ""}
	for path, want := range links {
		if err := errors.Join(os.RemoveAll(filepath.Join(r.home, "Notes/up")), os.RemoveAll(filepath.Join(r.home, "Notes/out"))); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(os.Symlink("../Documents", filepath.Join(r.home, "Notes/up")), os.Symlink(outside, filepath.Join(r.home, "Notes/out"))); err != nil {
			t.Fatal(err)
		}
		got := r.add(file("Notes/first", "1"), file(path, "2"))
		if want == "" {
			r.is(path, got, "{}")
			continue
		}
		if !strings.HasPrefix(got, "-32000 add_failed: parts[1]: ") || !strings.Contains(got, want) {
			t.Errorf("%s: %s", path, got)
		}
		if _, err := os.Lstat(filepath.Join(r.home, "Notes/first")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: something was written", path)
		}
	}
	if e, err := os.ReadDir(outside); err != nil || len(e) != 0 {
		t.Errorf("%v %v", e, err)
	}
	if b, err := os.ReadFile(filepath.Join(r.home, "Documents/d")); err != nil || string(b) != "d" {
		t.Errorf("%q %v", b, err)
	}
	// A link to a folder of the app's own is followed; a link in the place of a file is replaced.
	if err := errors.Join(os.MkdirAll(filepath.Join(r.home, "Notes/deep"), 0o755), os.Symlink("deep", filepath.Join(r.home, "Notes/in")), os.Symlink("../Documents/d", filepath.Join(r.home, "Notes/file"))); err != nil {
		t.Fatal(err)
	}
	r.is("a load", r.add(file("Notes/in/x", "3"), file("Notes/file", "4")), "{}")
	if b, err := os.ReadFile(filepath.Join(r.home, "Notes/deep/x")); err != nil || string(b) != "3" {
		t.Errorf("%q %v", b, err)
	}
	if b, err := os.ReadFile(filepath.Join(r.home, "Documents/d")); err != nil || string(b) != "d" {
		t.Errorf("the link's target is %q %v", b, err)
	}
	if e, err := os.ReadDir(filepath.Join(r.home, ".agentenv/tmp")); err != nil || len(e) != 0 {
		t.Errorf("%v %v", e, err)
	}
}

// TestA13 holds what an export answers: links as the driver's does, nothing from outside the home, nothing twice.
func TestA13(t *testing.T) {
	t.Parallel()
	r := serve(t, app.App{Name: "notes", Paths: []string{"b", "a", "gone", "f"}}, map[string]string{"a/1": "1", "b/2": "2", "else/3": "3", "f": "f"})
	outside := filepath.Join(t.TempDir(), "secret")
	write(t, outside, "s")
	for link, to := range map[string]string{"a/in": "../else/3", "a/out": outside, "a/folder": "../else", "a/self": "../.agentenv/apps/notes.lock"} {
		if err := os.Symlink(to, filepath.Join(r.home, link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.Mkfifo(filepath.Join(r.home, "a/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.is("the export", r.tree(), "b/2=2 a/1=1 a/in=3 f=f")
}

// TestA14Links: a reset brings back links, modes and folders that can't be written to, and takes away what was not there.
func TestA14Links(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	write(t, filepath.Join(home, "Notes/dir/f"), "f")
	if err := errors.Join(os.Symlink("dir/f", filepath.Join(home, "Notes/l")), os.Symlink("/etc/hostname", filepath.Join(home, "Notes/abs")), os.Chmod(filepath.Join(home, "Notes/dir/f"), 0o700),
		os.Chmod(filepath.Join(home, "Notes/dir"), 0o500), os.Mkdir(filepath.Join(home, "Notes/empty"), 0o750)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(home, "Notes/dir"), 0o700) })
	r := serveIn(t, home, notes())
	if err := errors.Join(os.Remove(filepath.Join(home, "Notes/l")), os.Remove(filepath.Join(home, "Notes/empty")), os.Chmod(filepath.Join(home, "Notes/dir"), 0o755)); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(home, ".notesrc"), "new")
	write(t, filepath.Join(home, "Notes/locked/x"), "new")
	if err := os.Chmod(filepath.Join(home, "Notes/locked"), 0); err != nil {
		t.Fatal(err)
	}
	r.is("a reset", r.reset(), "{}")
	var got []string
	for _, p := range []string{"Notes/l", "Notes/abs", "Notes/dir", "Notes/dir/f", "Notes/empty", "Notes/locked", ".notesrc"} {
		st, err := os.Lstat(filepath.Join(home, p))
		if err != nil {
			got = append(got, "-")
			continue
		}
		got = append(got, st.Mode().String())
	}
	r.is("what is there", strings.Join(got, " "), "Lrwxrwxrwx Lrwxrwxrwx dr-x------ -rwx------ drwxr-x--- - -")
	_ = os.Chmod(filepath.Join(home, ".agentenv/initial/notes/Notes/dir"), 0o700)
	t.Cleanup(func() { _ = os.Chmod(filepath.Join(home, ".agentenv/initial/notes/Notes/dir"), 0o700) })
}

// TestA15: the copy is made once a boot.
func TestA15(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	write(t, filepath.Join(home, "Notes/a"), "first")
	open := func() {
		s, err := app.Open(t.Context(), notes(), app.Options{Home: home})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	copied := func() string {
		b, err := os.ReadFile(filepath.Join(home, ".agentenv/initial/notes/Notes/a"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	open()
	write(t, filepath.Join(home, "Notes/a"), "second")
	open()
	if copied() != "first" {
		t.Error("a restart on the same boot made another copy")
	}
	write(t, filepath.Join(home, ".agentenv/initial/notes.boot"), "another boot\n")
	open()
	if copied() != "second" {
		t.Error("the first start on a boot made no copy")
	}
	// One that was killed while it copied has left no copy.
	if err := os.Remove(filepath.Join(home, ".agentenv/initial/notes.boot")); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(home, ".agentenv/initial/notes.new/Notes/half"), "x")
	open()
	if e, err := os.ReadDir(filepath.Join(home, ".agentenv/initial")); err != nil || len(e) != 2 {
		t.Errorf("%v %v", e, err)
	}
}

// TestA16: each hook replaces its default, and no other.
func TestA16(t *testing.T) {
	t.Parallel()
	a := notes()
	var got []string
	a.Add = func(ctx context.Context, parts []*app.Part) error {
		for _, p := range parts {
			b, err := p.Bytes(ctx)
			if err != nil {
				return err
			}
			got = append(got, p.Kind+":"+p.Path+":"+string(b))
		}
		return nil
	}
	r := serve(t, a, map[string]string{"Notes/a": "1"})
	r.is("a load", r.add(file("anywhere/x", "x"), `{"kind":"file","file":{"bytes":"eQ=="}}`, `{"kind":"data","data":{"z":1}}`, `{"kind":"text","text":"t"}`), "{}")
	r.is("what the hook got", strings.Join(got, " "), `file:anywhere/x:x file::y data::{"z":1} text::t`)
	r.is("a load", r.add(file("../x", "x")), `-32000 add_failed: parts[0]: "../x": the path must be relative, without empty, . or .. segments`)
	r.is("the export", r.tree(), "Notes/a=1")
}

// TestEachHookAlone: a hook replaces one of the three, and the other two stay what they are (A16).
func TestEachHookAlone(t *testing.T) {
	t.Parallel()
	for hook, want := range map[string]string{"add": "{} Notes/a=1 Notes/b=2", "get": "{} =mine", "reset": "{} Notes/a=1 Notes/b=2 Notes/c=3"} {
		a := notes()
		called := 0
		switch hook {
		case "add":
			a.Add = func(context.Context, []*app.Part) error { called++; return nil }
		case "get":
			a.Get = func(context.Context, *env.Namespace) ([]wire.Part, error) {
				called++
				return []wire.Part{wire.TextPart("mine")}, nil
			}
		case "reset":
			a.Reset = func(context.Context) error { called++; return nil }
		}
		r := serve(t, a, map[string]string{"Notes/a": "1", "Notes/b": "2"})
		r.is("a load", r.add(file("Notes/c", "3")), "{}")
		if _, err := os.Stat(filepath.Join(r.home, "Notes/c")); (err == nil) != (hook != "add") {
			t.Errorf("%s: a load wrote, or didn't: %v", hook, err)
		}
		r.is(hook, r.reset()+" "+r.tree(), want)
		if called != 1 {
			t.Errorf("%s: called %d times", hook, called)
		}
	}
}

// TestGrants: what a part's grant leads to is loaded, checked, and an export is uploaded where the caller grants it (A13, A17).
func TestGrants(t *testing.T) {
	t.Parallel()
	var form string
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/seed":
			_, _ = w.Write([]byte("granted"))
		case "/moved":
			http.Redirect(w, r, "/seed", http.StatusFound)
		case "/up":
			f, h, err := r.FormFile("file")
			if err != nil {
				t.Error(err)
				return
			}
			b, err := io.ReadAll(f)
			form += fmt.Sprintf("%s %s %s %v;", r.FormValue("key"), h.Filename, b, err)
			w.WriteHeader(http.StatusNoContent)
		}
	}))
	defer web.Close()
	home := t.TempDir()
	s, err := app.Open(t.Context(), notes(), app.Options{Home: home, Client: web.Client()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close(context.WithoutCancel(t.Context())) }()
	h, err := s.Handler()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t, home, s, httptest.NewServer(h)}
	defer r.web.Close()
	sum := sha256.Sum256([]byte("granted"))
	granted := func(at string, size int, sha string) string {
		return fmt.Sprintf(`{"kind":"file","file":{"uri":"seed"},"metadata":{"urn:agentenv:data-objects/v1":{"path":"Notes/n.txt","read":{"media_type":"text/plain","max_bytes":1000,"size_bytes":%d,"sha256":%q,"read":{"kind":"http-get","url":%q,"expires_at":"2100-01-01T00:00:00Z"}}}}}`, size, sha, web.URL+at)
	}
	good := hex.EncodeToString(sum[:])
	r.is("a load", r.add(granted("/seed", 7, good)), "{}")
	r.is("the export", r.tree(), "Notes/n.txt=granted")
	for name, part := range map[string]string{"another digest": granted("/seed", 7, strings.Repeat("0", 64)), "another size": granted("/seed", 8, good), "a redirect": granted("/moved", 7, good)} {
		if got := r.add(part); !strings.HasPrefix(got, "-32000 add_failed: parts[0]: Notes/n.txt: ") {
			t.Errorf("%s: %s", name, got)
		}
	}
	r.is("a load", r.add(file("Notes/a/b.txt", "x")), "{}")
	got := r.rpc(wire.Get, fmt.Sprintf(`{"write_namespace":{"root_path":"snap","expires_at":"2100-01-01T00:00:00Z","max_objects":9,"max_object_bytes":1000,"max_total_bytes":1000,"write":{"kind":"http-post-policy","url":%q,"fields":{},"path_field":"key","file_field":"file","headers":{}}}}`, web.URL+"/up"))
	r.is("the export", got, `{"parts":[{"kind":"file","file":{"uri":"Notes/a/b.txt","mimeType":"text/plain","name":"b.txt"},"metadata":{"urn:agentenv:data-objects/v1":{"path":"Notes/a/b.txt"}}}]}`)
	r.is("the upload", form, "snap/Notes/a/b.txt b.txt x <nil>;")
}

// TestSocketOfTheSession: the session says where a server listens (A9).
func TestSocketOfTheSession(t *testing.T) {
	t.Parallel()
	at := filepath.Join(t.TempDir(), "given.sock")
	s, err := app.Open(t.Context(), notes(), app.Options{Home: t.TempDir(), Lookup: func(name string) (string, bool) { return at, name == app.SocketVariable }})
	if err != nil {
		t.Fatal(err)
	}
	if s.Socket() != at {
		t.Error(s.Socket())
	}
	if err := s.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestA17: a part's bytes stand in it, or come from an https address; where they come by a grant, package transfer reads them.
func TestA17(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/a" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte("from afar"))
	}))
	defer web.Close()
	s, err := app.Open(t.Context(), notes(), app.Options{Home: t.TempDir(), Client: web.Client()})
	if err != nil {
		t.Fatal(err)
	}
	h, err := s.Handler()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, home: s.Home(), s: s, web: httptest.NewServer(h)}
	defer func() {
		r.web.Close()
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	at := func(uri string) string {
		return `{"kind":"file","file":{"uri":"` + uri + `"},"metadata":{"urn:agentenv:data-objects/v1":{"path":"Notes/n"}}}`
	}
	r.is("a load", r.add(at(web.URL+"/a")), "{}")
	r.is("the export", r.tree(), "Notes/n=from afar")
	host := strings.TrimPrefix(web.URL, "https://")
	r.is("a load", r.add(at(web.URL+"/b")), "-32000 add_failed: parts[0]: Notes/n: fetch it from "+host+": it answered 403")
	r.is("a load", r.add(at("file:///etc/hostname")), "-32000 add_failed: parts[0]: Notes/n: its uri must begin with https://")
	r.is("a load", r.add(`{"kind":"file","file":{"bytes":"e"},"metadata":{"urn:agentenv:data-objects/v1":{"path":"Notes/n"}}}`), "-32000 add_failed: parts[0]: Notes/n: its bytes aren't base64")
	got := r.add(`{"kind":"file","file":{"bytes":"eQ=="},"metadata":{"urn:agentenv:data-objects/v1":{"path":"Notes/n","read":{"media_type":"text/plain"}}}}`)
	if !strings.HasPrefix(got, "-32000 add_failed: parts[0]: Notes/n: not a valid object to read (") {
		t.Error(got)
	}
	r.is("the export", r.tree(), "") // what failed was followed by a reset
}

// TestA18: the skill is served as its folder has it, and isn't on the card of an app without.
func TestA18(t *testing.T) {
	t.Parallel()
	a := notes()
	a.Skill = &app.Skill{Name: "notes", Description: "How notes are kept.", Folder: fstest.MapFS{"SKILL.md": {Data: []byte("body")}, "a/b": {Data: []byte{0}}}}
	r := serve(t, a, nil)
	_, b := r.ask(http.MethodGet, wire.SkillPath, "")
	s, err := wire.ParseEnvSkill([]byte(b))
	if err != nil || s.Name != "notes" || s.Description != "How notes are kept." || len(s.Files) != 2 || string(s.Files[0].Bytes) != "body" {
		t.Errorf("%+v %v", s, err)
	}
	_, b = serve(t, notes(), nil).ask(http.MethodGet, wire.CardPath, "")
	if card, err := wire.ParseCard([]byte(b)); err != nil || card.Extension(wire.URNSkill) != nil || card.Name != "notes" {
		t.Errorf("%+v %v", card, err)
	}
}

// FuzzReadPart: a part's own words never lead out of a home.
func FuzzReadPart(f *testing.F) {
	for _, s := range []string{file("a/b", "x"), `{"kind":"text","text":"t"}`, `{"kind":"data","data":{}}`, file("../x", ""), `{"kind":"file","file":{"uri":"https://x/y"},"metadata":{"urn:agentenv:data-objects/v1":{"path":"a","read":null}}}`, `{"kind":"file","file":{"bytes":""},"metadata":{"urn:agentenv:data-objects/v1":[]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var p wire.Part
		if json.Unmarshal(b, &p) != nil {
			return
		}
		r, err := app.ReadPart(p)
		if err != nil {
			return
		}
		if r.Path != "" && (filepath.IsAbs(r.Path) || !filepath.IsLocal(r.Path) || filepath.Clean(r.Path) != r.Path) {
			t.Errorf("%q", r.Path)
		}
		if p.Kind != wire.KindFile || p.File.Inline() && len(p.Metadata) == 0 {
			if _, _, err := app.PartBytes(t.Context(), p); err != nil && p.Kind != wire.KindFile {
				t.Error(err)
			}
		}
	})
}
