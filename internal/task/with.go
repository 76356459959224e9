package task

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/step"
)

// Codes of what With finds.
const (
	CodeParam = "task.param" // step_params name no step, or a field that they can't set
	CodeSeed  = "task.seed"  // a placeholder is left, or a seed stands for nothing
)

// Given is what one run of a task is given: fields in place of the task's own, and what stands for <key> in strings.
type Given struct {
	Params map[string]map[string]json.RawMessage // by step and field
	// Seed is nil for a run without seeds: then nothing is replaced and no placeholder is looked for.
	Seed map[string]string
	// Label is a key of Seed that names the run, so that no string need ask for it.
	Label string
	// AllowPlaceholders lets strings hold text that looks like a placeholder of no seed.
	AllowPlaceholders bool
}

// fixed are the fields that make a step what it is in its graph.
var fixed = [...]string{"id", "type", "version", "depends_on"}

// With is the task as one run of it is: Params replace fields of steps, then the seed is filled in everywhere. The result is decoded anew, so that it
// holds the rules of its kinds. With errors there is no task.
func (t *Task) With(g Given, kinds *catalog.Set[*step.Kind], o Options) (*Task, diag.List) {
	if len(g.Params) == 0 && g.Seed == nil {
		return t, nil
	}
	var l diag.List
	steps := make([]any, len(t.Steps))
	for i := range t.Steps {
		steps[i] = t.Steps[i].Doc
	}
	for _, id := range slices.Sorted(maps.Keys(g.Params)) {
		i, ok := t.Index(id)
		if !ok {
			l.Add(diag.Problem{
				Where: "step_params", Code: CodeParam, Summary: diag.Repr(id) + " names no step of " + t.ID, Fix: t.nearStep(id), Prefixed: true,
			})
			continue
		}
		n, more := param(t.Steps[i].Doc, id, g.Params[id])
		l.Add(more...)
		steps[i] = n
	}
	whole := doc.Build(steps)
	if g.Seed != nil {
		s := seeder{given: g, used: map[string]bool{}, told: map[string]bool{}}
		whole = whole.MapStrings(s.fill)
		s.unused()
		l.Add(s.l...)
	}
	if l.HasErrors() {
		return nil, l
	}
	out, more := Decode(t.ID, whole, kinds, o)
	l.Add(more...)
	if more.HasErrors() {
		return nil, l
	}
	out.Version = t.Version
	return out, l
}

func (t *Task) nearStep(id string) string {
	ids := make([]string, len(t.Steps))
	for i := range t.Steps {
		ids[i] = t.Steps[i].ID
	}
	if near := diag.Nearest(id, ids); near != "" {
		return "did you mean " + diag.Repr(near) + "?"
	}
	return "its steps are " + strings.Join(ids[:min(len(ids), 20)], ", ")
}

// param is a step with some of its fields replaced; null takes a field away.
func param(n doc.Node, id string, fields map[string]json.RawMessage) (doc.Node, diag.List) {
	var l diag.List
	for _, f := range slices.Sorted(maps.Keys(fields)) {
		where := fmt.Sprintf("step_params: step '%s': %s", id, f)
		if slices.Contains(fixed[:], f) {
			l.Add(diag.Problem{Where: where, Code: CodeParam, Summary: "can't be set for a run", Fix: "change the task", Prefixed: true})
			continue
		}
		v, more := doc.ParseJSON("step_params", fields[f])
		if more.HasErrors() {
			l.Add(diag.Problem{Where: where, Code: CodeParam, Summary: "is no JSON", Fix: "quote a text: \"...\"", Prefixed: true})
			continue
		}
		n = n.With(f, v.Root())
	}
	return n, l
}

// seeder fills a seed in.
type seeder struct {
	given Given
	used  map[string]bool
	told  map[string]bool
	l     diag.List
}

// placeholder is what keys of seeds look like, as far as a forgotten one is told by its looks.
var placeholder = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_.-]*$`)

// fill replaces placeholders in one string, all at once: what a seed puts in is not looked at again. What looks like one and is none of the seed's is
// refused, but for pairs of tags (<b>…</b>) and what stands after another "<".
func (s *seeder) fill(n doc.Node) (string, bool) {
	text, _ := n.Str()
	changed := false
	var b strings.Builder
	for i := 0; i < len(text); {
		at := strings.IndexByte(text[i:], '<')
		end := -1
		if at >= 0 {
			end = strings.IndexByte(text[i+at:], '>')
		}
		if end < 0 {
			b.WriteString(text[i:])
			break
		}
		b.WriteString(text[i : i+at])
		i += at
		key := text[i+1 : i+end]
		if v, ok := s.given.Seed[key]; ok {
			b.WriteString(v)
			s.used[key], changed = true, true
			i += end + 1
			continue
		}
		if placeholder().MatchString(key) && !strings.Contains(text, "</"+key+">") && (i == 0 || text[i-1] != '<') {
			s.left(n, key)
		}
		b.WriteByte('<')
		i++
	}
	return b.String(), changed
}

// left refuses a placeholder that is none of the seed's, once.
func (s *seeder) left(n doc.Node, key string) {
	if s.given.AllowPlaceholders || s.told[key] {
		return
	}
	s.told[key] = true
	fix := "add it to the seeds"
	if near := diag.Nearest(key, slices.Sorted(maps.Keys(s.given.Seed))); near != "" {
		fix = "did you mean <" + near + ">?"
	}
	s.l.Add(diag.Problem{
		Pos: n.Pos(), Code: CodeSeed, Summary: fmt.Sprintf("the placeholder <%s> is left: no seed is called %s", key, diag.Repr(key)), Fix: fix, Prefixed: true,
	})
}

// unused tells of seeds that no string of the task asks for.
func (s *seeder) unused() {
	for _, key := range slices.Sorted(maps.Keys(s.given.Seed)) {
		if !s.used[key] && key != s.given.Label {
			s.l.Add(diag.Problem{
				Code: CodeSeed, Severity: diag.Warning, Summary: fmt.Sprintf("the seed %s is used by no step", diag.Repr(key)),
				Fix: fmt.Sprintf("write <%s> where it belongs", key), Prefixed: true,
			})
		}
	}
}
