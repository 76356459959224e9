package git

import (
	"errors"
	"strings"
	"testing"
	"time"
)

const sha = "0123456789012345678901234567890123456789"

// Row 49.
func TestLockBytes(t *testing.T) {
	t.Parallel()
	l, err := ReadLock("plugins.lock", nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Put(Row{ID: "b", SourceURL: "https://h/b?<&>", ResolvedSHA: sha, InstalledAt: Stamp(time.Unix(0, 1000)), By: "cli"})
	l.Put(Row{ID: "a", SourceURL: "https://h/a", ResolvedSHA: sha, By: "cli"})
	b, err := l.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if !strings.HasPrefix(text, "{\n  \"version\": 2,\n  \"plugins\": [\n    {\n      \"id\": \"a\",") || !strings.HasSuffix(text, "}\n") || strings.Contains(text, "bundles") {
		t.Errorf("the lock is %s", text)
	}
	if !strings.Contains(text, `"installed_at": "1970-01-01T00:00:00.000001+00:00"`) || !strings.Contains(text, "<&>") {
		t.Errorf("the lock is %s", text)
	}
	again, err := ReadLock("plugins.lock", b)
	if err != nil {
		t.Fatal(err)
	}
	if b2, err := again.Bytes(); err != nil || string(b2) != text {
		t.Errorf("written again: %s, %v", b2, err)
	}
	again.PutBundle(BundleRow{ID: "x", Plugins: []string{"a"}})
	again.PutBundle(BundleRow{ID: "w"})
	again.PutBundle(BundleRow{ID: "x"})
	if b2, err := again.Bytes(); err != nil || strings.Index(string(b2), `"id": "w"`) > strings.Index(string(b2), `"id": "x"`) || !strings.Contains(string(b2), `"enabled": []`) {
		t.Errorf("bundles: %s, %v", b2, err)
	}
}

// Rows 50, 53: the peer's first format, an older shape in it, and rows that can't be meant.
func TestReadLockOld(t *testing.T) {
	t.Parallel()
	l, err := ReadLock("plugins.lock", []byte(`{
  "plugins": [
    {"id": "a", "source_url": "https://h/1", "resolved_sha": "x"}, 5, {"name": "no id"}, {"id": "z", "by": 7},
    {"id": "a", "source_url": "https://h/2", "requested_ref": "", "unknown": [1]}
  ],
  "bundles": [{"id": "odd.name", "plugins": ["a"], "config": {"a": {"k": 1}}}],
  "a": {"deps": [{"name": "n", "version": "1", "sha256": "s"}]}, "old": {"deps": []}, "other": 3
}`))
	if err != nil {
		t.Fatal(err)
	}
	if a := l.Plugin("a"); l.Version != 1 || a == nil || a.SourceURL != "https://h/2" || !strings.Contains(string(a.Deps), `"n"`) {
		t.Errorf("version %d, row %+v", l.Version, a)
	}
	if len(l.Plugins) != 2 || l.Plugin("old") == nil || l.Bundle("odd.name") == nil {
		t.Errorf("rows %+v, bundles %+v", l.Plugins, l.Bundles)
	}
	var told []string
	for _, p := range l.Problems {
		told = append(told, p.String())
	}
	all := strings.Join(told, "\n")
	for _, want := range []string{"plugins[1]: it is no row", "plugins[2]: it has no id", "plugins[3]: a value of it", "plugins[4]: the id 'a' is there twice"} {
		if !strings.Contains(all, want) {
			t.Errorf("problems lack %q: %s", want, all)
		}
	}
	b, err := l.Bytes()
	if err != nil || !strings.Contains(string(b), `"version": 2`) || strings.Contains(string(b), `"old": {`) {
		t.Errorf("written: %s, %v", b, err)
	}
}

// Rows 51, 55, 56.
func TestReadLockRefuses(t *testing.T) {
	t.Parallel()
	for name, src := range map[string]string{
		"truncated": `{"plugins": [`, "binary": "\x00\xff\xfe", "a list": "[]", "null": "null", "invalid UTF-8": "{\"plugins\": [{\"id\": \"\xff\"}]}",
		"plugins no list": `{"plugins": {}}`, "newer": `{"version": 3, "plugins": []}`, "version no number": `{"version": "2"}`,
		"id ..": `{"plugins": [{"id": ".."}]}`, "id a/b": `{"plugins": [{"id": "a/b"}]}`, "absolute id": `{"plugins": [{"id": "/etc"}]}`, "bundle id": `{"bundles": [{"id": "../x"}]}`,
	} {
		if _, err := ReadLock("plugins.lock", []byte(src)); !errors.Is(err, ErrLock) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReadLock(f *testing.F) {
	f.Add([]byte(`{"version":2,"plugins":[{"id":"a","deps":[]}],"bundles":[{"id":"b"}],"c":{"deps":[1]}}`))
	f.Fuzz(func(t *testing.T, src []byte) {
		l, err := ReadLock("plugins.lock", src)
		if err != nil {
			return
		}
		b, err := l.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ReadLock("plugins.lock", b)
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if b2, err := again.Bytes(); err != nil || string(b2) != string(b) {
			t.Fatalf("%q then %q, %v", b, b2, err)
		}
	})
}
