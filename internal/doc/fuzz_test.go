package doc

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/pelletier/go-toml/v2"
	"go.yaml.in/yaml/v3"

	"agentenv.internal/agentenv/internal/diag"
)

// checkTree holds what every reader promises: positions in range, problems on one line with a place, members in the index,
// and a canonical form that reads back to itself.
func checkTree(t *testing.T, src []byte, tree *Tree, l diag.List) {
	t.Helper()
	rows := bytes.Count(src, []byte("\n")) + 1
	for _, p := range l {
		if p.Pos.Line < 1 || p.Pos.Line > rows || p.Pos.Col < 1 || p.Code == "" || strings.ContainsAny(p.String(), "\n\r\x1b") {
			t.Errorf("%q: problem %+v", src, p)
		}
	}
	if tree == nil {
		if !l.HasErrors() {
			t.Errorf("%q: neither a tree nor a problem", src)
		}
		return
	}
	var walk func(n Node)
	walk = func(n Node) {
		if off, end := n.n.off, n.n.end; off < 0 || end < off || int(end) > len(tree.Src) {
			t.Errorf("%q: %s at %d-%d", src, n.Kind(), off, end)
		}
		for name, kid := range n.Members() {
			if !kid.Same(n.Get(name)) {
				t.Errorf("%q: member %q", src, name)
			}
			walk(kid)
		}
		for _, kid := range n.Items() {
			walk(kid)
		}
	}
	walk(tree.Root())
	if l.HasErrors() {
		return
	}
	for _, out := range [][]byte{Canonical(tree.Root()), JSON(tree.Root()), JSONIndent(tree.Root())} {
		again, l := ParseJSON("again", out)
		if len(l) > 0 {
			t.Fatalf("%q: %s: %s", src, out, lines(l))
		}
		if got, want := Canonical(again.Root()), Canonical(tree.Root()); !bytes.Equal(got, want) {
			t.Errorf("%q: %s, then %s", src, want, got)
		}
	}
}

// ours tells whether a list has nothing but refusals that a format allows.
func ours(l diag.List, codes ...string) bool {
	for _, p := range l.Of(diag.Error) {
		if slices.Contains(codes, p.Code) {
			return true
		}
	}
	return false
}

// seed is a document as people write them.
func seed(tb testing.TB, name string) []byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func FuzzJSON(f *testing.F) {
	f.Add(seed(f, "task.json"))
	for _, s := range []string{`{"a":[1,-2.5e3,null,true,"x\u00e9\ud83d\ude00"]}`, `{"a":1,"a":2}`, "\ufeff[]", `[1e999]`, `[NaN]`, `["\ud800"]`, "[\"\xff\"]", "[1,]", "{}{}", strings.Repeat("[", 120)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		tree, l := ParseJSON("f.json", src)
		checkTree(t, src, tree, l)
		valid := jsontext.Value(bytes.TrimPrefix(src, []byte(bom))).IsValid()
		if accepted := !l.HasErrors(); accepted != valid && !ours(l, "json.number", "json.depth") {
			t.Errorf("%q: valid %t, but %s", src, valid, lines(l))
		}
		if l.HasErrors() || bytes.Contains(src, []byte("-0")) { // the integer -0 is 0 here, as in Python
			return
		}
		var a, b any
		if err := errors.Join(json.Unmarshal(tree.Src, &a), json.Unmarshal(JSON(tree.Root()), &b)); err != nil {
			if !strings.Contains(err.Error(), "cannot unmarshal number") { // integers beyond the range of floats
				t.Errorf("%q: %v", src, err)
			}
			return
		}
		x, _ := json.Marshal(a)
		y, _ := json.Marshal(b)
		if !bytes.Equal(x, y) {
			t.Errorf("%q reads as %s, not %s", src, y, x)
		}
	})
}

func FuzzTOML(f *testing.F) {
	f.Add(seed(f, "config.toml"))
	for _, s := range []string{
		"a = 1\n[b.c]\nd.e = [1, {x=1}]\n[[f]]\ng = 'x'\n[[f]]\n", "a=1\na=2\n", "[a]\n[a]", "a = {b.c=1, b.d=2}", "a = 1979-05-27T07:32:00.5-07:00\nb=07:32:00\nc=1979-05-27",
		"a = \"\"\"\\\n  x\\e\"\"\"", "a = inf", "a = 0x1f\nb = 0o17\nc = 1_0.0_1e+1_0", "a = {\nb=1,}", "\ufeffa=1\r\n", "a.b=1\n[a.c]\n", "[a.b]\n[a]\nb.c=1", "a=[\n#x\n1,]",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		tree, l := ParseTOML("f.toml", src)
		checkTree(t, src, tree, l)
		want := map[string]any{}
		err := toml.Unmarshal(bytes.TrimPrefix(src, []byte(bom)), &want)
		if accepted := !l.HasErrors(); accepted != (err == nil) && !ours(l, "toml.number", "toml.depth", "toml.version", "toml.date") {
			t.Errorf("%q: reference says %v, but %s", src, err, lines(l))
		}
		if err == nil && !l.HasErrors() && !bytes.Contains(src, []byte("\r")) {
			same(t, src, "", tree.Root(), want)
		}
	})
}

// same compares a tree with what the reference made of the source.
func same(t *testing.T, src []byte, path string, n Node, want any) {
	t.Helper()
	var ok bool
	switch w := want.(type) {
	case map[string]any:
		ok = n.Kind() == Object && n.Len() == len(w)
		for name, v := range w {
			same(t, src, path+"."+name, n.Get(name), v)
		}
	case []any:
		ok = n.Kind() == Array && n.Len() == len(w)
		for i, v := range w {
			same(t, src, path+"[]", n.At(i), v)
		}
	case string:
		s, is := n.Str()
		ok = is && s == w
	case int64:
		i, is := n.Int()
		ok = is && i == w
	case float64:
		v, is := n.Float()
		ok = is && n.Kind() == Float && math.Float64bits(v) == math.Float64bits(w)
	case bool:
		b, is := n.Bool()
		ok = is && b == w
	default:
		ok = n.Kind() == Datetime
	}
	if !ok {
		t.Errorf("%q: %s is %s %q, want %v", src, path, n.Kind(), n.Text(), want)
	}
}

func FuzzYAML(f *testing.F) {
	f.Add(seed(f, "manifest.yaml"))
	for _, s := range []string{
		"a: 1\nb:\n- x\n- {c: [1, 'd'], e: \"f\\n\"}\n", "a: |\n  x\n\n  y\nb: >-\n z\n", "? a\n: b\n", "a: &x 1\nb: *x\n", "a: 1\na: 2\n",
		"---\na\n---\nb\n", "- - - 1\n  - 2\n", "a: x\n  y\n\n  z\n", "\u2028a:\u0085 1\r\nb: 2\r", "<<: {}\n", "a: !!str 1", "on: 0123\n", "[a: b, {c}, ]", "a:\n# x\n", "%YAML 1.2\n---\nx\n...",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		tree, l := ParseYAML("f.yaml", src)
		checkTree(t, src, tree, l)
		var n yaml.Node
		if err := yaml.Unmarshal(src, &n); err != nil && !l.HasErrors() {
			t.Errorf("%q: reference says %v", src, err)
		}
		if l.HasErrors() {
			return
		}
		var walk func(n Node)
		walk = func(n Node) {
			raw := n.Raw()
			switch {
			case n.n.form == formPlain && n.Kind() == String && !strings.ContainsAny(n.Text(), "\r\n \u0085\u2028\u2029") && string(raw) != n.Text():
				t.Errorf("%q: plain %q is %q in the source", src, n.Text(), raw)
			case n.n.form == formFlow && n.Kind() == String && (len(raw) < 2 || raw[0] != raw[len(raw)-1]):
				t.Errorf("%q: quoted %q is %q in the source", src, n.Text(), raw)
			}
			for _, kid := range n.n.kids {
				walk(Node{n.t, kid})
			}
		}
		walk(tree.Root())
	})
}
