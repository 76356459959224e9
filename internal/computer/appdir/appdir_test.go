package appdir

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/wire"
)

func program() *fstest.MapFile { return &fstest.MapFile{Data: []byte("#!/bin/sh\n"), Mode: 0o755} }

func text(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s), Mode: 0o644} }

func folder(toml string) fstest.MapFS {
	return fstest.MapFS{
		File: text(toml), "install": program(), "bin/notes": program(), "hooks/add": program(), "data.txt": text("x"),
		"skill/SKILL.md": text("---\nname: notes\ndescription: How notes are kept.\n---\nBody.\n"),
	}
}

func TestRead(t *testing.T) {
	a, l := Read(folder(`data_timeout_s = 12.5
skill = "skill"
[linux]
paths = ["Notes", ".config/notes"]
install = ["./install"]
launch = ["./bin/notes", "--big"]
[hooks]
add_data = ["hooks/add"]
get_data = ["sh", "-c", "true"]
`), "envs/notes", "notes")
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	if a.Name != "notes" || a.Timeout != 12500*time.Millisecond || a.Skill != "skill" || a.Front.Description != "How notes are kept." {
		t.Errorf("%+v", a)
	}
	if got := strings.Join(a.Paths, " "); got != "Notes .config/notes" {
		t.Error(got)
	}
	if a.Install[0] != "./install" || len(a.Launch) != 2 || a.Hooks.Add[0] != "hooks/add" || len(a.Hooks.Get) != 3 || a.Hooks.Reset != nil || a.Server != nil {
		t.Errorf("%+v", a)
	}
	empty, l := Read(folder(""), "", "x")
	if l.HasErrors() || empty.Paths != nil || empty.Timeout != DefaultTimeout || empty.Skill != "" {
		t.Errorf("%+v %v", empty, l.Err())
	}
}

// TestA2 holds the rule of paths, and what else an app.toml can't say.
func TestA2(t *testing.T) {
	for toml, want := range map[string]string{
		`[linux]
paths = ["Notes", "Notes"]`: "app.toml:2: linux.paths: 'Notes' is there twice",
		`[linux]
paths = ["Notes/a", "x", "Notes"]`: "app.toml:2: linux.paths: 'Notes' holds 'Notes/a', which is there too",
		`[linux]
paths = ["Notes", "Notes/a"]`: "app.toml:2: linux.paths: 'Notes/a' lies inside 'Notes', which is there too",
		`[linux]
paths = ["Notes", "NotesToo"]`: "",
		`[linux]
paths = ["/etc"]`: "app.toml:2: linux.paths[0]: '/etc' can't be a place in the home: the path must be relative, without empty, . or .. segments",
		`[linux]
paths = [".agentenv/x"]`: "app.toml:2: linux.paths[0]: '.agentenv/x' is where servers keep what is theirs, and no app's",
		`[linux]
path = ["a"]`: "app.toml:2: linux: unknown key 'path'; did you mean 'paths'? known here: install, launch, needs, paths",
		`[[linux.needs]]
find = ["lib/x", "/usr/lib/[", "/usr/lib*/x", "x"]
package = ""`: "app.toml:2: linux.needs[0].find[0]: must be the name of a program, or a pattern of absolute paths, not 'lib/x'\n" +
			"app.toml:2: linux.needs[0].find[1]: must be the name of a program, or a pattern of absolute paths, not '/usr/lib/['\n" +
			"app.toml:3: linux.needs[0].package: must not be empty",
		`[linux]
launch = ["./bin/other"]`: "app.toml:2: linux.launch: 'bin/other' can't be executed: file does not exist; write it",
		`[linux]
launch = ["./data.txt"]`: "app.toml:2: linux.launch: 'data.txt' isn't executable; chmod +x data.txt",
		`[linux]
install = ["../install"]`: "app.toml:2: linux.install: '../install' is no file of the folder",
		`[hooks]
add_data = ["./hooks"]`: "app.toml:2: hooks.add_data: 'hooks' is no program",
		`[hooks]
add_data = ["./hooks/add"]
[server]
command = ["./bin/notes"]`: "app.toml:1: hooks: the app has a server of its own, which does that itself; remove this or [server]",
		`skill = "bin"`:       "app.toml:1: skill: 'bin/SKILL.md' can't be read: file does not exist; write it, with a name and a description in its front matter",
		`skill = "../x"`:      "app.toml:1: skill: must be a folder of the app's folder, such as skill, not '../x'",
		`data_timeout_s = -1`: "app.toml:1: data_timeout_s: must be from 0.001 to 3600, not -1",
		`[server]`:            "app.toml:1: server: command is missing; write it: a list",
	} {
		_, l := Read(folder(toml), "", "notes")
		if got := (&diag.Refusal{List: l}).Error(); got != want {
			t.Errorf("%s\n got %s\nwant %s", toml, got, want)
		}
	}
	if _, l := Read(fstest.MapFS{}, "envs/x", "x"); !strings.HasPrefix(l.Err().Error(), "envs/x/app.toml: an app needs it") {
		t.Error(l)
	}
}

// TestA6 holds the names of apps.
func TestA6(t *testing.T) {
	for name, ok := range map[string]bool{"notes": true, "0-a_b": true, strings.Repeat("a", 63): true, "": false, "Notes": false, "-a": false, "a/b": false, "a.b": false, strings.Repeat("a", 64): false} {
		if wire.IsAppName(name) != ok {
			t.Errorf("%q", name)
		}
		if _, l := Read(folder(""), "", name); l.HasErrors() == ok {
			t.Errorf("%q: %v", name, l.Err())
		}
	}
}

func FuzzRead(f *testing.F) {
	for _, s := range []string{"", "[linux]\npaths = [\"a\"]", "skill = \"skill\"", "[server]\ncommand = [\"./bin/notes\"]", "[hooks]\nadd_data = [\"./hooks/add\", 1]", "a.b = 1\na = 2"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, toml string) {
		a, l := Read(folder(toml), "", "notes")
		if l.HasErrors() {
			return
		}
		for _, c := range [][]string{a.Install, a.Launch, a.Hooks.Add, a.Hooks.Get, a.Hooks.Reset, a.Server} {
			if c != nil && (c[0] == "" || Own(c[0]) != "" && !fs.ValidPath(Own(c[0]))) {
				t.Errorf("%q", c)
			}
		}
		for i, p := range a.Paths {
			for _, o := range a.Paths[:i] {
				if wire.Overlap(p, o) {
					t.Errorf("%q %q", p, o)
				}
			}
			if strings.HasPrefix(p, "/") || wire.Below(p, wire.PrivateFolder) || strings.Contains("/"+p+"/", "/../") {
				t.Errorf("%q", p)
			}
		}
		if a.Timeout <= 0 || a.Timeout > MaxTimeout {
			t.Error(a.Timeout)
		}
	})
}

// TestNeeds: one of the places is enough.
func TestNeeds(t *testing.T) {
	a, l := Read(folder("[[linux.needs]]\nfind = [\"some\", \"/lib*/x\"]\npackage = \"p\""), "", "notes")
	if err := l.Err(); err != nil || len(a.Needs) != 1 || a.Needs[0].Package != "p" {
		t.Fatalf("%v, %v", a, err)
	}
	for _, c := range []struct {
		program, file string
		met           bool
	}{{"some", "", true}, {"", "/lib*/x", true}, {"", "", false}, {"other", "/x", false}} {
		program := func(name string) (string, error) {
			if name != c.program {
				return "", fs.ErrNotExist
			}
			return name, nil
		}
		files := func(pattern string) ([]string, error) {
			if pattern != c.file {
				return nil, nil
			}
			return []string{"/lib64/x"}, nil
		}
		if got := a.Needs[0].Met(program, files); got != c.met {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
