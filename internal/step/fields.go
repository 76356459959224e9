package step

import (
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// Types of fields. A field that is not required may also be null, which reads as absent.

func text() doc.Type { return doc.Type{Kinds: []doc.Kind{doc.String}} }

// name is text that must hold something.
func name() doc.Type { return doc.Type{Kinds: []doc.Kind{doc.String}, NonEmpty: true} }

func flag() doc.Type { return doc.Type{Kinds: []doc.Kind{doc.Bool}} }

// count is an integer of at least least.
func count(least float64) doc.Type {
	return doc.Type{Kinds: []doc.Kind{doc.Int}, Min: &least}
}

func between(least, most float64) doc.Type {
	return doc.Type{Kinds: []doc.Kind{doc.Int}, Min: &least, Max: &most}
}

func version() doc.Type { return count(1) }

func port() doc.Type { return between(1, 65535) }

// positive is a number above 0.
func positive() doc.Type {
	return doc.Type{Kinds: []doc.Kind{doc.Float}, Check: func(n doc.Node, l *diag.List) {
		if v, _ := n.Float(); v <= 0 {
			fault(l, n, "", "step.range", "must be more than 0, not %s", n.Text())
		}
	}}
}

// seconds is a limit of time; fractions are allowed.
func seconds() doc.Type { return positive() }

func oneOf(words ...string) doc.Type {
	return doc.Type{Kinds: []doc.Kind{doc.String}, OneOf: words}
}

func list(of doc.Type) doc.Type { return doc.Type{Kinds: []doc.Kind{doc.Array}, Elem: &of} }

func some(t doc.Type) doc.Type { t.NonEmpty = true; return t }

// tableOf is a table with any member names and values of one type.
func tableOf(of doc.Type) doc.Type { return doc.Type{Kinds: []doc.Kind{doc.Object}, Elem: &of} }

// anyTable is a table whose content belongs to somebody else.
func anyTable() doc.Type {
	return doc.Type{Kinds: []doc.Kind{doc.Object}, Fields: &doc.Schema{Open: true}}
}

func table(fs ...doc.Field) doc.Type {
	return doc.Type{Kinds: []doc.Kind{doc.Object}, Fields: &doc.Schema{Fields: fs}}
}

func openTable(fs ...doc.Field) doc.Type {
	return doc.Type{Kinds: []doc.Kind{doc.Object}, Fields: &doc.Schema{Fields: fs, Open: true}}
}

func must(name string, t doc.Type, help string) doc.Field {
	return doc.Field{Name: name, Type: t, Required: true, Doc: help}
}

// may is an optional field; def is its default, nil for none.
func may(name string, t doc.Type, def any, help string) doc.Field {
	t.Null = true
	return doc.Field{Name: name, Type: t, Default: def, Doc: help}
}

// user marks a field that belongs to who runs the task, not to the task: an export leaves it out.
func user(f doc.Field) doc.Field { f.User = true; return f }

// templated tells whether a text holds a place for a value of the run's seed, such as <start>, so that its form can't be known yet.
func templated(s string) bool { return seedPlace().MatchString(s) }

var seedPlace = lazyregexp.New(`<[A-Za-z_][A-Za-z0-9_ .-]*>`)

// fault adds an error at a value. where is the path of the field inside the step.
func fault(l *diag.List, n doc.Node, where, code, format string, args ...any) {
	l.Add(diag.Problem{Pos: n.KeyPos(), Where: where, Code: code, Summary: fmt.Sprintf(format, args...)})
}

// set tells whether a field says something: null and absent don't.
func set(n doc.Node, field string) bool { return !n.Get(field).IsNull() }

// setAmong are the fields of a step that say something, in the order asked.
func setAmong(n doc.Node, fields ...string) []string {
	var out []string
	for _, f := range fields {
		if set(n, f) {
			out = append(out, f)
		}
	}
	return out
}

// truthy is a boolean field's value, def where it says nothing.
func truthy(n doc.Node, field string, def bool) bool {
	if v, ok := n.Get(field).Bool(); ok {
		return v
	}
	return def
}

// words joins names: "a", "a and b", "a, b and c".
func words(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " and " + names[len(names)-1]
}

// atMostOne refuses a step that says more than one of the fields.
func atMostOne(n doc.Node, l *diag.List, fields ...string) {
	if have := setAmong(n, fields...); len(have) > 1 {
		fault(l, n.Get(have[1]), have[1], "step.conflict", "%s can't be used together; keep one", words(have))
	}
}

// at is the path of element i of a list.
func at(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

// together refuses the field where the one it belongs to is missing.
func together(n doc.Node, l *diag.List, field, needs string) {
	if set(n, field) && !set(n, needs) {
		fault(l, n.Get(field), field, "step.conflict", "needs %s beside it", needs)
	}
}

// all makes one rule of several.
func all(rules ...func(doc.Node, *diag.List)) func(doc.Node, *diag.List) {
	return func(n doc.Node, l *diag.List) {
		for _, r := range rules {
			r(n, l)
		}
	}
}
