package artifactstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

func getInto(t *testing.T, l *Library, id string, o Target) string {
	t.Helper()
	_, err := l.Get(t.Context(), id, 0, o)
	return problems(t, err)
}

// left are the hidden folders that a Get left in a folder.
func left(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, stagePrefix+"*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestGetIntoFolders(t *testing.T) {
	l := inMemory()
	in := write(t, t.TempDir(), map[string]string{"a.txt": "new", "sub/b.sh": "x new", "l": "-> a.txt", "none/": ""})
	mustPut(t, l, Put{Type: artifact.FileUniverse, ID: "@local/u", Paths: []string{in}})
	base := t.TempDir()
	at := func(name string) string { return filepath.Join(base, name) }

	if text := getInto(t, l, "@local/u", Target{Dir: at("deep/er/out")}); text != "" {
		t.Error(text)
	}
	same(t, "a new folder", tree(t, at("deep/er/out")), tree(t, in))

	write(t, at("empty"), map[string]string{"./": ""})
	before, err := os.Stat(at("empty"))
	if err != nil {
		t.Fatal(err)
	}
	if text := getInto(t, l, "@local/u", Target{Dir: at("empty")}); text != "" {
		t.Error(text)
	}
	same(t, "an empty folder", tree(t, at("empty")), tree(t, in))
	if after, err := os.Stat(at("empty")); err != nil || !os.SameFile(before, after) {
		t.Error("the folder, which may be somebody's working folder, was replaced")
	}

	write(t, at("full"), map[string]string{"a.txt": "old", "other": "mine", "sub/c": "mine", "l": "old", "real/x": "1", "link": "-> real"})
	was := tree(t, at("full"))
	if text := getInto(t, l, "@local/u", Target{Dir: at("full")}); !strings.Contains(text, "holds files already; name a new folder; or with --force") {
		t.Error(text)
	}
	same(t, "a refused folder", tree(t, at("full")), was)
	if text := getInto(t, l, "@local/u", Target{Dir: at("full"), Force: true}); text != "" {
		t.Error(text)
	}
	same(t, "forced", tree(t, at("full")), []string{
		"644 a.txt=new", "l->a.txt", "link->real", "755 none/", "644 other=mine", "644 real/x=1", "755 sub/b.sh=new", "644 sub/c=mine",
	})

	write(t, at("blocked"), map[string]string{"a.txt/x": "1", "sub": "file", "none": "file"})
	was = tree(t, at("blocked"))
	text := getInto(t, l, "@local/u", Target{Dir: at("blocked"), Force: true})
	for _, want := range []string{"'a.txt' is a folder, and the artifact has a file there", "'sub' is no folder, and the artifact has one there", "'none' is no folder"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q isn't told in\n%s", want, text)
		}
	}
	same(t, "blocked", tree(t, at("blocked")), was)

	write(t, at("special"), map[string]string{"a.txt": "1"})
	write(t, at("outside-file"), map[string]string{"x": "1"})
	pipe := filepath.Join(at("special"), "a.txt")
	if err := errors.Join(os.Remove(pipe), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	mustPut(t, l, Put{Type: artifact.File, ID: "@local/one", Paths: []string{filepath.Join(at("outside-file"), "x")}})
	for id, target := range map[string]Target{"@local/u": {Dir: at("special"), Force: true}, "@local/one": {File: pipe, Force: true}} {
		if text := getInto(t, l, id, target); !strings.Contains(text, "a device, a pipe or a socket, which is not replaced") {
			t.Error(text)
		}
		if fi, err := os.Lstat(pipe); err != nil || fi.Mode()&os.ModeNamedPipe == 0 {
			t.Errorf("the pipe was replaced: %v, %v", fi, err)
		}
	}

	// Links in the target never lead out of it.
	outside := write(t, at("outside"), map[string]string{"b.sh": "mine"})
	write(t, at("trap"), map[string]string{"sub": "-> " + outside})
	if text := getInto(t, l, "@local/u", Target{Dir: at("trap"), Force: true}); !strings.Contains(text, "'sub' can't be used") {
		t.Error(text)
	}
	same(t, "outside", tree(t, outside), []string{"644 b.sh=mine"})

	write(t, base, map[string]string{"file": "1", "broken": "-> nowhere"})
	if text := getInto(t, l, "@local/u", Target{Dir: at("file")}); !strings.Contains(text, "exists and is no folder") {
		t.Error(text)
	}
	if text := getInto(t, l, "@local/u", Target{Dir: at("broken")}); !strings.Contains(text, "is a link that leads nowhere") {
		t.Error(text)
	}
	for _, dir := range []string{base, at("full"), at("blocked"), at("empty"), at("deep/er")} {
		if found := left(t, dir); len(found) > 0 {
			t.Errorf("left: %v", found)
		}
	}
}

func TestGetIntoAFile(t *testing.T) {
	l := inMemory()
	in := write(t, t.TempDir(), map[string]string{"tool": "x #!/bin/sh\n", "u/a": "1", "u/b": "2", "l/t": "1", "l/k": "-> t"})
	mustPut(t, l, Put{Type: artifact.File, ID: "@local/f", Paths: []string{filepath.Join(in, "tool")}})
	mustPut(t, l, Put{Type: artifact.Environment, ID: "@local/e", Paths: []string{filepath.Join(in, "tool")}, EnvironmentName: "mail"})
	mustPut(t, l, Put{Type: artifact.FileUniverse, ID: "@local/u", Paths: []string{filepath.Join(in, "u")}})
	out := t.TempDir()
	for _, id := range []string{"@local/f", "@local/e"} {
		to := filepath.Join(out, ref.Last(id))
		if text := getInto(t, l, id, Target{File: to}); text != "" {
			t.Error(text)
		}
		if text := getInto(t, l, id, Target{File: to}); !strings.Contains(text, "exists already; name another file, or replace it with --force") {
			t.Error(text)
		}
		if err := os.WriteFile(to, []byte("something longer than the file was before"), 0o600); err != nil {
			t.Fatal(err)
		}
		if text := getInto(t, l, id, Target{File: to, Force: true}); text != "" {
			t.Error(text)
		}
	}
	same(t, "files", tree(t, out), []string{"755 e=#!/bin/sh\n", "755 f=#!/bin/sh\n"})
	if text := getInto(t, l, "@local/u", Target{File: filepath.Join(out, "x")}); !strings.Contains(text, "@local/u v1 holds 2 files; write them into a folder") {
		t.Error(text)
	}
	if text := getInto(t, l, "@local/f", Target{File: out}); !strings.Contains(text, "is a folder; name a file") {
		t.Error(text)
	}
}

func TestGetOfNothing(t *testing.T) {
	l := inMemory()
	digest := ref.DigestOf(nil)
	in := write(t, t.TempDir(), map[string]string{"a": "1"})
	mustPut(t, l, Put{Type: artifact.DockerImage, ID: "@local/i", Ref: "registry.example/a:1@" + string(digest)})
	mustPut(t, l, Put{Type: artifact.File, ID: "@local/f", Paths: []string{filepath.Join(in, "a")}})
	out := Target{Dir: filepath.Join(t.TempDir(), "out")}
	if text := getInto(t, l, "@local/none", out); text != "there is no artifact '@local/none' in the store; agent-env artifact list shows what is there" {
		t.Error(text)
	}
	_, err := l.Get(t.Context(), "@local/f", 3, out)
	if text := problems(t, err); text != "there is no version 3 of '@local/f' in the store; the latest is version 1" || !errors.Is(err, store.ErrNotFound) {
		t.Error(text)
	}
	_, err = l.Get(t.Context(), "@local/i", 0, out)
	if !errors.Is(err, artifact.ErrNoFiles) || !strings.Contains(err.Error(), "it is the image registry.example/a:1@"+string(digest)+" of a registry") {
		t.Error(err)
	}
	shown, err := l.Show(t.Context(), "@local/i", 0)
	if err != nil || len(shown.Files) != 0 || shown.Layout != "" || shown.About != "registry.example/a:1@"+string(digest) {
		t.Errorf("%+v, %v", shown, err)
	}
	if _, err := os.Stat(out.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Error("something was written")
	}
}

// objects are the files that hold the large objects of a store.
func objectFile(t *testing.T, root string, content string) string {
	t.Helper()
	h := ref.DigestOf([]byte(content)).Hex()
	p := filepath.Join(root, "objects", h[:2], h)
	if _, err := os.Stat(p); err != nil {
		t.Fatal(err)
	}
	return p
}

// Damaged bytes are all named, with the objects, and nothing is written.
func TestGetOfDamagedBytes(t *testing.T) {
	l, root := library(t)
	big := func(c string) string { return strings.Repeat(c, store.MaxInline+1) }
	in := write(t, t.TempDir(), map[string]string{"a": big("a"), "b": big("b"), "c": big("c"), "good": big("d"), "small": "1"})
	mustPut(t, l, Put{Type: artifact.FileUniverse, ID: "@local/u", Paths: []string{in}})
	mustPut(t, l, Put{Type: artifact.File, ID: "@local/f", Paths: []string{filepath.Join(in, "a")}})
	for content, damage := range map[string]func(string) error{
		big("a"): func(p string) error { return os.WriteFile(p, []byte(big("x")), 0o600) },
		big("b"): os.Remove,
		big("c"): func(p string) error { return os.Truncate(p, 10) },
	} {
		p := objectFile(t, root, content)
		if err := os.Chmod(p, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := damage(p); err != nil {
			t.Fatal(err)
		}
	}
	parent := t.TempDir()
	full := write(t, filepath.Join(parent, "full"), map[string]string{"a": "mine"})
	for _, target := range []Target{{Dir: filepath.Join(parent, "out")}, {Dir: full, Force: true}} {
		text := getInto(t, l, "@local/u", target)
		for name, content := range map[string]string{"a": big("a"), "b": big("b"), "c": big("c")} {
			if want := fmt.Sprintf("@local/u v1: %s: object %s: ", name, ref.DigestOf([]byte(content))); !strings.Contains(text, want) || !strings.Contains(text, "put it again") {
				t.Errorf("%q isn't told in\n%s", want, text)
			}
		}
		if strings.Contains(text, "good") || strings.Contains(text, "small") {
			t.Error(text)
		}
	}
	to := filepath.Join(parent, "file")
	if text := getInto(t, l, "@local/f", Target{File: to}); !strings.Contains(text, "@local/f v1: a: object "+string(ref.DigestOf([]byte(big("a"))))+": the stored bytes are damaged") {
		t.Error(text)
	}
	same(t, "what is there", tree(t, parent), []string{"644 full/a=mine"})
}

// A Get that is cancelled, or whose maker was killed, leaves nothing for long.
func TestGetLeavesNothing(t *testing.T) {
	l := inMemory()
	in := write(t, t.TempDir(), map[string]string{"a": strings.Repeat("x", 1<<20), "b": "1"})
	mustPut(t, l, Put{Type: artifact.FileUniverse, ID: "@local/u", Paths: []string{in}})
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	var told atomic.Int64
	_, err := l.Get(ctx, "@local/u", 0, Target{Dir: filepath.Join(parent, "out"), Progress: func(n, total int64) {
		if total != 1<<20+1 {
			t.Errorf("total %d", total)
		}
		told.Add(n)
		cancel()
	}})
	if !errors.Is(err, context.Canceled) || told.Load() == 0 {
		t.Errorf("%v after %d bytes", err, told.Load())
	}
	same(t, "after a cancelled get", tree(t, parent), []string{})

	write(t, parent, map[string]string{stagePrefix + "dead/a/b": "1"})
	alive, err := newStage(parent)
	if err != nil {
		t.Fatal(err)
	}
	if found := left(t, parent); len(found) != 1 || found[0] != alive.path {
		t.Errorf("a dead maker's folder stays, or a living one's is gone: %v", found)
	}
	if text := getInto(t, l, "@local/u", Target{Dir: filepath.Join(parent, "out")}); text != "" {
		t.Error(text)
	}
	if found := left(t, parent); len(found) != 1 {
		t.Errorf("a living maker's folder is gone: %v", found)
	}
	alive.discard()
	if found := left(t, parent); len(found) != 0 {
		t.Errorf("%v", found)
	}
}

// storeDoc stores a document as it is.
func storeDoc(t *testing.T, l *Library, id, typ, body string) {
	t.Helper()
	s, err := l.store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Doc(store.Doc{Kind: store.Artifact, ID: id, Version: 1, Type: typ, Body: []byte(body), Created: time.Now()}, store.Absent)
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Documents that others wrote can't make a Get leave its folder or lose a file.
func TestGetOfHostileDocuments(t *testing.T) {
	l := inMemory()
	in := write(t, t.TempDir(), map[string]string{"a": "1", "b": "2"})
	mustPut(t, l, Put{Type: artifact.File, ID: "@local/a", Paths: []string{filepath.Join(in, "a")}})
	mustPut(t, l, Put{Type: artifact.File, ID: "@local/b", Paths: []string{filepath.Join(in, "b")}})
	env := func(id, name, file string) string {
		quoted, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		storeDoc(t, l, id, artifact.Environment, fmt.Sprintf(`{"environment_name":%s,"file_artifact_ref":{"id":%q,"version":1}}`, quoted, file))
		return fmt.Sprintf(`{"id":%q,"version":1}`, id)
	}
	for i, tc := range []struct {
		envs []string
		want string // "" for one that is laid out
	}{
		{[]string{"crm", "crm"}, "both @local/0/0 v1 and @local/0/1 v1 are for the environment 'crm'"},
		{[]string{"../up"}, "'../up/a' can't be laid out: a part of it is empty, . or .."},
		{[]string{"/abs"}, "can't be laid out"},
		{[]string{""}, "can't be laid out"},
		{[]string{"a//b"}, "can't be laid out"},
		{[]string{"x\x00y"}, "it holds a NUL byte"},
		{[]string{strings.Repeat("n", 256)}, "has 256 bytes, and a name has at most 255"},
		{[]string{"metadata"}, "that folder is kept for the universe's metadata"},
		{[]string{"metadata/x"}, "that folder is kept for the universe's metadata"},
		{[]string{"crm", "crm/a"}, "'crm/a' is a file"},
		{[]string{"crm", "crm/eu", "c:d ", "a__b"}, ""},
	} {
		var refs []string
		for j, name := range tc.envs {
			refs = append(refs, env(fmt.Sprintf("@local/%d/%d", i, j), name, "@local/a"))
		}
		id := fmt.Sprintf("@local/%d", i)
		storeDoc(t, l, id, artifact.EnvironmentUniverse, `{"environment_artifact_refs":[`+strings.Join(refs, ",")+`]}`)
		dir := filepath.Join(t.TempDir(), "out")
		text := getInto(t, l, id, Target{Dir: dir})
		if tc.want == "" && text != "" || !strings.Contains(text, tc.want) {
			t.Errorf("%q: %s", tc.envs, text)
		}
		shown, err := l.Show(t.Context(), id, 0)
		if err != nil || (shown.Layout != "") != (tc.want != "") {
			t.Errorf("%q: show says %q, %v", tc.envs, shown.Layout, err)
		}
		if _, err := os.Stat(dir); (err == nil) != (tc.want == "") {
			t.Errorf("%q: %v", tc.envs, err)
		}
	}
	for typ, body := range map[string]string{
		artifact.EnvironmentUniverse: `{"environment_artifact_refs":[{"id":"@local/gone","version":1}],"metadata_refs":{"../k":{"id":"@local/a","version":1}}}`,
		artifact.Environment:         `{"environment_name":"x"}`,
		artifact.FileUniverse:        `{"links":{"l":"/etc"}}`,
		artifact.File:                `{`,
		artifact.Skill:               `{"skill_files_ref":{"id":"@local/gone","version":1}}`,
		"plugin_type":                `{}`,
	} {
		storeDoc(t, l, "@local/bad/"+typ, typ, body)
		dir := filepath.Join(t.TempDir(), "out")
		if _, err := l.Get(t.Context(), "@local/bad/"+typ, 0, Target{Dir: dir}); err == nil {
			t.Errorf("%s %s was laid out", typ, body)
		}
		if _, err := l.Show(t.Context(), "@local/bad/"+typ, 0); err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s wrote", typ)
		}
	}
}
