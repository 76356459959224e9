package run

import (
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/task"
)

// stepFields are the fields that name another step of the task, whose output the step uses; typ is the type that it must have, "" for any.
var stepFields = [...]struct{ field, typ string }{
	{"artifact_from_step_id", ""},
	{"collected_artifacts_step_id", "collect_artifacts"},
	{"env_step_id", "deploy_env"},
	{"manifest_step_id", ""},
}

// stepNames refuses references to steps that would find nothing: no such step, one of another type, or one that the step doesn't wait for, whose output
// it therefore doesn't see.
func stepNames(t *task.Task, label string) diag.List {
	var l diag.List
	var before []task.Set
	for i := range t.Steps {
		st := &t.Steps[i]
		for _, f := range stepFields {
			n := st.Doc.Get(f.field)
			id := n.Text()
			if n.IsNull() || id == "" {
				continue
			}
			if before == nil {
				before = t.Ancestors()
			}
			p := diag.Problem{Pos: n.Pos(), Where: f.field, Code: "run.step"}
			at, ok := t.Index(id)
			switch {
			case !ok:
				p.Summary, p.Fix = fmt.Sprintf("the task has no step %s", diag.Repr(id)), nearStep(t, id)
			case f.typ != "" && t.Steps[at].Type != f.typ:
				p.Summary, p.Fix = fmt.Sprintf("step '%s' is of type %s, and this field takes a %s step", id, t.Steps[at].Type, f.typ), "name another"
			case !before[i].Has(at):
				p.Summary, p.Fix = fmt.Sprintf("doesn't wait for step '%s', so it can't use what that step leaves", id), "name that step in depends_on"
			default:
				continue
			}
			l.Add(problem(st, label, p))
		}
	}
	return l
}

// nearStep suggests the step that was likely meant.
func nearStep(t *task.Task, id string) string {
	ids := make([]string, len(t.Steps))
	for i := range t.Steps {
		ids[i] = t.Steps[i].ID
	}
	if near := diag.Nearest(id, ids); near != "" {
		return fmt.Sprintf("did you mean %s?", diag.Repr(near))
	}
	slices.Sort(ids)
	const most = 20
	return "its steps are " + strings.Join(ids[:min(len(ids), most)], ", ")
}
