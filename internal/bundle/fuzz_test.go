package bundle

import (
	"io/fs"
	"path"
	"strings"
	"testing"
	"testing/fstest"
	"unicode"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

// treeOf makes a file system of text: "name\x00content\x01name\x00content…"; a content that begins with "-> " is a link.
func treeOf(text string) fstest.MapFS {
	out := fstest.MapFS{}
	for part := range strings.SplitSeq(text, "\x01") {
		name, content, _ := strings.Cut(part, "\x00")
		name = strings.TrimPrefix(path.Clean("/"+name), "/")
		if !fs.ValidPath(name) || name == "." || len(out) > 40 {
			continue
		}
		f := &fstest.MapFile{Data: []byte(content), Mode: 0o644}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			f = &fstest.MapFile{Data: []byte(target), Mode: fs.ModeSymlink | 0o777}
		}
		out[name] = f
	}
	return out
}

func textOf(f files) string {
	var b strings.Builder
	for name, content := range f {
		b.WriteString(name + "\x00" + content + "\x01")
	}
	return b.String()
}

func FuzzParse(f *testing.F) {
	for _, r := range rows() {
		if t := textOf(r.files); len(t) < 4096 {
			f.Add(t)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		soundly(t, Source{FS: treeOf(text), Name: "b", Root: "/b", IDRoot: "@local/~/b"}, options(), Selection{})
	})
}

// A bundle that names entities of another one, which may name its own.
func FuzzPull(f *testing.F) {
	for name, b := range installed() {
		for _, of := range []string{"u", "e", "far", "f"} {
			f.Add(textOf(files{"tasks/t.json": load("@local/dist/data/"+of, "@local/dist/own/x"), "artifacts/x/a": "1"}), textOf(b), name == "data")
		}
	}
	f.Add(textOf(files{"tasks/t.json": load("w"), "artifacts/f/x": "1", "artifacts/w/artifact.toml": "type='environment_universe'\nenvironment_artifacts = ['@local/dist/data/e']"}),
		textOf(files{"artifacts/e/artifact.toml": "type = 'environment'\nenvironment_name = 'mail'\nfile = '@local/dist/own/f'"}), true)
	f.Fuzz(func(t *testing.T, text, other string, all bool) {
		own := Source{FS: treeOf(text), Name: "own", Root: "dist/own", IDRoot: "@local/dist/own"}
		data := Source{FS: treeOf(other), Name: "data", Root: "dist/data", IDRoot: "@local/dist/data"}
		o := options()
		o.Installed = func(id string) (Source, bool, error) {
			for _, s := range []Source{own, data} {
				if strings.HasPrefix(id, s.IDRoot+"/") {
					return s, true, nil
				}
			}
			return Source{}, false, nil
		}
		soundly(t, own, o, Selection{All: all})
	})
}

// soundly reads and plans a bundle: problems are lines, ids are sound, and a plan writes everything once, after what it needs.
func soundly(t *testing.T, src Source, o Options, sel Selection) {
	t.Helper()
	b, l := Parse(src, o)
	oneLine(t, l)
	if l.HasErrors() {
		return
	}
	for _, e := range b.Entries {
		if err := ref.CheckAuthored(e.ID); err != nil {
			t.Errorf("%s has the id %q: %v", e.Label, e.ID, err)
		}
	}
	l = b.Resolve()
	oneLine(t, l)
	if l.HasErrors() {
		return
	}
	p, l, err := b.Plan(t.Context(), nil, sel)
	if err != nil {
		t.Fatal(err)
	}
	oneLine(t, l)
	if l.HasErrors() {
		return
	}
	planned := map[string]bool{}
	for _, w := range p.Writes {
		at := string(w.Kind) + " " + w.ID
		if planned[at] {
			t.Errorf("%s is written twice", at)
		}
		for _, n := range w.Needs {
			if !planned[string(n.Kind)+" "+n.ID] {
				t.Errorf("%s comes before %s, which it needs", at, n.ID)
			}
		}
		planned[at] = true
		for i, f := range w.Files {
			if !fs.ValidPath(f.Path) || i > 0 && f.Path <= w.Files[i-1].Path {
				t.Errorf("%s: file %q after others", at, f.Path)
			}
		}
	}
}

func oneLine(t *testing.T, l diag.List) {
	t.Helper()
	for _, p := range l {
		if s := p.String(); s == "" || strings.ContainsFunc(s, unicode.IsControl) {
			t.Errorf("a problem isn't one line: %q", s)
		}
	}
}
