package cli_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/cli"
	"agentenv.internal/agentenv/internal/term"
)

// inProcess runs a command line in this process, with a home of its own, and answers its exit code and what it printed.
func inProcess(t *testing.T, home string, args ...string) (int, string) {
	t.Helper()
	s, out, problems := term.Buffers("")
	code := cli.Main(t.Context(), args, s, func(name string) (string, bool) {
		switch name {
		case "HOME":
			return home, true
		case "XDG_STATE_HOME":
			return filepath.Join(home, "state"), true
		case "PATH":
			return os.Getenv("PATH"), true
		}
		return "", false
	})
	return code, out.String() + problems.String()
}

// layout is an artifact folder that is refused: what lies in it, and a word of the refusal.
type layout struct {
	name  string
	files map[string]string // "-> x" is a link, "fifo" a FIFO, a path that ends with "/" an empty folder
	want  string
}

// environments are malformed folders of type environment; the rows are those of the specification.
func environments() []layout {
	env := func(name, toml, want string, more ...string) layout {
		l := layout{name, map[string]string{"artifact.toml": "type = \"environment\"\n" + toml}, want}
		for i := 0; i < len(more); i += 2 {
			l.files[more[i]] = more[i+1]
		}
		return l
	}
	const q = "environment_name = 'q'\n"
	return []layout{
		env("E1", q, "put one here, or name a file artifact"),
		env("E1 leavings", q, "put one here, or name a file artifact", ".DS_Store", "x", "__pycache__/a.pyc", "x"),
		env("E2", q, "holds one file", "a", "1", "b", "2"),
		env("E2 nested", q, "holds one file", "a", "1", "sub/b", "2"),
		env("E3", "", "environment_name", "a", "1"),
		env("odd: no UTF-8", q, `\xff\xfe.json: the name isn't valid UTF-8`, "\xff\xfe.json", "1"),
		env("odd: a folder in itself", q, "leads back to a folder that holds it", "d", "-> ."),
		env("odd: artifact.toml of the system", "", "leads out of the bundle", "artifact.toml", "-> /proc/self/environ"),
		env("E4", "environment_name = ''", "environment_name", "a", "1"),
		env("E5", "environment_name = 3", "environment_name", "a", "1"),
		env("E6", "service_name = 'q'", "environment_name", "a", "1"),
		env("E6 beside", q+"service_name = 'q'", "service_name", "a", "1"),
		env("E7", q+"file_artifact_id = 'f'", "file_artifact_id"),
		env("E7 ref", q+"file_artifact_ref = 'f'", "file_artifact_ref"),
		env("E8", q+"file = 'f'\ndescription = 'x'", "description"),
		env("E9", q+"file = 'f'", "may hold only artifact.toml", "a", "1"),
		env("E10", q+"file = 'u'", "file_artifact_universe"),
		env("E10 environment", q+"file = 'e'", "environment"),
		env("E10 self", q+"file = 'x'", "environment"),
		env("E11", q+"file = 'nope'", "nope"),
		env("E11 id", q+"file = '@local/none/x'", "@local/none/x"),
		env("E12", q+"file = 'F'", "case-sensitive"),
		env("E13", q+"file = {artifact = 'f', version = 1}", "version"),
		env("E14", q+"file = {artifact = 'f', x = 1}", "file"),
		env("E14 zero", q+"file = {artifact = '@local/x/y', version = 0}", "version"),
		env("E14 number", q+"file = 3", "file"),
		env("E14 empty", q+"file = ''", "file"),
		env("E14 list", q+"file = ['f']", "file"),
		env("E15", q+"description = 1", "description", "a", "1"),
		env("E16", q+"nme = 'x'", "nme", "a", "1"),
		env("E18 out", q, "leads out of the bundle", "a", "-> /etc/passwd"),
		env("E18 broken", q, "broken", "a", "-> nowhere"),
		env("E18 loop", q, "leads to itself", "a", "-> b", "b", "-> a"),
		env("E18 fifo", q, "neither", "a", "fifo"),
	}
}

// universes are malformed folders of type environment_universe.
func universes() []layout {
	uni := func(name, toml, want string, more ...string) layout {
		l := layout{name, map[string]string{"artifact.toml": "type = \"environment_universe\"\n" + toml}, want}
		for i := 0; i < len(more); i += 2 {
			l.files[more[i]] = more[i+1]
		}
		return l
	}
	return []layout{
		uni("U1", "", "a universe needs an environment"),
		uni("U1 empty list", "environment_artifacts = []", "a universe needs an environment"),
		uni("U1 metadata", "", "a universe needs an environment", "metadata/k/a", "1"),
		uni("odd: no UTF-8", "", `\xff: the name isn't valid UTF-8`, "\xff/a", "1"),
		uni("odd: a file of no UTF-8", "", `crm/\xff: the name isn't valid UTF-8`, "crm/\xff", "1"),
		uni("odd: a terminal's", "", `\x1b[31mred: rename it`, "\x1b[31mred/a", "1"),
		uni("odd: a line's end", "", `a\nb: rename it`, "a\nb/a", "1"),
		uni("odd: two forms", "", "in different Unicode forms", "cafe\u0301/a", "1", "caf\u00e9/a", "1"),
		uni("odd: FIFO in metadata", "", "neither a file nor a folder", "crm/a", "1", "metadata/k/f", "fifo"),
		uni("odd: a folder in itself", "", "lie within each other", "crm/crm", "-> ../crm"),
		uni("U2", "", "only artifact.toml and folders", "a.json", "1", "crm/a", "1"),
		uni("U3", "", "holds one file", "crm/a", "1", "crm/b", "1"),
		uni("U4", "", "holds one file", "crm/", ""),
		uni("U4 leavings", "", "holds one file", "crm/.DS_Store", "1"),
		uni("U5", "", "metadata holds a folder", "crm/a", "1", "metadata/a.json", "1"),
		uni("U6", "", "holds one file", "crm/a", "1", "metadata/k/", ""),
		uni("U6 two", "", "holds one file", "crm/a", "1", "metadata/k/a", "1", "metadata/k/b", "1"),
		uni("U7", "", "rename to metadata", "crm/a", "1", "Metadata/k/a", "1"),
		uni("U8", "metadata = {}", "metadata", "crm/a", "1"),
		uni("U8 refs", "metadata_refs = {}", "metadata_refs", "crm/a", "1"),
		uni("U9", "service_artifact_ids = []\nservice_artifact_refs = []\nenvironment_artifact_refs = []", "service_artifact_ids", "crm/a", "1"),
		uni("U10", "description = 'x'", "description", "crm/a", "1"),
		uni("U11", "environment_artifacts = 'e'", "environment_artifacts"),
		uni("U12", "environment_artifacts = [3]", "environment_artifacts[0]"),
		uni("U12 table", "environment_artifacts = [{artifact = 'e', x = 1}]", "environment_artifacts[0]"),
		uni("U12 zero", "environment_artifacts = [{artifact = '@local/x/y', version = 0}]", "environment_artifacts[0]"),
		uni("U13", "environment_artifacts = ['f']", "environment_artifacts[0]"),
		uni("U13 self", "environment_artifacts = ['x']", "environment_artifacts[0]"),
		uni("U14", "environment_artifacts = ['nope']", "nope"),
		uni("U14 case", "environment_artifacts = ['E']", "case-sensitive"),
		uni("U15", "environment_artifacts = [{artifact = 'e', version = 1}]", "version"),
		uni("U16", "environment_artifacts = ['e']", "each name once", "crm/a", "1"),
		uni("U17", "environment_artifacts = ['e', 'e']", "each name once"),
		longNames(),
		uni("U21", "", "leads out of the bundle", "crm/a", "-> /etc/passwd"),
		uni("U22", "id = '@local/x/w__crm'", `"__"`, "crm/a", "1"),
		uni("nested", "", "within each other", "a/b/x", "1"),
		uni("nested metadata", "", "within each other", "crm/a", "1", "metadata/k/l/x", "1"),
		uni("folder beside a file", "", "within each other", "crm/a", "1", "crm/eu/b", "1"),
		uni("reserved mark", "", `"__"`, "a__b/x", "1"),
		uni("reserved mark in a key", "", `"__"`, "crm/a", "1", "metadata/k__l/x", "1"),
		uni("edge space", "", "rename it", "crm /x", "1"),
		uni("first space", "", "rename it", " crm/x", "1"),
		uni("no name of an id", "", "rename it", "a:b/x", "1"),
		uni("FIFO", "", "neither", "crm/a", "fifo"),
	}
}

// longNames is row U19: an id that can be authored, and a child's below it that is too long.
func longNames() layout {
	long := strings.Repeat("x", 200)
	id := "@local/" + strings.Repeat(long+"/", 20) + "x"
	return layout{"U19", map[string]string{"artifact.toml": "type = 'environment_universe'\nid = '" + id + "'", long + "/a": "1"}, "a shorter name"}
}

// write lays a folder out.
func (l layout) write(t *testing.T, dir string) {
	t.Helper()
	for name, text := range l.files {
		at := filepath.Join(dir, name)
		parent := filepath.Dir(at)
		if strings.HasSuffix(name, "/") {
			parent = at
		}
		err := os.MkdirAll(parent, 0o755)
		target, link := strings.CutPrefix(text, "-> ")
		switch {
		case err != nil || parent == at:
		case link:
			err = os.Symlink(target, at)
		case text == "fifo":
			err = syscall.Mkfifo(at, 0o644)
		default:
			err = os.WriteFile(at, []byte(text), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// sound is a bundle that can be written: a file f, a universe u, an environment e over f, and a task that loads t.
func sound(t *testing.T, home, loads string) string {
	t.Helper()
	dir := filepath.Join(home, "b")
	task := fmt.Sprintf(`[{"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_mode": "vm"},
		{"id": "load", "type": "load_artifact", "sandbox_name": "box", "artifact_id": %q}]`, loads)
	layout{"", map[string]string{
		"tasks/t.json": task, "artifacts/f/f.json": "1", "artifacts/u/a": "1", "artifacts/u/b": "2",
		"artifacts/e/artifact.toml": "type = 'environment'\nenvironment_name = 'crm'\nfile = 'f'",
	}, ""}.write(t, dir)
	return dir
}

// bytesOf is a digest of every file below a folder, by path. The shared memory of a database is no part of it: it is made anew by each process.
func bytesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || strings.HasSuffix(path, "-shm") {
			return err
		}
		b, err := os.ReadFile(path)
		sum := sha256.Sum256(b)
		out[path] = hex.EncodeToString(sum[:])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMalformedLayouts: every malformed environment or universe is refused by a dry run and by a run, before a byte of the store is changed.
func TestMalformedLayouts(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	if code, out := inProcess(t, home, "run", sound(t, home, "f"), "--dry-run"); code != 0 {
		t.Fatal(out)
	}
	if code, out := inProcess(t, home, "bundle", "register", filepath.Join(home, "b")); code != 0 {
		t.Fatal(out)
	}
	state := filepath.Join(home, "state")
	all := append(environments(), universes()...)
	if len(all) < 55 {
		t.Errorf("%d layouts", len(all))
	}
	before := bytesOf(t, state)
	if len(before) == 0 {
		t.Fatal("there is no store")
	}
	dir := sound(t, home, "x")
	for _, l := range all {
		x := filepath.Join(dir, "artifacts", "x")
		if err := os.RemoveAll(x); err != nil {
			t.Fatal(err)
		}
		l.write(t, x)
		for _, args := range [][]string{{"run", dir, "--dry-run"}, {"run", dir}} {
			code, out := inProcess(t, home, args...)
			if code != 1 || !strings.Contains(out, l.want) || !strings.Contains(out, "artifacts/x") {
				t.Errorf("%s: %v: %d\n%s\nwants %q", l.name, args, code, out, l.want)
			}
		}
		if after := bytesOf(t, state); !maps.Equal(after, before) {
			t.Fatalf("%s: the store has changed", l.name)
		}
	}
}

// TestOddNames: whatever the one file of an environment is called, it is written, loaded, and comes back.
func TestOddNames(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	const data = `{"owner": "a@example.com", "emails": [{"id": "c-1", "from": "x@example.com", "subject": "one", "body": "two"}]}`
	for i, name := range []string{"a\nb.json", strings.Repeat("n", 255), "a%2fb%00?x#y.json", "-rf \x1b[31m", "...", "a\\b'\"`$(x)"} {
		dir := filepath.Join(home, fmt.Sprint("odd", i))
		layout{"", map[string]string{
			"envs/crm/Dockerfile": "FROM scratch\n", "envs/crm/env.toml": "environment_name = 'crm'", "envs/crm/process.toml": "command = ['agent-env', 'serve', 'inbox-mcp']",
			"artifacts/w/artifact.toml": "type = 'environment_universe'", "artifacts/w/crm/" + name: data,
			"tasks/t.json": `[{"id": "up", "type": "deploy_env", "env_id": "crm"}, {"id": "in", "type": "load_artifact", "env_id": "crm", "artifact_id": "w"},
				{"id": "out", "type": "snapshot_env", "env_id": "crm", "snapshot_id": "after"}]`,
		}, ""}.write(t, dir)
		r := start(t, home, "run", dir, "--quiet")
		if code := r.end(t, 60*time.Second); code != 0 {
			t.Errorf("%q: %d %s", name, code, r.stderr)
		}
		to := dir + "-got"
		if code, out := inProcess(t, home, "artifact", "environment-universe", "get", "--id", fmt.Sprintf("@local/~/odd%d/w", i), "--output-dir", to); code != 0 {
			t.Errorf("%q: %s", name, out)
		}
		if b, err := os.ReadFile(filepath.Join(to, "crm", name)); err != nil || string(b) != data {
			t.Errorf("%q came back as %q, %v", name, b, err)
		}
	}
}

// wide is a bundle with a universe of n environments.
func wide(t *testing.T, home string, n int) string {
	t.Helper()
	dir := sound(t, home, "f")
	files := map[string]string{"artifact.toml": "type = 'environment_universe'\nenvironment_artifacts = ['e']", "metadata/k/k.json": "{}"}
	for i := range n {
		files[fmt.Sprintf("env%04d/data.json", i)] = fmt.Sprint(i)
	}
	layout{"", files, ""}.write(t, filepath.Join(dir, "artifacts", "w"))
	return dir
}

// TestStoppedWrites: a write that is stopped in its midst, whatever the signal, leaves nothing in the way of the next, which is whole.
func TestStoppedWrites(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			home := newHome(t)
			dir := wide(t, home, 200)
			for _, after := range []time.Duration{60, 150, 250} {
				r := start(t, home, "bundle", "register", dir)
				time.Sleep(after * time.Millisecond)
				_ = r.cmd.Process.Signal(sig) // it may have ended
				r.end(t, 20*time.Second)
			}
			r := start(t, home, "bundle", "register", dir)
			if code := r.end(t, 60*time.Second); code != 0 {
				t.Fatalf("%d: %s", code, r.stderr)
			}
			if out := strings.Join(r.out, "\n"); !strings.Contains(out, "artifacts/w: v1 (new)") && !strings.Contains(out, "artifacts/w: v1, unchanged") {
				t.Error(out)
			}
			r = start(t, home, "artifact", "get", "@local/~/b/w", "--output-dir", filepath.Join(home, "got"))
			if code := r.end(t, 60*time.Second); code != 0 {
				t.Fatal(r.stderr)
			}
			got, err := filepath.Glob(filepath.Join(home, "got", "*", "*"))
			if err != nil || len(got) != 202 { // 200, that of e, and metadata/k
				t.Errorf("%d files, %v", len(got), err)
			}
		})
	}
}

// TestTwoWriters: of two runs that write one universe at once, one writes and the other finds it written.
func TestTwoWriters(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	dir := wide(t, home, 200)
	a, b := start(t, home, "bundle", "register", dir), start(t, home, "bundle", "register", dir)
	if code1, code2 := a.end(t, 60*time.Second), b.end(t, 60*time.Second); code1 != 0 || code2 != 0 {
		t.Fatalf("%d %d\n%s\n%s", code1, code2, a.stderr, b.stderr)
	}
	out := strings.Join(append(a.out, b.out...), "\n")
	if strings.Count(out, "artifacts/w: v1 (new)") != 1 || strings.Count(out, "artifacts/w: v1, unchanged") != 1 {
		t.Error(out)
	}
}
