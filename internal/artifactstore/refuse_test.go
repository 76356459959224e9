package artifactstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// stored has a file f (v1, v2), environments mail and crm, a universe of files u, and an image i with an id like a child's.
func stored(t *testing.T) (*Library, string) {
	t.Helper()
	l := inMemory()
	dir := write(t, t.TempDir(), map[string]string{"a.txt": "a", "other/a.txt": "b", "u/x": "1"})
	file := func(id, name string) {
		mustPut(t, l, Put{Type: "file", ID: id, Paths: []string{filepath.Join(dir, name)}})
	}
	file("@local/f", "a.txt")
	file("@local/f", "a.txt")
	file("@local/g", "other/a.txt")
	for _, env := range []string{"mail", "crm"} {
		mustPut(t, l, Put{Type: "environment", ID: "@local/" + env, File: "@local/f:1", EnvironmentName: env})
	}
	mustPut(t, l, Put{Type: "environment", ID: "@local/mail2", File: "@local/f", EnvironmentName: "mail"})
	mustPut(t, l, Put{Type: "file_artifact_universe", ID: "@local/u", Paths: []string{filepath.Join(dir, "u")}})
	s, err := l.store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d := artifact.NewImage(artifact.Pin{ID: "@local/slack__env_image", Version: 1}, "Dockerfile", "", nil)
	s.Doc(store.Doc{Kind: store.Artifact, ID: d.ID, Version: 1, Type: d.Type, Body: []byte(`{}`)}, store.Absent)
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return l, dir
}

// Everything that is wrong with a put is told at once, and nothing is stored.
func TestPutRefuses(t *testing.T) {
	l, dir := stored(t)
	world := func(name string, files map[string]string) string {
		return write(t, filepath.Join(dir, "worlds", name), files)
	}
	empty := t.TempDir()
	pipe := write(t, filepath.Join(dir, "pipe"), map[string]string{"a": "1"})
	if err := unix.Mkfifo(filepath.Join(pipe, "p"), 0o644); err != nil {
		t.Fatal(err)
	}
	universe := func(p ...string) Put { return Put{Type: "environment_universe", ID: "@local/w", Paths: p} }
	long := strings.Repeat("x", 200)
	digest := string(ref.DigestOf(nil))
	for _, tc := range []struct {
		name string
		put  Put
		want []string
	}{
		{"type", Put{Type: "fille"}, []string{"'fille' is no type of artifact; did you mean file?"}},
		{"id and paths", Put{Type: "file", ID: "@other/x"}, []string{"'@other/x' is no id", "put from one file, and got none"}},
		{"derived id", Put{Type: "file", ID: "@local/a/b__c", Paths: []string{filepath.Join(dir, "nosuch")}}, []string{
			`@local/a/b__c: "__" is kept for the ids`, "nosuch: there is no such file or folder",
		}},
		{"segment", Put{Type: "file", ID: "@local/a: b", Paths: []string{dir}}, []string{"contains ':'", "this is a folder, and one file is to be put"}},
		{"flags", Put{Type: "file", ID: "@local/x", Paths: []string{filepath.Join(dir, "a.txt")}, Entrypoint: "x", Ref: "y", Metadata: []string{"z"}}, []string{
			"--entrypoint: an artifact of type file doesn't take it", "--metadata: an artifact of type file doesn't take it", "--ref: an artifact of type file doesn't take it",
		}},
		{"other type", Put{Type: "file", ID: "@local/u", Paths: []string{filepath.Join(dir, "nosuch")}}, []string{
			"@local/u: the store has it as file_artifact_universe, version 1", "nosuch: there is no such",
		}},
		{"several files", Put{Type: "file", ID: "@local/x", Paths: []string{"a", "b"}}, []string{"put from one file, and got 2"}},
		{"special", Put{Type: "file_artifact_universe", ID: "@local/x", Paths: []string{pipe}}, []string{"p: this is neither a file nor a folder; remove it"}},
		{"empty", Put{Type: "file_artifact_universe", ID: "@local/x", Paths: []string{empty}}, []string{": there are no files in it to put"}},
		{"none", Put{Type: "file_artifact_universe", ID: "@local/x"}, []string{"there are no files to put; name files or a folder"}},
		{"links", Put{Type: "file_artifact_universe", ID: "@local/x", Paths: []string{world("links", map[string]string{
			"a": "1", "abs": "-> /etc/passwd", "out": "-> ../x", "sub/out": "-> ../../x", "way": "-> sub/../a", "ok": "-> a",
		})}}, []string{"links/abs: this link leads to '/etc/passwd'", "links/out: ", "links/sub/out: ", "links/way: "}},
		{"clash", Put{Type: "file_artifact_universe", ID: "@local/x", Paths: []string{filepath.Join(dir, "a.txt"), filepath.Join(dir, "other/a.txt")}}, []string{
			"a.txt: two of what is put have this name",
		}},
		{"members", Put{Type: "file_artifact_universe", ID: "@local/x", Members: []string{"@local/f", "@local/g", "@local/mail", "@local/none", "@local/f:9", "@local/f:x"}}, []string{
			"--file-artifact: '@local/mail' is of type environment in the store, and here one of type file is named",
			"--file-artifact: there is no artifact '@local/none' in the store", "--file-artifact: there is no version 9 of '@local/f' in the store; the latest is version 2",
			"--file-artifact: '@local/f:x' is no reference", "--file-artifact: @local/f v2 and @local/g v1 have the same name, 'a.txt'",
		}},
		{"both", Put{Type: "file_artifact_universe", ID: "@local/x", Members: []string{"@local/f"}, Paths: []string{empty}}, []string{"either from paths or from stored files"}},
		{"skill", Put{Type: "skill", ID: "@local/greet", Paths: []string{world("skill", map[string]string{"SKILL.md": "---\nname: Hi\nallowed-tools: 3\n---\n"})}}, []string{
			"SKILL.md:2: name: 'Hi' can't name a skill", "description",
		}},
		{"skill's id", Put{Type: "skill", ID: "@local/greet", Paths: []string{world("skill2", map[string]string{"SKILL.md": "---\nname: hi\ndescription: d\n---\n"})}}, []string{
			"SKILL.md:2: name is 'hi', and it must be the last part of the id, 'greet'",
		}},
		{"no skill", Put{Type: "skill", ID: "@local/greet", Paths: []string{filepath.Join(dir, "other")}}, []string{"there is no file SKILL.md at its top"}},
		{"cli", Put{Type: "cli", ID: "@local/x", Paths: []string{world("cli", map[string]string{"run.sh": "1", ".env": "2"})}, Command: "-x", Entrypoint: "Run.sh"}, []string{
			"'-x' can't be a command", "'Run.sh' isn't a file of this folder; did you mean 'run.sh'?", "'.env' lies beside the entrypoint",
		}},
		{"cli alone", Put{Type: "cli", ID: "@local/x"}, []string{"command_name", "entrypoint", "put from one folder, and got none"}},
		{"image", Put{Type: "docker_image", ID: "@local/x", Paths: []string{world("image", map[string]string{"dockerfile": "x", ".dockerignore": "a/["})}}, []string{
			"there is no file 'Dockerfile' in it", ".dockerignore:1: 'a/[' is no pattern",
		}},
		{"image file", Put{Type: "docker_image", ID: "@local/x", Ref: "docker-archive:/x.tar"}, []string{"add the digest that it has today"}},
		{"image file nearby", Put{Type: "docker_image", ID: "@local/x", Ref: "oci:x@sha256:1"}, []string{"doesn't spell its registry"}},
		{"image ref", Put{Type: "docker_image", ID: "@local/x", Ref: "debian"}, []string{"'debian' doesn't spell its registry"}},
		{"image tag", Put{Type: "docker_image", ID: "@local/x", Ref: "registry.example/a:1"}, []string{"add the digest that it has today: registry.example/a:1@sha256:…"}},
		{"image digest", Put{Type: "docker_image", ID: "@local/x", Ref: "registry.example/a@sha256:1", Dockerfile: "x"}, []string{"'sha256:1' is no digest", "--dockerfile: an image put by reference has none"}},
		{"image both", Put{Type: "docker_image", ID: "@local/x", Ref: "registry.example/a@" + digest, Paths: []string{dir}}, []string{"either from a folder or by reference"}},
		{"environment", Put{Type: "environment", ID: "@local/x"}, []string{"--environment-name: is missing", "put from one file, and got none"}},
		{"environment's file", Put{Type: "environment", ID: "@local/x", EnvironmentName: "m", File: "@local/u", Description: "d"}, []string{
			"--file: '@local/u' is of type file_artifact_universe in the store, and here one of type file is named", "--description: is for a file that is put",
		}},
		{"environment twice", Put{Type: "environment", ID: "@local/x", EnvironmentName: "m", File: "@local/f", Tree: dir}, []string{"from a file, from --tree or from --file"}},
		{"tree", Put{Type: "environment", ID: "@local/x", EnvironmentName: "a/b", Tree: dir}, []string{"'a/b' can't name one"}},
		{"tree of nothing", Put{Type: "environment", ID: "@local/x", EnvironmentName: "a", Tree: empty}, []string{"there are no files in it to pack"}},
		{"tree of a pipe", Put{Type: "environment", ID: "@local/x", EnvironmentName: "a", Tree: pipe}, []string{"p: it is neither a file nor a folder nor a link; remove it"}},

		{"U1", universe(), []string{"a universe needs an environment"}},
		{"U1 metadata alone", universe(world("u1", map[string]string{"metadata/k/x": "1"})), []string{"a universe needs an environment"}},
		{"U2 to U7", universe(world("u2", map[string]string{
			"loose": "1", "two/a": "1", "two/b": "2", "none/": "", "metadata/x": "1", "metadata/k/": "", "metadata/l/a": "1", "metadata/l/b": "2", "Metadata/k/x": "1", "nest/a/b": "1",
		})), []string{
			"u2/loose: only folders may lie here", "u2/two: a folder here holds one file, and this one has 2", "u2/none: a folder here holds one file, and this one has none",
			"u2/metadata/x: metadata holds a folder for each key", "u2/metadata/k: a folder here holds one file", "u2/metadata/l: a folder here holds one file", "u2/Metadata: rename to metadata",
			"u2/nest/a: folders can't lie within each other here",
		}},
		{"names", universe(world("names", map[string]string{"a__b/f": "1", " edge/f": "1", "edge /f": "1", "c:d/f": "1", "metadata/k__/f": "1"})), []string{
			`names/a__b: "__" is kept`, "names/ edge: rename it", "names/edge : rename it", "names/c:d: rename it", `names/metadata/k__: "__" is kept`,
		}},
		{"U16 and U17", Put{
			Type: "environment_universe", ID: "@local/w", Paths: []string{world("same", map[string]string{"crm/f": "1"})},
			Environments: []string{"@local/crm", "@local/mail", "@local/mail2", "@local/mail"},
		}, []string{
			"--environment-artifact: @local/crm v1 is for the environment 'crm', as ", "worlds/same/crm is; a universe has each name once",
			"--environment-artifact: @local/mail2 v1 is for the environment 'mail', as @local/mail v1 is", "--environment-artifact: @local/mail v1 is for the environment 'mail', as @local/mail v1 is",
		}},
		{"U13 and U14", Put{Type: "environment_universe", ID: "@local/w", Environments: []string{"@local/f", "@local/none", "@local/Mail", "x:0"}}, []string{
			"'@local/f' is of type file in the store, and here one of type environment is named", "there is no artifact '@local/none'", "there is no artifact '@local/Mail'", "'x:0' is no reference",
		}},
		{"U18", Put{Type: "environment_universe", ID: "@local/slack", Paths: []string{world("u18", map[string]string{"env_image/f": "1"})}}, []string{
			"@local/slack: the id '@local/slack__env_image', which would be written too, is that of an image",
		}},
		{"U19", Put{Type: "environment_universe", ID: "@local/" + strings.Repeat(long+"/", 19) + long, Paths: []string{world("u19", map[string]string{long + "/f": "1"})}}, []string{"a shorter name"}},
		{"link", universe(world("link", map[string]string{"crm/f": "-> ../../../a.txt"})), []string{"link/crm/f: this link leads out of the folder"}},
		{"a bundle's", universe(world("toml", map[string]string{"crm/f": "1", "artifact.toml": ""})), []string{"artifact.toml: this folder is part of a bundle"}},
		{"metadata", Put{Type: "environment_universe", ID: "@local/w", Environments: []string{"@local/crm"}, Metadata: []string{"x", "=y", "a__b=c", "a:b=c", "k=" + filepath.Join(dir, "nosuch"), "k=y"}}, []string{
			"--metadata: 'x' is no KEY=FILE", "--metadata: '=y' is no KEY=FILE", `no key holds it: 'a__b'`, "no key: 'a:b' contains ':'", "nosuch: there is no such file", "the key 'k' comes twice",
		}},
		{"two folders", universe("a", "b"), []string{"put from one folder, and got 2"}},
		{"no folder", universe(filepath.Join(dir, "a.txt")), []string{"a.txt: this is no folder"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := len(all(t, l.store))
			_, err := l.Put(t.Context(), tc.put)
			text := problems(t, err)
			if err == nil {
				t.Error("it is stored")
			}
			for _, want := range tc.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q isn't told in\n%s", want, text)
				}
			}
			if n := strings.Count(text, "\n") + 1; n > len(tc.want)+2 {
				t.Errorf("%d problems, where %d were thought of:\n%s", n, len(tc.want), text)
			}
			if after := len(all(t, l.store)); after != before {
				t.Errorf("%d documents were stored", after-before)
			}
		})
	}
}

// Files that can't be read are all named, and nothing is stored.
func TestPutOfUnreadableFiles(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root reads everything")
	}
	dir := write(t, t.TempDir(), map[string]string{"a": "1", "b": "2", "c": "3"})
	for _, n := range []string{"a", "c"} {
		if err := os.Chmod(filepath.Join(dir, n), 0); err != nil {
			t.Fatal(err)
		}
	}
	l := inMemory()
	_, err := l.Put(t.Context(), Put{Type: artifact.FileUniverse, ID: "@local/x", Paths: []string{dir}})
	if text := problems(t, err); text != "a: can't be read: permission denied\nc: can't be read: permission denied" {
		t.Errorf("%s", text)
	}
}

// What belongs to an artifact keeps up with it: a universe's files have a version of their own, and those that are gone stay with the old one.
func TestVersionsOfChildren(t *testing.T) {
	l := inMemory()
	dir := write(t, t.TempDir(), map[string]string{"a": "1", "b": "2"})
	put := func() { mustPut(t, l, Put{Type: artifact.FileUniverse, ID: "@local/u", Paths: []string{dir}}) }
	put()
	if err := os.Remove(filepath.Join(dir, "b")); err != nil {
		t.Fatal(err)
	}
	put()
	write(t, dir, map[string]string{"b": "3"})
	put()
	for id, want := range map[string]int{"@local/u": 3, ref.FileID("@local/u", "a"): 3, ref.FileID("@local/u", "b"): 2} {
		if d, err := l.store.Get(t.Context(), store.Artifact, id, 0); err != nil || d.Version != want {
			t.Errorf("%s: version %d, %v; want %d", id, d.Version, err, want)
		}
	}
	for v, want := range map[int]string{1: "644 a=1 644 b=2", 2: "644 a=1", 3: "644 a=1 644 b=3"} {
		if got := strings.Join(tree(t, mustGet(t, l, "@local/u", v)), " "); got != want {
			t.Errorf("version %d: %s", v, got)
		}
	}
	if p, err := l.Versions(t.Context(), "@local/u", Query{}); err != nil || fmt.Sprint(p.Artifacts) != "[@local/u v3 @local/u v2 @local/u v1]" {
		t.Errorf("%v, %v", p.Artifacts, err)
	}
}
