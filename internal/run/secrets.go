package run

import (
	"context"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// Secrets resolves references to secrets: "secret:KEY" and "env:NAME".
type Secrets interface {
	// Resolve is the value that a reference stands for; an error says where it was looked for, and holds no value.
	Resolve(ctx context.Context, reference string) (string, error)
}

// secretFields are the fields of steps whose values may be references to secrets.
var secretFields = [...]string{"env_vars", "build_args"}

// IsReference tells whether a text stands for a secret.
func IsReference(s string) bool {
	for _, scheme := range [...]string{"secret:", "env:"} {
		if name, ok := strings.CutPrefix(s, scheme); ok {
			return name != "" && !strings.ContainsAny(name, " \t\r\n/")
		}
	}
	return false
}

// references are those that a step holds, with their place.
func references(d doc.Node) map[string]doc.Node {
	var out map[string]doc.Node
	for _, field := range secretFields {
		for key, v := range d.Get(field).Members() {
			if text, ok := v.Str(); ok && IsReference(text) {
				if out == nil {
					out = map[string]doc.Node{}
				}
				out[field+"."+key] = v
			}
		}
	}
	return out
}

// revealed is a step's document with the secrets that its references stand for. Each value is known to the redactor before anything can print it.
func (r *Runner) revealed(ctx context.Context, d doc.Node) (doc.Node, error) {
	refs := references(d)
	if len(refs) == 0 {
		return d, nil
	}
	values := map[doc.Node]string{}
	for where, n := range refs {
		v, err := r.secret(ctx, n.Text())
		if err != nil {
			return d, step.Errorf("SecretError", "%s: %w", where, err)
		}
		values[n] = v
	}
	return d.MapStrings(func(n doc.Node) (string, bool) { v, ok := values[n]; return v, ok }), nil
}

func (r *Runner) secret(ctx context.Context, reference string) (string, error) {
	if r.Secrets == nil || r.Redact == nil { // a value that nobody takes out of records is not handed out
		return "", fmt.Errorf("%s can't be resolved here", diag.Repr(reference))
	}
	v, err := r.Secrets.Resolve(ctx, reference)
	if err == nil {
		r.Redact.Add(v)
	}
	return v, err
}

// unresolved tells which references of a step nobody can resolve.
func (r *Runner) unresolved(ctx context.Context, st *task.Step) diag.List {
	var l diag.List
	for where, n := range references(st.Doc) {
		if _, err := r.secret(ctx, n.Text()); err != nil {
			l.Add(diag.Problem{
				Pos: n.Pos(), Where: where, Code: "run.secret", Summary: diag.Clean(err.Error()),
				Fix: "see [sandbox] grants and [stores.secret] in docs/sandbox.md",
			})
		}
	}
	return l
}
