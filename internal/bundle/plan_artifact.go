package bundle

import (
	"context"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/doc"
)

func (p *planner) artifact(ctx context.Context, e *Entry, w *Write) error {
	w.Config = e.authored()
	if !w.Config.Exists() {
		w.Config = doc.Build(map[string]any{})
	}
	switch e.Type {
	case artifact.File:
		p.fileArtifact(e, w)
	case artifact.FileUniverse:
		p.accept(e, "file_artifact_universe artifact", nil, nil)
		w.Files = p.files(e, false)
		if len(w.Files) == 0 && !p.l.HasErrors() {
			p.l.Add(e.problem(doc.Node{}, "", "files.none", "there are no files to write (%s)", leavingsNote))
		}
	default:
		p.unsupported(e)
	}
	return nil
}

// unsupported refuses a type that can't be written yet.
func (p *planner) unsupported(e *Entry) {
	p.l.Add(e.problem(e.Config.Get("type"), "", "write.unsupported", "writing %s isn't supported yet", article(e.Type)))
}

func (p *planner) fileArtifact(e *Entry, w *Write) {
	p.accept(e, "file artifact", []key{{"description", doc.String}}, nil)
	w.Files = p.files(e, false)
	if len(w.Files) != 1 {
		fix := "add one"
		if len(w.Files) > 1 {
			fix = "leave out its declared type to write the folder as a " + artifact.FileUniverse
		}
		problem := e.problem(doc.Node{}, "", "files.one", "a file artifact holds one file, and this folder has %s", count(paths(w.Files)))
		problem.Fix = fix
		p.l.Add(problem)
	}
	w.Fields = map[string]any{"description": e.text("description")}
}

func (p *planner) skill(e *Entry, w *Write) { p.unsupported(e) }

func (p *planner) agent(e *Entry, w *Write) { p.unsupported(e) }

func (p *planner) env(ctx context.Context, e *Entry, w *Write) error {
	p.unsupported(e)
	return nil
}

func (p *planner) loaded(ctx context.Context) {}
