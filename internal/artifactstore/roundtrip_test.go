package artifactstore

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

// odd are names that files may have, with what they hold.
func odd() map[string]string {
	return map[string]string{
		"plain.txt": "hello\n", "empty": "", "run.sh": "x #!/bin/sh\n", " edges ": "1", "tab\there": "2", "new\nline": "3", "quo'te\"s": "4", `back\slash`: "5",
		"*?[a]": "6", "-rf": "7", ".hidden": "8", "..twice": "9", "...": "10", "ünïcödé": "11", "e\u0301 decomposed": "12", "日本語/ファイル.txt": "13", "😀": "14",
		strings.Repeat("n", 255): "15", strings.Repeat("é", 127) + "x/" + strings.Repeat("d", 255) + "/f": "16", "A": "17", "a": "18", "~": "19", "con:": "20",
		"sub/deep/deeper/file": "21", "#x": "22", "%2f": "23", "a__b": "24", "\x01control\x7f": "25", "\u200bzero width": "26", "nothing/": "", "sub/none/": "",
		"link": "-> plain.txt", "sub/up": "-> ../run.sh", "dangling": "-> no/where", "folder": "-> sub/deep", "sub/self": "-> self",
		"big": strings.Repeat("0123456789abcdef", 8<<10),
	}
}

// modes are set last.
func modes() map[string]fs.FileMode {
	return map[string]fs.FileMode{"plain.txt": 0o600, "empty": 0o444, "a": 0o777, "A": 0o666, "~": 0o000, "-rf": 0o500, "big": 0o640}
}

// Names, modes, links and empty folders come back as they were put, whatever the umask says.
func TestRoundTripOfAUniverse(t *testing.T) {
	dir := write(t, filepath.Join(t.TempDir(), "in"), odd())
	for name, mode := range modes() {
		if mode == 0 && os.Getuid() != 0 {
			continue // it could not be read
		}
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	want := tree(t, dir)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, l := range []*Library{first(library(t)), inMemory()} {
		out := mustPut(t, l, Put{Type: artifact.FileUniverse, ID: "@local/~/b/u", Paths: []string{dir}})
		if out.Version != 1 || out.Files != len(odd()) {
			t.Errorf("%+v", out)
		}
		unix.Umask(0o022) // empty folders have no mode of their own
		same(t, "get", tree(t, mustGet(t, l, "@local/~/b/u", 0)), want)
		unix.Umask(0o077)
		shown, err := l.Show(t.Context(), "@local/~/b/u", 1)
		if err != nil || len(shown.Files) != len(odd()) || shown.Layout != "" {
			t.Errorf("show: %d files, %q, %v", len(shown.Files), shown.Layout, err)
		}
	}
}

func first[T any](v T, _ string) T { return v }

// Every type that holds files gives back what it was put from, and a second put is the next version.
func TestRoundTripOfEveryType(t *testing.T) {
	dir := t.TempDir()
	skill := write(t, filepath.Join(dir, "skill"), map[string]string{
		"SKILL.md": "---\nname: greet\ndescription: Says hi.\nmetadata: {a: b}\n---\n# Hi\n", "scripts/hi.sh": "x echo hi\n", "l": "-> scripts/hi.sh",
	})
	cli := write(t, filepath.Join(dir, "cli"), map[string]string{"bin/tool": "x #!/bin/sh\n", "data": "1"})
	context := write(t, filepath.Join(dir, "context"), map[string]string{
		"Dockerfile": "FROM scratch\n", "server": "x y\n", "l": "-> server", "empty/": "", "logs/a.log": "no", ".dockerignore": "**/*.log\n",
	})
	universe := write(t, filepath.Join(dir, "world"), map[string]string{"crm/d.json": "{}", "mail box/m.json": "[]", "metadata/m/manifest.json": "{}"})
	loose := write(t, filepath.Join(dir, "loose"), map[string]string{"one.txt": "1", "two/x.txt": "2"})
	l, _ := library(t)
	for _, tc := range []struct {
		name string
		put  Put
		want []string
	}{
		{"file", Put{Type: "file", Paths: []string{filepath.Join(cli, "bin/tool")}, Description: "the tool"}, []string{"755 tool=#!/bin/sh\n"}},
		{"skill", Put{Type: "skill", Paths: []string{skill}}, tree(t, skill)},
		{"cli", Put{Type: "cli", Paths: []string{cli}, Entrypoint: "bin/tool", Command: "tool", Env: "@local/e:2"}, tree(t, cli)},
		{"image", Put{Type: "docker-image", Paths: []string{context}}, []string{
			"644 .dockerignore=**/*.log\n", "644 Dockerfile=FROM scratch\n", "755 empty/", "l->server", "755 logs/", "755 server=y\n",
		}},
		{"universe", Put{Type: "environment_universe", Paths: []string{universe}}, tree(t, universe)},
		{"environment", Put{Type: "environment", Paths: []string{filepath.Join(universe, "crm/d.json")}, EnvironmentName: "crm"}, []string{"644 d.json={}"}},
		{"several", Put{Type: "file-artifact-universe", Paths: []string{loose, filepath.Join(cli, "data")}}, []string{"644 data=1", "644 loose/one.txt=1", "644 loose/two/x.txt=2"}},
		{"one", Put{Type: "file_artifact_universe", Paths: []string{filepath.Join(cli, "data")}}, []string{"644 data=1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.put.ID = "@local/b/" + tc.name
			if tc.name == "skill" {
				tc.put.ID = "@local/b/greet"
			}
			mustPut(t, l, tc.put)
			if out := mustPut(t, l, tc.put); out.Version != 2 {
				t.Errorf("the second put is version %d", out.Version)
			}
			for v := 1; v <= 2; v++ {
				same(t, "get", tree(t, mustGet(t, l, tc.put.ID, v)), tc.want)
			}
		})
	}
}

// What a put stores equals what a bundle writes under the same id, document for document.
func TestPutEqualsABundle(t *testing.T) {
	const root = "@local/~/b"
	dir := write(t, filepath.Join(t.TempDir(), "b"), map[string]string{
		"artifacts/f/a.txt": "hello", "artifacts/f/artifact.toml": "description = \"a greeting\"\n",
		"artifacts/u/x.txt": "1", "artifacts/u/sub/y.sh": "x 2",
		"artifacts/own/rows.json": "[]", "artifacts/own/artifact.toml": "type = \"environment\"\nenvironment_name = \"a b: c/d\"\ndescription = \"rows\"\n",
		"artifacts/e/artifact.toml": "type = \"environment\"\nenvironment_name = \"mail\"\nfile = \"f\"\n",
		"artifacts/w/artifact.toml": "type = \"environment_universe\"\nenvironment_artifacts = [\"e\", \"own\"]\n",
		"artifacts/w/slack/d.json":  "{}", "artifacts/w/crm/c": "x 1", "artifacts/w/ne\u0301/d": "2", "artifacts/w/metadata/manifest/m.json": "3",
		"artifacts/c/run.sh": "x echo\n", "artifacts/c/artifact.toml": "type = \"cli\"\ncommand_name = \"run\"\nentrypoint = \"run.sh\"\n",
		"skills/s/SKILL.md": "---\nname: s\ndescription: d\n---\n",
		"tasks/t.json": `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"},
			{"id":"l","type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"u"},{"id":"w"},{"id":"own"}]},
			{"id":"k","type":"add_skills","agent_name":"a","cli_artifact_ids":["c"],"skills":[{"skill_artifact_id":"s"}]}]`,
	})
	written := bundled(t, dir, root)
	l := inMemory()
	at := func(names ...string) []string {
		out := []string{}
		for _, n := range names {
			out = append(out, filepath.Join(dir, "artifacts", n))
		}
		return out
	}
	if err := os.Remove(filepath.Join(dir, "artifacts/w/artifact.toml")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "artifacts/c/artifact.toml")); err != nil {
		t.Fatal(err)
	}
	mustPut(t, l, Put{Type: "file", ID: root + "/f", Paths: at("f/a.txt"), Description: "a greeting"})
	mustPut(t, l, Put{Type: "environment", ID: root + "/own", Paths: at("own/rows.json"), EnvironmentName: "a b: c/d", Description: "rows"})
	mustPut(t, l, Put{Type: "environment", ID: root + "/e", File: root + "/f", EnvironmentName: "mail"})
	mustPut(t, l, Put{Type: "file_artifact_universe", ID: root + "/u", Paths: at("u")})
	mustPut(t, l, Put{Type: "environment_universe", ID: root + "/w", Paths: at("w"), Environments: []string{root + "/e", root + "/own:1"}})
	mustPut(t, l, Put{Type: "cli", ID: root + "/c", Paths: at("c"), Entrypoint: "run.sh", Command: "run"})
	mustPut(t, l, Put{Type: "skill", ID: root + "/s", Paths: []string{filepath.Join(dir, "skills/s")}})

	equal(t, all(t, l.store), all(t, written))
}

// bundled is what a bundle's write stores.
func bundled(t *testing.T, dir, root string) store.Store {
	t.Helper()
	s := mem.New(mem.Options{})
	b, problems := bundle.Parse(bundle.Source{FS: os.DirFS(dir), Name: "b", Root: dir, IDRoot: root}, bundle.Options{Kinds: step.Kinds()})
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Resolve().Err(); err != nil {
		t.Fatal(err)
	}
	plan, problems, err := b.Plan(t.Context(), ledger.View(s), bundle.Selection{})
	if err != nil {
		t.Fatal(err)
	}
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	if _, err := ledger.Write(t.Context(), s, plan, ledger.Options{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func equal(t *testing.T, got, want map[string]string) {
	t.Helper()
	for _, id := range slices.Sorted(maps.Keys(want)) {
		if got[id] != want[id] {
			t.Errorf("%s: got\n%s\nwant\n%s", id, got[id], want[id])
		}
	}
	for _, id := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[id]; !ok {
			t.Errorf("there is %s too", id)
		}
	}
}

// A universe that was fetched and dropped into a bundle writes an equal one, and so does one that was fetched and put again.
func TestUniverseRoundTrip(t *testing.T) {
	const root = "@local/~/b"
	l := inMemory()
	world := write(t, filepath.Join(t.TempDir(), "world"), map[string]string{
		"slack/data.json": "{}", "crm/c.db": "x 1", "mail box/m": "", "né/d": "2", "metadata/manifest/manifest.json": "3", "metadata/a b/x": "4",
	})
	mustPut(t, l, Put{Type: "environment_universe", ID: root + "/w", Paths: []string{world}})
	dir := write(t, filepath.Join(t.TempDir(), "b"), map[string]string{
		"tasks/t.json": `[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"},
			{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"w"}]`,
	})
	into := filepath.Join(dir, "artifacts/w")
	if _, err := l.Get(t.Context(), root+"/w", 0, Target{Dir: into}); err != nil {
		t.Fatal(err)
	}
	same(t, "get", tree(t, into), tree(t, world))
	again := inMemory()
	mustPut(t, again, Put{Type: "environment_universe", ID: root + "/w", Paths: []string{into}})
	equal(t, all(t, again.store), all(t, l.store))

	write(t, into, map[string]string{"artifact.toml": "type = \"environment_universe\"\n"})
	equal(t, all(t, bundled(t, dir, root)), all(t, l.store))
}
