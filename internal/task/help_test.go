package task

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
)

func parse(t testing.TB, src string) doc.Node {
	t.Helper()
	tree, l := doc.ParseJSON("f", []byte(src))
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	return tree.Root()
}

// trimPlace is a problem's text without its file and line.
func trimPlace(s string) string {
	s = strings.TrimPrefix(s, "f: ")
	if i := strings.LastIndex(s, " (line "); i >= 0 {
		s = s[:i]
	}
	return s
}

// put builds the tables and lists that a reference's path leads through, with v at its end.
func put(path, v string) map[string]any {
	seg, rest, more := strings.Cut(path, ".")
	name, star := strings.CutSuffix(seg, "*")
	if star {
		return put(rest, v)
	}
	name, many := strings.CutSuffix(name, "[]")
	var inner any = v
	if more {
		inner = put(rest, v)
	}
	if many {
		inner = []any{inner}
	}
	return map[string]any{name: inner}
}

// checked are the faults of the fields that are there.
func checked(k *step.Kind, n doc.Node) []string {
	var l diag.List
	k.Schema().Check(n, "", &l)
	var out []string
	for _, p := range l {
		if p.Code != doc.CodeMissing {
			out = append(out, p.String())
		}
	}
	return out
}
