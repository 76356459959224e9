package bundle

import (
	"slices"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/env"
)

// processes checks the process files of an env: how its servers run without an image. They are part of the build context and stored with it.
func (p *planner) processes(e *Entry) {
	list, _ := e.bundle.tree.walk(e.path, nil)
	has := func(rel string) bool { return slices.ContainsFunc(list, func(f found) bool { return f.rel == rel }) }
	for _, img := range e.images {
		name := env.ProcessFileOf(img.role)
		at := slices.IndexFunc(list, func(f found) bool { return f.rel == name })
		if at < 0 {
			continue
		}
		if img.ref != "" {
			p.l.Add(diag.Problem{
				Pos: diag.Pos{File: e.Label + "/" + name}, Code: "process.unused", Severity: diag.Warning, Prefixed: true,
				Summary: "isn't used: the server is the image " + diag.Repr(img.ref), Fix: "remove it, or the reference",
			})
			continue
		}
		src, err := e.bundle.tree.read(list[at].path)
		if err != nil {
			p.l.Add(diag.Problem{Pos: diag.Pos{File: e.Label + "/" + name}, Code: "process.read", Summary: err.Error(), Prefixed: true})
			continue
		}
		process, l := env.ReadProcess(e.Label+"/"+name, src)
		if !l.HasErrors() && process.Python != "" && !has(process.Python) {
			l.Add(diag.Problem{
				Pos: diag.Pos{File: e.Label + "/" + name}, Where: "python", Code: "process.python",
				Summary: "there is no file " + diag.Repr(process.Python) + " in " + diag.Clean(e.Label), Fix: "write it, or name another",
			})
		}
		p.l.Add(l.Prefixed()...)
	}
}
