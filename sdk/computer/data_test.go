package computer_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/computer"
)

func filePart(path, content string) string {
	return fmt.Sprintf(`{"kind":"file","file":{"bytes":%q},"metadata":{"urn:agentenv:data-objects/v1":{"path":%q}}}`, base64.StdEncoding.EncodeToString([]byte(content)), path)
}

func (r *rig) add(parts ...string) string {
	r.t.Helper()
	return r.rpc("data/add", `{"parts":[`+strings.Join(parts, ",")+`]}`)
}

func (r *rig) reads(path, want string) {
	r.t.Helper()
	b, err := os.ReadFile(filepath.Join(r.home, path))
	if err != nil || string(b) != want {
		r.t.Errorf("%s is %q, %v; want %q", path, b, err, want)
	}
}

// TestDataAdd holds rows D1 to D6, D9.
func TestDataAdd(t *testing.T) {
	r := serve(t, newDesk(), nil)
	outside := t.TempDir()
	for link, to := range map[string]string{"out": outside, "folder": filepath.Join(r.home, "real"), "file": "kept", "dangling": filepath.Join(outside, "new")} {
		if err := os.Symlink(to, filepath.Join(r.home, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"kept": "kept", "plain": "old"} {
		if err := os.WriteFile(filepath.Join(r.home, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(r.home, "real"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := r.add(filePart("a/b/c.txt", "1"), filePart("plain", "2"), filePart("folder/d", "3"), filePart("file", "4"), filePart("plain", "5")); !strings.Contains(got, `"result":{}`) {
		t.Fatal(got)
	}
	r.reads("a/b/c.txt", "1")
	r.reads("plain", "5") // the last of a path wins
	r.reads("real/d", "3")
	r.reads("file", "4")
	r.reads("kept", "kept") // what a link named is left alone
	if st, err := os.Stat(filepath.Join(r.home, "a/b/c.txt")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	for _, p := range []string{"../x", "/etc/x", "a//b", "", ".", "a\\b", "out/x", "dangling", "a/b", "plain/x", ".agentenv/apps/x"} {
		if got := r.add(filePart("before", "x"), filePart(p, "evil")); !strings.Contains(got, `"code":-32000`) || !strings.Contains(got, `"add_failed"`) || strings.Contains(got, r.home) {
			t.Errorf("%q: %s", p, got)
		}
	}
	if left, err := os.ReadDir(outside); err != nil || len(left) != 0 {
		t.Errorf("outside: %v %v", left, err)
	}
	if left, err := filepath.Glob(filepath.Join(r.home, ".agentenv-*")); err != nil || len(left) != 0 {
		t.Errorf("left over: %v %v", left, err)
	}
	for _, part := range []string{`{"kind":"text","text":"x"}`, `{"kind":"data","data":{}}`, `{"kind":"file","file":{"bytes":"AA=="}}`, strings.Replace(filePart("p", "x"), "eA==", "eA", 1)} {
		if got := r.add(part); !strings.Contains(got, `"add_failed"`) {
			t.Errorf("%s: %s", part, got)
		}
	}
	for _, uri := range []string{"http://127.0.0.1/x", "file:///etc/passwd", "ftp://h/x"} {
		part := fmt.Sprintf(`{"kind":"file","file":{"uri":%q},"metadata":{"urn:agentenv:data-objects/v1":{"path":"p"}}}`, uri)
		if got := r.add(part); !strings.Contains(got, "https://") {
			t.Errorf("%s: %s", uri, got)
		}
	}
	if got := r.rpc("data/add", `{"parts":[]}`); !strings.Contains(got, `-32602`) {
		t.Error(got)
	}
	if got := r.rpc("data/reset", `{}`); !strings.Contains(got, `-32601`) {
		t.Error(got)
	}
}

// TestDataFetched: files come from https addresses, all before the first is written (D3, D4).
func TestDataFetched(t *testing.T) {
	store := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/seed" {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		fmt.Fprint(w, "fetched")
	}))
	defer store.Close()
	r := serve(t, newDesk(), func(o *computer.Options) { o.Client = store.Client() })
	from := func(path, uri string) string {
		return fmt.Sprintf(`{"kind":"file","file":{"uri":%q},"metadata":{"urn:agentenv:data-objects/v1":{"path":%q}}}`, uri, path)
	}
	if got := r.add(from("x", store.URL+"/seed?signature=secret")); !strings.Contains(got, `"result":{}`) {
		t.Error(got)
	}
	r.reads("x", "fetched")
	if got := r.add(filePart("first", "1"), from("y", store.URL+"/no?signature=secret")); !strings.Contains(got, "it answered 403") || strings.Contains(got, "secret") {
		t.Error(got)
	}
	if _, err := os.Stat(filepath.Join(r.home, "first")); err == nil {
		t.Error("a file was written before all were fetched")
	}
}

// TestDataGet holds rows D7, D8, D10.
func TestDataGet(t *testing.T) {
	r := serve(t, newDesk(), settings(func(s *computer.Settings) {
		s.DataPaths = []string{"docs", "missing", "docs/b.txt", "linked", "one.bin"}
	}))
	outside := t.TempDir()
	for name, text := range map[string]string{"docs/b.txt": "b", "docs/a/z.json": "{}", "target/t": "t", "one.bin": "\x00", "other/o": "o", outside + "/secret": "s", "secret": "not asked for"} {
		p := name
		if !filepath.IsAbs(p) {
			p = filepath.Join(r.home, name)
		}
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for link, to := range map[string]string{"docs/in": "../other/o", "docs/out": outside + "/secret", "docs/nested": "../target", "linked": "target"} {
		if err := os.Symlink(to, filepath.Join(r.home, link)); err != nil {
			t.Fatal(err)
		}
	}
	part := func(path, media, content string) string {
		return fmt.Sprintf(`{"kind":"file","file":{"bytes":%q,"mimeType":%q,"name":%q},"metadata":{"urn:agentenv:data-objects/v1":{"path":%q}}}`, base64.StdEncoding.EncodeToString([]byte(content)), media, filepath.Base(path), path)
	}
	want := strings.Join([]string{
		part("docs/a/z.json", "application/json", "{}"), part("docs/b.txt", "text/plain", "b"), part("docs/in", "application/octet-stream", "o"),
		part("linked/t", "application/octet-stream", "t"), part("one.bin", "application/octet-stream", "\x00"),
	}, ",")
	if got := r.rpc("data/get", `{}`); !strings.HasSuffix(got, `"result":{"parts":[`+want+`]}}`) {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got := r.rpc("data/get", `{"file_paths":["other"]}`); !strings.Contains(got, `"path":"other/o"`) || strings.Contains(got, "docs") {
		t.Error(got)
	}
	if got := r.rpc("data/get", `{"file_paths":[]}`); !strings.HasSuffix(got, `{"parts":[]}}`) {
		t.Error(got)
	}
	for _, bad := range []string{`["../x"]`, `["/etc"]`, `"docs"`, `[1]`} {
		if got := r.rpc("data/get", `{"file_paths":`+bad+`}`); !strings.Contains(got, `-32602`) || !strings.Contains(got, "file_paths") {
			t.Errorf("%s: %s", bad, got)
		}
	}
}
