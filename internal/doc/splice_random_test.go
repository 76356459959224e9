package doc

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
)

// randomDocument spells a random table in the ways that people do, with comments between its lines.
func randomDocument(rnd *rand.Rand, name string) string {
	n := randomTable(rnd, 4)
	switch name {
	case "a.json":
		if rnd.IntN(2) == 0 {
			return string(JSON(Node{n: n}))
		}
		return string(JSONIndent(Node{n: n})) + "\n"
	case "a.toml":
		var b strings.Builder
		blockTOML(&b, withoutNull(n), "", rnd)
		return commented(rnd, b.String())
	default:
		var b strings.Builder
		blockYAML(&b, n, "", rnd)
		return b.String()
	}
}

func randomTable(rnd *rand.Rand, depth int) *node {
	n := &node{kind: Object, off: -1, end: -1, keyOff: -1}
	for range 1 + rnd.IntN(5) {
		name := string(rune('a' + rnd.IntN(26)))
		if rnd.IntN(8) == 0 {
			name += randomString(rnd)
		}
		if n.get(name) != nil {
			continue
		}
		v := randomTree(rnd, 1).n
		switch {
		case depth > 0 && rnd.IntN(3) == 0:
			v = randomTable(rnd, depth-1)
		case depth > 0 && rnd.IntN(5) == 0:
			v = &node{kind: Array, off: -1, end: -1, keyOff: -1}
			for range 1 + rnd.IntN(3) {
				v.kids = append(v.kids, randomTable(rnd, depth-2))
			}
		}
		n.add(name, v)
	}
	return n
}

// blockTOML spells a table: inline or dotted members first, then its sections.
func blockTOML(b *strings.Builder, n *node, path string, rnd *rand.Rand) {
	var below strings.Builder
	for i, k := range n.kids {
		name := tomlName(n.names[i])
		full := strings.TrimPrefix(path+"."+name, ".")
		lists := k.kind == Array && len(k.kids) > 0
		for _, e := range k.kids {
			lists = lists && e.kind == Object
		}
		switch {
		case k.kind == Object && rnd.IntN(3) > 0:
			var body strings.Builder
			blockTOML(&body, k, full, rnd)
			if !strings.HasPrefix(strings.TrimSpace(body.String()), "[") || rnd.IntN(2) == 0 {
				below.WriteString("\n[" + full + "]\n")
			}
			below.WriteString(body.String())
		case k.kind == Object && len(k.kids) > 0 && rnd.IntN(2) == 0:
			for j, e := range k.kids {
				b.WriteString(name + "." + tomlName(k.names[j]) + " = " + tomlSyntax.spell(e) + "\n")
			}
		case lists && rnd.IntN(3) > 0:
			for _, e := range k.kids {
				below.WriteString("\n[[" + full + "]]\n")
				blockTOML(&below, e, full, rnd)
			}
		case k.kind == Array && rnd.IntN(2) == 0:
			b.WriteString(name + " = [\n")
			for _, e := range k.kids {
				b.WriteString("  " + tomlSyntax.spell(e) + ",\n")
			}
			b.WriteString("]\n")
		default:
			b.WriteString(name + " = " + tomlSyntax.spell(k) + "\n")
		}
	}
	b.WriteString(below.String())
}

// commented puts comments and blank lines between the lines of a TOML document.
func commented(rnd *rand.Rand, src string) string {
	var b strings.Builder
	for line := range strings.Lines(src) {
		switch rnd.IntN(6) {
		case 0:
			b.WriteString("# comment\n")
		case 1:
			line = strings.TrimSuffix(line, "\n") + " # tail\n"
		case 2:
			b.WriteString("\n")
		}
		b.WriteString(line)
	}
	return b.String()
}

func withoutNull(n *node) *node {
	return mapKids(n, func(i int) *node {
		if k := n.kids[i]; k.kind != Null {
			return withoutNull(k)
		}
		return build("null", nil)
	})
}

func blockYAML(b *strings.Builder, n *node, indent string, rnd *rand.Rand) {
	for i, k := range n.kids {
		if rnd.IntN(6) == 0 {
			b.WriteString(indent + "# comment\n")
		}
		b.WriteString(indent)
		if n.kind == Object {
			b.WriteString(yamlText(n.names[i]) + ":")
		} else {
			b.WriteString("-")
		}
		switch {
		case len(k.kids) > 0 && rnd.IntN(4) > 0 && n.kind == Array:
			var inner strings.Builder
			blockYAML(&inner, k, indent+"  ", rnd)
			if text := strings.TrimLeft(inner.String(), " "); !strings.HasPrefix(text, "#") {
				b.WriteString(" " + text)
			} else {
				b.WriteString("\n" + inner.String())
			}
		case len(k.kids) > 0 && rnd.IntN(4) > 0:
			b.WriteString("\n")
			blockYAML(b, k, indent+strings.Repeat(" ", rnd.IntN(2)+1), rnd)
		case k.kind == String && rnd.IntN(4) == 0 && bare(k.text):
			b.WriteString(" |-\n" + indent + "  " + k.text + "\n")
		case k.kind == Null && rnd.IntN(2) == 0:
			b.WriteString("\n")
		default:
			b.WriteString(" " + yamlSyntax.spell(k) + []string{"\n", " # tail\n"}[rnd.IntN(2)])
		}
	}
}

// randomEdit aims at something in n, or at a free place there.
func randomEdit(rnd *rand.Rand, n Node, name string) Edit {
	var path []any
	for n.Len() > 0 && (len(path) == 0 || rnd.IntN(3) > 0) {
		i := rnd.IntN(n.Len())
		if n.Kind() == Array {
			path = append(path, i)
		} else {
			path = append(path, n.n.names[i])
		}
		n = n.At(i)
	}
	var v any = randomTree(rnd, 2)
	if name == "a.toml" {
		v = Node{&Tree{}, withoutNull(randomTree(rnd, 2).n)}
		if v.(Node).IsNull() {
			v = 1
		}
	}
	switch {
	case rnd.IntN(3) == 0:
		return Remove(path...)
	case n.Kind() == Array && rnd.IntN(2) == 0:
		return Insert(v, append(path, rnd.IntN(n.Len()+1))...)
	case n.Kind() == Object && rnd.IntN(2) == 0:
		return Set(v, append(path, "new "+fmt.Sprint(rnd.IntN(9)))...)
	default:
		return Set(v, path...)
	}
}

// TestSpliceRandomly holds that edits of documents as people write them are not refused, and that comments elsewhere stay.
func TestSpliceRandomly(t *testing.T) {
	for name, most := range map[string]int{"a.json": 0, "a.toml": 0, "a.yaml": 0} {
		rnd := rand.New(rand.NewPCG(5, 6))
		refused := 0
		for range 1500 {
			src := randomDocument(rnd, name)
			tree, l := Parse(name, []byte(src))
			if l.HasErrors() {
				t.Fatalf("%s: %s", src, lines(l))
			}
			e := randomEdit(rnd, tree.Root(), name)
			out, err := Splice(tree, e)
			h := tree.holder(e.path)
			if e.op != opRemove && h.kind == Array && h.form == formHeader && build(e.value, nil).kind != Object {
				continue // a list of tables takes nothing else
			}
			if err != nil {
				if refused++; refused > most && refused < most+4 {
					t.Errorf("%s\n%v %v %s: %v", src, e.op, e.path, JSON(Build(e.value)), err)
				}
				continue
			}
			if e.op == opInsert && bytes.Count(out, []byte("# ")) < bytes.Count(tree.Src, []byte("# ")) {
				t.Errorf("%s\n%v %v: a comment is gone:\n%s", src, e.op, e.path, out)
			}
		}
		if refused > most {
			t.Errorf("%s: %d of 1500 refused", name, refused)
		}
	}
}

func FuzzSplice(f *testing.F) {
	for i, name := range []string{"task.json", "task.json", "config.toml", "manifest.yaml"} {
		f.Add(uint8(i), uint64(i), seed(f, name))
	}
	for i, s := range []string{"[1, [2]]", `{"a": [1, {"b": null}], "c": "x"}`, "a = 1 # x\n[b.c]\nd = [1, 2]\n[[e]]\nf = {g = 1}\n", "a:\n- b: 1\n  c: |\n    x\n- [1, {d: e}]\n"} {
		f.Add(uint8(i), uint64(i), []byte(s))
	}
	f.Fuzz(func(t *testing.T, format uint8, seed uint64, src []byte) {
		name := []string{"a.json", "a.json", "a.toml", "a.yaml"}[format%4]
		tree, l := Parse(name, src)
		if l.HasErrors() || !tree.Root().Exists() {
			return
		}
		rnd := rand.New(rand.NewPCG(seed, 7))
		e := randomEdit(rnd, tree.Root(), name)
		before := Canonical(tree.Root())
		out, err := Splice(tree, e)
		if !bytes.Equal(before, Canonical(tree.Root())) {
			t.Errorf("%q: the tree itself changed", src)
		}
		if err != nil {
			if l, ok := diag.From(err); !ok || len(l) != 1 || strings.ContainsAny(err.Error(), "\n\r\x1b") {
				t.Errorf("%q: %v", src, err)
			}
			return
		}
		again, l := Parse(name, out)
		if l.HasErrors() {
			t.Fatalf("%q became %q: %s", src, out, lines(l))
		}
		if e.op != opSet || len(e.path) == 0 {
			return
		}
		n := again.Root()
		for _, p := range e.path {
			n = Node{again, step(n.n, p)}
		}
		want := Build(e.value)
		if !Equal(n, want) && !(name == "a.json" && want.Kind() == Datetime) {
			t.Errorf("%q became %q: %v is %s", src, out, e.path, JSON(n))
		}
	})
}
