package bundle

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// key is one key that a toml may have.
type key struct {
	name string
	want doc.Kind // String or Array; Absent for a reference or an image, which Resolve has checked
}

// stored are words of stored documents that authors write by mistake, with what to write instead.
type stored map[string]string

// accept checks the keys of a reached entry's toml: those that it doesn't know, and values of the wrong kind.
func (p *planner) accept(e *Entry, what string, keys []key, words stored) {
	known := []string{"type", "id"}
	var takes []string
	for _, k := range keys {
		known = append(known, k.name)
		takes = append(takes, k.name)
	}
	takes = append(takes, "type", "id")
	n := e.Config
	for name, v := range n.Members() {
		if instead, ok := words[name]; ok {
			known = append(known, name)
			p.l.Add(e.inConfig(v, "toml.stored", "%s is a word of stored documents; write %s", name, instead))
		}
	}
	if summary, at := unknownKeys(n, known...); summary != "" {
		problem := e.inConfig(at, "toml.key", "%s", summary)
		problem.Fix = article(what) + " takes " + strings.Join(takes[:len(takes)-1], ", ") + " and " + takes[len(takes)-1]
		p.l.Add(problem)
	}
	for _, k := range keys {
		v := n.Get(k.name)
		if !v.Exists() || k.want == doc.Absent || v.Kind() == k.want {
			continue
		}
		p.l.Add(e.inConfig(v, "toml.kind", "%s must be %s, not %s", k.name, k.want, doc.Show(v)))
	}
}

// text is a string of the toml; "" when it is absent or of another kind, which accept reports.
func (e *Entry) text(name string) string {
	s, _ := e.Config.Get(name).Str()
	return s
}

// required reports a string that is absent or empty.
func (p *planner) required(e *Entry, name string) {
	n := e.Config.Get(name)
	switch s, ok := n.Str(); {
	case !n.Exists():
		p.l.Add(e.inConfig(e.Config, "toml.missing", "%s is required", name))
	case ok && s == "":
		p.l.Add(e.inConfig(n, "toml.empty", "%s can't be empty", name))
	}
}

// files lists what a folder's write reads, its toml and leavings aside, and reports what can't be read. What can't be is left out.
func (p *planner) files(e *Entry, toml bool) []File {
	skip := func(name string) bool { return !toml && name == groups[e.Group].config }
	list, bad := p.b.tree.walk(e.path, skip)
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
	info, err := p.b.tree.info(f.item)
	if err != nil {
		p.l.Add(diag.Problem{Pos: diag.Pos{File: e.Label + "/" + diag.Clean(f.rel)}, Code: "file.read", Summary: reason(err, "no such file"), Prefixed: true})
		return File{}, false
	}
	return File{Path: f.rel, Mode: info.Mode(), Size: info.Size(), fs: p.b.FS, at: f.path}, true
}

// paths are the files' paths.
func paths(files []File) []string {
	out := make([]string, len(files))
	for i, f := range files {
		out[i] = f.Path
	}
	return out
}

// counted shows a number of names: "2 ('a', 'b')".
func counted(names []string) string {
	const most = 5
	shown := make([]string, 0, most)
	for _, n := range names[:min(len(names), most)] {
		shown = append(shown, diag.Repr(n))
	}
	more := ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strconv.Itoa(len(names)) + " (" + strings.Join(shown, ", ") + more + ")"
}

// sortFiles puts files in the order of their paths.
func sortFiles(files []File) {
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
}
