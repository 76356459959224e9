package run

import (
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/task"
)

// names checks what steps call each other's things by: sandboxes that no step deploys, or that a step doesn't wait for, and verifiers of one name.
// It judges only tasks whose step types are all built in, since another's may deploy sandboxes too.
func (r *Runner) names(t *task.Task, label string) diag.List {
	deployed := map[string][]int{} // sandbox name -> steps
	scored := map[string]int{}     // verifier id -> the first step
	var l diag.List
	for i := range t.Steps {
		st := &t.Steps[i]
		if e, ok := r.Executors.Get(st.Type); ok && e.Origin.Kind != catalog.Builtin {
			return nil
		}
		if st.Type == "deploy_sandbox" {
			name := strings.TrimSpace(st.Doc.Get("sandbox_name").Text())
			deployed[name] = append(deployed[name], i)
		}
		id, verifies := verifier(st)
		if first, taken := scored[id]; verifies && taken {
			l.Add(problem(st, label, diag.Problem{
				Pos: st.Doc.Get("verifier_id").Pos(), Code: "run.verifier", Severity: diag.Warning,
				Summary: fmt.Sprintf("its score is called %s, as that of step '%s', and takes its place", diag.Repr(id), t.Steps[first].ID),
				Fix:     "give each a verifier_id of its own",
			}))
		} else if verifies {
			scored[id] = i
		}
	}
	before := t.Ancestors()
	for i := range t.Steps {
		st := &t.Steps[i]
		if st.Type == "deploy_sandbox" {
			continue
		}
		for field, n := range sandboxNames(st.Doc) {
			name := strings.TrimSpace(n.Text())
			by := deployed[name]
			switch {
			case len(by) == 0:
				p := diag.Problem{
					Pos: n.Pos(), Where: field, Code: "run.sandbox",
					Summary: fmt.Sprintf("no deploy_sandbox step of this task makes a sandbox called %s", diag.Repr(name)), Fix: meant(name, deployed),
				}
				if st.Type == "teardown_sandboxes" { // what isn't there need not be removed
					p.Severity = diag.Warning
				}
				l.Add(problem(st, label, p))
			case !slices.ContainsFunc(by, before[i].Has):
				l.Add(problem(st, label, diag.Problem{
					Pos: n.Pos(), Where: field, Code: "run.order", Severity: diag.Warning,
					Summary: fmt.Sprintf("doesn't wait for step '%s', which makes the sandbox %s", t.Steps[by[0]].ID, diag.Repr(name)),
					Fix:     "name that step in depends_on",
				}))
			}
		}
	}
	return l
}

// verifier is the name under which a step leaves a score, if it leaves one.
func verifier(st *task.Step) (id string, ok bool) {
	if st.Kind == nil || !slices.ContainsFunc(st.Kind.Fields.Fields, func(f doc.Field) bool { return f.Name == "verifier_id" }) {
		return "", false
	}
	if id := st.Doc.Get("verifier_id").Text(); id != "" {
		return id, true
	}
	return st.ID, true
}

// sandboxNames are the sandboxes that a step names, by field.
func sandboxNames(d doc.Node) map[string]doc.Node {
	out := map[string]doc.Node{}
	if n := d.Get("sandbox_name"); strings.TrimSpace(n.Text()) != "" {
		out["sandbox_name"] = n
	}
	for i, n := range d.Get("sandbox_names").Items() {
		out[fmt.Sprintf("sandbox_names[%d]", i)] = n
	}
	return out
}

// meant suggests the sandbox that was likely meant.
func meant(name string, deployed map[string][]int) string {
	var have []string
	for n := range deployed {
		have = append(have, n)
	}
	slices.Sort(have)
	if near := diag.Nearest(name, have); near != "" {
		return fmt.Sprintf("did you mean %s?", diag.Repr(near))
	}
	if len(have) == 0 {
		return "add one before it"
	}
	return "those it makes are " + strings.Join(have, ", ")
}
