package bundle

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// accept checks a reached entry's toml against the schema of its type. words are keys of stored documents, with what to write instead.
func (p *planner) accept(e *Entry, s *doc.Schema, words map[string]string, rules func(doc.Node, *diag.List)) {
	n := e.Config
	if !n.Exists() {
		n = doc.Build(map[string]any{})
	}
	var l diag.List
	s.Check(n, "", &l)
	if !l.HasErrors() && rules != nil {
		rules(n, &l)
	}
	l = slices.DeleteFunc(l, func(f diag.Problem) bool {
		return f.Code == doc.CodeUnknown && slices.ContainsFunc(slices.Collect(maps.Keys(words)), func(w string) bool {
			return strings.HasPrefix(f.Summary, "unknown key "+diag.Repr(w))
		})
	})
	for name, v := range n.Members() {
		if instead, ok := words[name]; ok {
			l.Add(diag.Problem{
				Pos: v.KeyPos(), Code: "toml.stored", Summary: name + " is a word of stored documents", Fix: "write " + instead,
			})
		}
	}
	p.inConfig(e, l)
}

// inConfig records problems of what an entry's toml says: "artifacts/x: artifact.toml: …".
func (p *planner) inConfig(e *Entry, l diag.List) {
	for _, f := range l {
		f.Pos = diag.Pos{File: e.Label, Line: f.Pos.Line}
		f.Where = strings.TrimSuffix(groups[e.Group].config+": "+f.Where, ": ")
		f.Prefixed = true
		p.l.Add(f)
	}
}

// text is a string of the toml; "" when it is absent or of another kind, which accept reports.
func (e *Entry) text(name string) string {
	s, _ := e.Config.Get(name).Str()
	return s
}

// files lists what a folder's write reads, leavings aside and its toml only on demand, and reports what can't be read.
func (p *planner) files(e *Entry, toml bool) []File {
	skip := func(name string) bool { return !toml && name == groups[e.Group].config }
	list, bad := e.bundle.tree.walk(e.path, skip)
	for _, x := range bad {
		label := e.Label
		if x.rel != "" {
			label += "/" + diag.Clean(x.rel)
		}
		p.l.Add(diag.Problem{Pos: diag.Pos{File: label}, Code: "file.link", Summary: x.err.Error(), Prefixed: true})
	}
	out := make([]File, 0, len(list))
	for _, f := range list {
		if file, ok := p.file(e, f); ok {
			out = append(out, file)
		}
	}
	return out
}

func (p *planner) file(e *Entry, f found) (File, bool) {
	info, err := e.bundle.tree.info(f.item)
	if err != nil {
		p.l.Add(diag.Problem{
			Pos: diag.Pos{File: e.Label + "/" + diag.Clean(f.rel)}, Code: "file.read", Summary: reason(err, "no such file"), Prefixed: true,
		})
		return File{}, false
	}
	return File{Path: f.rel, Mode: info.Mode(), Size: info.Size(), fs: e.bundle.FS, at: f.path}, true
}

// paths are the files' paths.
func paths(files []File) []string {
	out := make([]string, len(files))
	for i, f := range files {
		out[i] = f.Path
	}
	return out
}

// count shows how many files there are, and which: "none", "2 ('a', 'b')".
func count(names []string) string {
	const most = 5
	if len(names) == 0 {
		return "none"
	}
	shown := make([]string, 0, most)
	for _, n := range names[:min(len(names), most)] {
		shown = append(shown, diag.Repr(n))
	}
	more := ""
	if len(names) > most {
		more = " and " + strconv.Itoa(len(names)-most) + " more"
	}
	return strconv.Itoa(len(names)) + " (" + strings.Join(shown, ", ") + more + ")"
}
