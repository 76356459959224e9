package bundle

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/examples"
	"agentenv.internal/agentenv/internal/ref"
)

func TestOpenFolder(t *testing.T) {
	home := filepath.Join(t.TempDir(), "hôme of j")
	files{"b/x": "", "a:b/x": "", "a:b/ c/x": "", "file": "", "link": "-> b", "ne\u0301/x": ""}.write(t, home)
	files{"b/x": ""}.write(t, filepath.Join(home, "sub"))
	other := t.TempDir()
	for _, tc := range []struct{ path, home, want, fault string }{
		{home + "/b", home, "@local/~/b", ""},
		{home + "/b/", home, "@local/~/b", ""},
		{home + "/sub/../sub/b", home, "@local/~/sub/b", ""},
		{home + "/link", home, "@local/~/b", ""},
		{home + "/ne\u0301", home, "@local/~/né", ""},
		{home + "/b", "", ref.LocalPrefix + home[1:] + "/b", ""},
		{home + "/b", "relative", ref.LocalPrefix + home[1:] + "/b", ""},
		{home + "/b", other + "/gone", ref.LocalPrefix + home[1:] + "/b", ""},
		{home + "/gone", home, "", home + "/gone: no such folder"},
		{home + "/file", home, "", home + "/file: this is neither a folder nor an installed bundle; name the bundle's folder"},
		{home + "/a:b", home, "", home + "/a:b: move the bundle, or rename this folder: 'a:b' contains ':'; a local id may contain only"},
		{home + "/a:b/ c", home, "", home + "/a:b/ c: move the bundle, or rename this folder: ' c' has a path segment that opens or closes with a space\n" + home + "/a:b: move"},
		{"/", home, "", "/: the root of the file system can't be a bundle; put the bundle in a folder"},
	} {
		src, err := OpenFolder(tc.path, tc.home)
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			_ = src.Close()
		}
		if src.IDRoot != tc.want || (tc.fault == "") != (got == "") || !strings.HasPrefix(got, tc.fault) {
			t.Errorf("OpenFolder(%q, %q) = %q, %q; want %q, %q", tc.path, tc.home, src.IDRoot, got, tc.want, tc.fault)
		}
	}
}

func TestRelativePathAndHomeByALink(t *testing.T) {
	real := t.TempDir()
	files{"b/x": ""}.write(t, real)
	home := filepath.Join(t.TempDir(), "home")
	if err := os.Symlink(real, home); err != nil {
		t.Fatal(err)
	}
	t.Chdir(real)
	src, err := OpenFolder("./b", home)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if src.IDRoot != "@local/~/b" || src.Name != "b" {
		t.Errorf("%+v", src)
	}
}

func TestFileOpensOnce(t *testing.T) {
	src := open(t, files{"tasks/t.json": load("f"), "artifacts/f/x": "hi"})
	p, l := stages(t, src, nil, Selection{})
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	f := &p.Writes[0].Files[0]
	r, err := f.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, ok := r.(*os.File); !ok {
		t.Errorf("a file of a folder is a %T: the store can't copy it inside the kernel", r)
	}
	// Another thing in its place is refused, and a FIFO doesn't block.
	at := filepath.Join(src.Dir, "artifacts/f/x")
	for _, other := range []string{"fifo", "-> /etc/passwd"} {
		if err := os.Remove(at); err != nil {
			t.Fatal(err)
		}
		files{"artifacts/f/x": other}.write(t, src.Dir)
		if r, err := f.Open(); err == nil {
			_ = r.Close()
			t.Errorf("%q opens", other)
		}
	}
}

func TestDescription(t *testing.T) {
	for text, want := range map[string]string{
		"# A title\n\ntext":               "A title",
		"\ufeffPlain\n":                   "Plain",
		"---\nlicense: mit\n---\n# After": "After",
		"---\nnever closed":               "---",
		"<img src=x>\n[![badge](x)](y)\n![pic](z)\n\n## Real ##": "Real ##",
		"":              "",
		"#\n\n##":       "",
		"a\x1b[2Kb\r\n": `a\x1b[2Kb`,
	} {
		if got := description([]byte(text)); got != want {
			t.Errorf("description(%q) = %q, want %q", text, got, want)
		}
	}
	src := open(t, files{"readme.MD": "other", "README.md": "Exact", "tasks/t.json": "[" + boxStep + "]"})
	if b, l := Parse(src, options()); l.HasErrors() || b.Description != "Exact" {
		t.Errorf("%q, %v", b.Description, l)
	}
	src = open(t, files{"README.md": "fifo", "tasks/t.json": "[" + boxStep + "]"})
	if b, l := Parse(src, options()); l.HasErrors() || b.Description != "" {
		t.Errorf("%q, %v", b.Description, l)
	}
}

func TestManifestIgnoredAliases(t *testing.T) {
	src := open(t, files{
		"bundle.toml": "requires = ['a>=1', 'b; python_version > \"3\"']\n", "aliases.toml": "[envs]\nk = ['kay']\n", "docs/x": "", ".git/x": "",
		"tasks/t.json": "[" + boxStep + "]", "tasks/notes.txt": "", "envs/k/Dockerfile": "", "artifacts/loose": "",
	})
	b, l := Parse(src, options())
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(b.Requires, "|"); got != `a>=1|b; python_version > "3"` || !b.HasManifest {
		t.Errorf("requires %q", got)
	}
	if got := strings.Join(b.Ignored, "|"); got != "artifacts/loose|docs|tasks/notes.txt" {
		t.Errorf("ignored %q", got)
	}
	if got := b.Aliases()[ref.Env]["kay"]; got != "@local/~/b/k" {
		t.Errorf("alias of %q", got)
	}
}

func TestLeftOutAndEvals(t *testing.T) {
	f := files{"tasks/t.json": load("f"), "tasks/u.json": load("f"), "artifacts/f/x": "1", "evals/e.toml": "tasks = ['@local/~/b/t']"}
	p, l := stages(t, open(t, f), nil, Selection{})
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	if len(p.LeftOut) != 1 || p.LeftOut[0] != "tasks/u.json" || len(p.Run) != 1 || len(p.Evals) != 1 || p.Evals[0].Tasks[0] != p.Run[0] {
		t.Errorf("left out %v, run %v, evals %v", p.LeftOut, p.Run, p.Evals)
	}
	if got := p.Evals[0].Write.Eval.Tasks; len(got) != 1 || got[0] != "@local/~/b/t" {
		t.Errorf("the eval names %v", got)
	}
	if got := p.Run[0].Task.Steps[1].Doc.Get("artifact_id").Text(); got != "@local/~/b/f" {
		t.Errorf("the step loads %q", got)
	}
}

func TestAliasesOfInstalledBundles(t *testing.T) {
	f := files{"tasks/t.json": `[{"id":"v","type":"verify_a2a_agent_card","a2a_agent_id":"claude"},{"id":"w","type":"verify_a2a_agent_card","a2a_agent_id":"mine"}]`}
	view := fakeView{
		"agent @local/agentenv-framework/agents/claude": {Version: 3, Type: "a2a_agent"},
		"agent mine":        {Version: 1, Type: "a2a_agent"},
		"agent @local/gone": {Version: 1, Type: "a2a_agent"},
	}
	o := options()
	o.Aliases = map[ref.Kind]map[string]string{ref.Agent: {"claude": "@local/agentenv-framework/agents/claude", "mine": "@local/gone"}}
	b, l := Parse(open(t, f), o)
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	if err := b.Resolve().Err(); err != nil {
		t.Fatal(err)
	}
	p, l, err := b.Plan(t.Context(), view, Selection{})
	if err != nil || l.HasErrors() {
		t.Fatal(err, l)
	}
	got := []string{p.Run[0].Task.Steps[0].Doc.Get("a2a_agent_id").Text(), p.Run[0].Task.Steps[1].Doc.Get("a2a_agent_id").Text()}
	if got[0] != "@local/agentenv-framework/agents/claude" || got[1] != "mine" {
		t.Errorf("the task names %q", got)
	}
}

func TestCheckWithoutAStore(t *testing.T) {
	f := files{"tasks/t.json": load("@local/x/nope"), "evals/e.toml": "tasks = ['t']"}
	p, l := stages(t, open(t, f), nil, Selection{})
	if p == nil || l.HasErrors() {
		t.Fatal(l)
	}
	if len(l) != 1 || !strings.Contains(l[0].String(), "isn't in this bundle; a run looks for it in the store") {
		t.Errorf("hints %v", l)
	}
}

func TestShippedBundles(t *testing.T) {
	entries, err := os.ReadDir("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !e.IsDir() {
			continue
		}
		fsys, err := fs.Sub(examples.FS(), e.Name())
		if err != nil {
			t.Fatal(err)
		}
		p, l := stages(t, Source{FS: fsys, Name: e.Name(), Root: e.Name(), IDRoot: ref.InstalledRoot("agentenv-framework", e.Name())}, nil, Selection{})
		if err := l.Err(); err != nil {
			t.Errorf("%s: %v", e.Name(), err)
			continue
		}
		if !strings.HasPrefix(p.Run[0].ID, "@local/agentenv-framework/"+e.Name()+"/") {
			t.Errorf("%s runs %s", e.Name(), p.Run[0].ID)
		}
	}
}

func TestLinksThatMultiply(t *testing.T) {
	f := files{"tasks/t.json": load("f"), "artifacts/f/x/a": "-> ../../../d0", "artifacts/f/y": "1"}
	for i := range 60 {
		for _, l := range []string{"a", "b"} {
			f[fmt.Sprintf("d%d/%s", i, l)] = fmt.Sprintf("-> ../d%d", i+1)
		}
	}
	f["d60/"] = ""
	if got := answer(t, open(t, f), nil, Selection{}); !strings.HasPrefix(got, "artifacts/f: holds too many links to folders") {
		t.Error(got)
	}
}

// U19: ids below the universe's must fit, too.
func TestLongNames(t *testing.T) {
	root := "@local/" + strings.Repeat("a/", 2000) + "b"
	for _, tc := range []struct{ name, want string }{
		{strings.Repeat("w", 30), "ok: "},
		{strings.Repeat("w", 60), "/crm: give it or artifacts/" + strings.Repeat("w", 60) + " a shorter name: an id has at most 4096 bytes"},
		{strings.Repeat("w", 70), ": rename it: an id has at most 4071 bytes"},
	} {
		w := "artifacts/" + tc.name
		fsys := treeOf(textOf(files{"tasks/t.json": load(tc.name), w + "/artifact.toml": "type='environment_universe'", w + "/crm" + strings.Repeat("x", 20) + "/a": "1"}))
		got := answer(t, Source{FS: fsys, Name: "b", Root: "/b", IDRoot: root}, nil, Selection{})
		if !strings.Contains(strings.ReplaceAll(got, "crm"+strings.Repeat("x", 20), "crm"), tc.want) {
			t.Errorf("a name of %d: %s", len(tc.name), got)
		}
	}
}
