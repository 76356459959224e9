package artifact

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// decoded is a document's body.
func decoded(t *testing.T, d Document) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(d.Body(time.Date(2026, 1, 2, 3, 4, 5, 678_000, time.FixedZone("", 3600))), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// next gives every document that belongs to another version 7.
func next(id string) Pin { return Pin{id, 7} }

func file(path, text string) Bytes {
	return Bytes{Path: path, Digest: ref.DigestOf([]byte(text)), Size: int64(len(text)), Mode: 0o644}
}

func TestFileDocument(t *testing.T) {
	got := decoded(t, NewFile(Pin{"@local/~/b/f", 2}, file("sub/Notes.TXT", "hello\n"), ""))
	want := map[string]any{
		"id": "@local/~/b/f", "version": 2.0, "type": "file", "created_at_utc": "2026-01-02T02:04:05.000678+00:00",
		"filename": "Notes.TXT", "description": "Notes.TXT", "content_type": "text/plain",
		"digest": "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03", "size": 6.0, "mode": 420.0,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if d := decoded(t, NewFile(Pin{"x", 1}, file("a", ""), "A greeting")); d["description"] != "A greeting" || d["content_type"] != "application/octet-stream" {
		t.Errorf("%v", d)
	}
}

func TestFileUniverseDocuments(t *testing.T) {
	files := []Bytes{file("sub/y.txt", "two"), file("x.txt", "one"), file("z.txt", "one")}
	docs := NewFileUniverse(Pin{"@local/~/b/u", 1}, files, next)
	if len(docs) != 4 || docs[0].Type != FileUniverse || docs[1].ID != "@local/~/b/u__8baca148fc4df819" || docs[2].ID != "@local/~/b/u__8a6dcb9c9836d0a0" {
		t.Fatalf("%+v", docs)
	}
	if got := len(docs[0].Objects); got != 2 {
		t.Errorf("the universe names %d objects; two of its files hold the same bytes", got)
	}
	refs := decoded(t, docs[0])["file_artifact_refs"].(map[string]any)
	want := map[string]any{
		"id": "@local/~/b/u__8a6dcb9c9836d0a0", "version": 7.0, "digest": string(ref.DigestOf([]byte("one"))), "size": 3.0, "mode": 420.0,
	}
	if len(refs) != 3 || !reflect.DeepEqual(refs["x.txt"], want) {
		t.Errorf("%v", refs)
	}
	checkChildren(t, FileUniverse, docs, files)
}

// checkChildren holds that Children names just the documents that come after the first.
func checkChildren(t *testing.T, typ string, docs []Document, files []Bytes) {
	t.Helper()
	paths := make([]string, len(files))
	for i, f := range files {
		paths[i] = f.Path
	}
	want := map[string]bool{}
	for _, id := range Children(typ, docs[0].ID, paths) {
		want[id] = true
	}
	for _, d := range docs[1:] {
		if !want[d.ID] {
			t.Errorf("%s: Children doesn't name %s", typ, d.ID)
		}
		delete(want, d.ID)
	}
	if len(want) > 0 {
		t.Errorf("%s: Children names %v, which isn't written", typ, want)
	}
}

func TestUniverseDocuments(t *testing.T) {
	// Paths in their own order; names come in name order.
	files := []Bytes{file("crm-eu/d.json", "1"), file("crm/d.json", "2"), file("metadata/m/m.json", "3"), file("ne\u0301/d", "4")}
	docs := NewUniverse(Pin{"@local/b/w", 3}, files, []Pin{{"@local/b/e", 2}}, next)
	d := decoded(t, docs[0])
	pin := func(id string, v float64) any { return map[string]any{"id": id, "version": v} }
	envs := []any{pin("@local/b/w__crm", 7), pin("@local/b/w__crm-eu", 7), pin("@local/b/w__né", 7), pin("@local/b/e", 2)}
	if !reflect.DeepEqual(d["environment_artifact_refs"], envs) || !reflect.DeepEqual(d["service_artifact_refs"], envs) {
		t.Errorf("environments %v", d["environment_artifact_refs"])
	}
	if !reflect.DeepEqual(d["metadata_refs"], map[string]any{"m": pin("@local/b/w__metadata__m", 7)}) {
		t.Errorf("metadata %v", d["metadata_refs"])
	}
	e := decoded(t, docs[1])
	if e["id"] != "@local/b/w__crm" || e["environment_name"] != "crm" || e["service_name"] != "crm" || !reflect.DeepEqual(e["file_artifact_ref"], pin("@local/b/w__crm__file", 7)) {
		t.Errorf("environment %v", e)
	}
	if f := decoded(t, docs[2]); f["id"] != "@local/b/w__crm__file" || f["filename"] != "d.json" || f["digest"] != string(ref.DigestOf([]byte("2"))) {
		t.Errorf("file %v", f)
	}
	checkChildren(t, EnvironmentUniverse, docs, files)
	if d := decoded(t, NewUniverse(Pin{"w", 1}, files[:1], nil, next)[0]); d["metadata_refs"] != nil {
		t.Errorf("a universe without metadata says %v", d["metadata_refs"])
	}
}

func TestOtherDocuments(t *testing.T) {
	own := []Bytes{file("rows.json", "[]")}
	docs := NewOwnEnvironment(Pin{"@local/b/x", 1}, "a b: c", own[0], "", next)
	if d := decoded(t, docs[1]); docs[0].Fields["environment_name"] != "a b: c" || d["id"] != "@local/b/x__file" || d["description"] != "rows.json" {
		t.Errorf("%+v", docs)
	}
	checkChildren(t, Environment, docs, own)

	front := SkillFront{Name: "s", Description: "Says hi.", License: "MIT", Metadata: map[string]string{"a": "b"}}
	docs = NewSkill(Pin{"@local/b/s", 1}, front, []Bytes{file("SKILL.md", "x"), file("sub/a", "y")}, next)
	d := decoded(t, docs[0])
	if d["skill_files_id"] != "@local/b/s__files" || d["license"] != "MIT" || d["compatibility"] != nil || d["skill_name"] != "s" {
		t.Errorf("skill %v", d)
	}
	checkChildren(t, Skill, docs, []Bytes{file("SKILL.md", "x"), file("sub/a", "y")})

	docs = NewCLI(Pin{"@local/b/c", 1}, "tool", "run.sh", []Bytes{file("run.sh", "x")}, next)
	if docs[2].ID != "@local/b/c__files__d31ce0453051853c" {
		t.Errorf("cli %+v", docs)
	}
	checkChildren(t, CLI, docs, []Bytes{file("run.sh", "x")})

	img := decoded(t, NewImage(Pin{"@local/b/i", 1}, "Dockerfile", "built from i", []Bytes{file("Dockerfile", "x")}))
	if c := img["build_context"].(map[string]any); len(c) != 1 || img["dockerfile_path"] != "Dockerfile" {
		t.Errorf("image %v", img)
	}
}

func TestSchemas(t *testing.T) {
	for _, typ := range Types() {
		if _, ok := Schema(typ); ok == (typ == Skill) {
			t.Errorf("Schema(%s) = %v; only skills have no toml", typ, ok)
		}
		if !Known(typ) {
			t.Errorf("%s isn't known", typ)
		}
	}
	if Known("zip") {
		t.Error("zip is known")
	}
}

func TestReadSkill(t *testing.T) {
	front, l := ReadSkill("s", []byte("\ufeff---\r\nname: a-b\ndescription: >\n  Does\n  things.\nlicense: 1.0\nmetadata:\n  v: \"1\"\nallowed-tools: x y\nextra: [1]\n---\nText ---\n"), "a-b")
	want := SkillFront{Name: "a-b", Description: "Does things.", License: "1.0", AllowedTools: "x y", Metadata: map[string]string{"v": "1"}}
	if l.HasErrors() || !reflect.DeepEqual(front, want) {
		t.Errorf("%+v, %v", front, l)
	}
	for text, fault := range map[string]string{
		"":                                     "s:1: must begin with front matter: a line ---, YAML, and a line ---",
		"---\nname: x":                         "s:1: must begin with front matter: a line ---, YAML, and a line ---",
		"---\nname: x\ndescription: d\n---":    "s:2: name is 'x', and it must be the folder's, 'y'",
		"---\nname: y--z\ndescription: d\n---": "s:2: name: 'y--z' can't name a skill: write 1 to 64 of a-z, 0-9 and single hyphens inside",
		"---\n\n\nname: y\n---":                "s:4: description is missing; write it: a string",
		"---\nname: y\ndescription: ' '\n---":  "s:3: description: must not be empty",
		"---\n- y\n---":                        "s:2: must be a table, not [\"y\"]",
		"---\nname: y\ndescription: " + strings.Repeat("d", 1025) + "\n---": "s:3: description: has 1025 characters; 1024 is the most",
	} {
		_, l := ReadSkill("s", []byte(text), "y")
		var got []string
		for _, p := range l.Of(diag.Error) {
			got = append(got, p.String())
		}
		if strings.Join(got, "\n") != fault {
			t.Errorf("%.40q: got %q, want %q", text, got, fault)
		}
	}
}

func FuzzReadSkill(f *testing.F) {
	f.Add("---\nname: y\ndescription: d\n---\n", "y")
	f.Add("---\nname: [\n---\n", "y")
	f.Add("\ufeff---\r\n---", "y")
	f.Fuzz(func(t *testing.T, text, name string) {
		front, l := ReadSkill("s", []byte(text), name)
		if !l.HasErrors() && (name != "" && front.Name != name || front.Description == "") {
			t.Errorf("%q passes as %+v", text, front)
		}
		for _, p := range l {
			if strings.ContainsAny(p.String(), "\n\x1b") {
				t.Errorf("a problem isn't one line: %q", p.String())
			}
		}
	})
}

func TestCheckCLI(t *testing.T) {
	n := doc.Build(map[string]any{"entrypoint": "bin/run.sh"})
	for _, tc := range []struct {
		files []string
		want  string
	}{
		{[]string{"bin/run.sh", ".env"}, ""},
		{[]string{"bin/run.sh", "bin/.env"}, "'bin/.env' lies beside the entrypoint, where every deployment writes its own; rename it"},
		{[]string{"bin/run.h"}, "'bin/run.sh' isn't a file of this folder; did you mean 'bin/run.h'?"},
	} {
		var l diag.List
		CheckCLI(n, tc.files, &l)
		got := ""
		if len(l) > 0 {
			got = l[0].String()
		}
		if got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.files, got, tc.want)
		}
	}
}
