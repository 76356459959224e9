package doc

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
)

// lines renders problems as people see them.
func lines(l diag.List) string {
	var b strings.Builder
	for _, p := range l {
		b.WriteString(p.String())
		b.WriteByte('\n')
	}
	return b.String()
}

func mustJSON(t testing.TB, src string) Node {
	t.Helper()
	tree, l := ParseJSON("t.json", []byte(src))
	if len(l) > 0 {
		t.Fatalf("%q: %s", src, lines(l))
	}
	return tree.Root()
}

func TestJSONPositions(t *testing.T) {
	src := "\ufeff[\n  {\"id\": \"box\",\n   \"n\" : [1, -2.5e3, null, true]}\n]\n"
	tree, l := ParseJSON("t.json", []byte(src))
	if len(l) > 0 {
		t.Fatal(lines(l))
	}
	step := tree.Root().At(0)
	for _, c := range []struct {
		n         Node
		kind      Kind
		text, raw string
		line, col int
	}{
		{tree.Root(), Array, "", src[3 : len(src)-1], 1, 1},
		{step.Get("id"), String, "box", `"box"`, 2, 10},
		{step.Get("n"), Array, "", "[1, -2.5e3, null, true]", 3, 10},
		{step.Get("n").At(0), Int, "1", "1", 3, 11},
		{step.Get("n").At(1), Float, "-2.5e3", "-2.5e3", 3, 14},
		{step.Get("n").At(2), Null, "", "null", 3, 22},
		{step.Get("n").At(3), Bool, "true", "true", 3, 28},
	} {
		if p := c.n.Pos(); c.n.Kind() != c.kind || c.n.Text() != c.text || string(c.n.Raw()) != c.raw || p.Line != c.line || p.Col != c.col {
			t.Errorf("%s %q %q at %d:%d, want %s %q %q at %d:%d", c.n.Kind(), c.n.Text(), c.n.Raw(), p.Line, p.Col, c.kind, c.text, c.raw, c.line, c.col)
		}
	}
	if p := step.Get("n").KeyPos(); p.Line != 3 || p.Col != 4 {
		t.Errorf("key at %v", p)
	}
}

func TestJSONFaults(t *testing.T) {
	deep := strings.Repeat("[", 101) + strings.Repeat("]", 101)
	for _, c := range []struct{ src, want string }{
		{"", "t.json:1: not valid JSON: the file is empty; write a value"},
		{"  \n", "t.json:2: not valid JSON: the file is empty; write a value"},
		{`{"a": 1, "a": 2, "b": 1,` + "\n" + `"b": 2}`, "t.json:1: not valid JSON: 'a' is defined twice, first at line 1; remove one of them\n" +
			"t.json:2: not valid JSON: 'b' is defined twice, first at line 1; remove one of them"},
		{`{"a": 1, "a": 2,}`, "t.json:1: not valid JSON: 'a' is defined twice, first at line 1; remove one of them\n" +
			`t.json:1: not valid JSON: a comma with no value after it; remove the comma`},
		{"[1,\n2,\n]", `t.json:2: not valid JSON: a comma with no value after it; remove the comma`},
		{"[1 2]", "t.json:1: not valid JSON: a comma is missing before '2'; write it"},
		{`{"a" 2}`, "t.json:1: not valid JSON: a colon is missing before '2'; write it"},
		{`{"a": "x"` + "\n" + `"b": 1}`, `t.json:2: not valid JSON: a comma is missing before '"'; write it`},
		{"[1,,2]", "t.json:1: not valid JSON: a comma with no value before it; remove the comma"},
		{"[NaN]", "t.json:1: not valid JSON: NaN and Infinity are no JSON numbers; write a number or null"},
		{"[-Infinity]", "t.json:1: not valid JSON: NaN and Infinity are no JSON numbers; write a number or null"},
		{"[1e999]", "t.json:1: 1e999 is not a finite number; write a number, or a string between quotes"},
		{"{'a': 1}", `t.json:1: not valid JSON: a string between single quotes; use "`},
		{"{a: 1}", `t.json:1: not valid JSON: a member's name must be a string between double quotes; use "`},
		{"// x\n[]", "t.json:1: not valid JSON: JSON has no comments; remove it"},
		{"[]\n[]", "t.json:2: not valid JSON: something follows the end of the document; remove it"},
		{"[] ,", "t.json:1: not valid JSON: something follows the end of the document; remove it"},
		{"[1", "t.json:1: not valid JSON: the text ends in the middle of a value; close what is open"},
		{`["a`, "t.json:1: not valid JSON: the text ends in the middle of a value; close what is open"},
		{"[\"a\nb\"]", `t.json:1: not valid JSON: the control character \u000a inside a string; escape it`},
		{`["\x"]`, `t.json:1: not valid JSON: an escape that stands for no character: \x"]; write \\ for a backslash`},
		{`["\ud800"]`, `t.json:1: not valid JSON: an escape that stands for no character: \ud800; write \\ for a backslash`},
		{"[\"\xff\"]", "t.json:1: not UTF-8: byte 0xff; save the file as UTF-8"},
		{"[01]", "t.json:1: not valid JSON: a comma is missing before '1'; write it"},
		{"[tru]", "t.json:1: not valid JSON: unexpected ']'"},
		{deep, "t.json:1: not valid JSON: more than 100 levels of lists and tables; flatten it"},
		{"[" + strings.Repeat("9", 4301) + "]", "t.json:1: a number of more than 4300 digits; write it as a string"},
	} {
		_, l := ParseJSON("t.json", []byte(c.src))
		if got := strings.TrimSuffix(lines(l), "\n"); got != c.want {
			t.Errorf("%.40q:\n got %s\nwant %s", c.src, got, c.want)
		}
	}
	if _, l := ParseJSON("t.json", []byte(deep[1:201])); len(l) > 0 {
		t.Error(lines(l))
	}
	if tree, _ := ParseJSON("t.json", []byte(`{"a":1,"a":2}`)); tree.Root().Get("a").Text() != "1" {
		t.Error("a duplicate doesn't keep the first")
	}
}
