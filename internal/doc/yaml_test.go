package doc

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
)

func mustYAML(t testing.TB, src string) Node {
	t.Helper()
	tree, l := ParseYAML("t.yaml", []byte(src))
	if l.HasErrors() {
		t.Fatalf("%q: %s", src, lines(l))
	}
	return tree.Root()
}

func TestYAMLTree(t *testing.T) {
	src := "# top\nid: notes   # tail\n\"q d\": 'it''s'\nlist:\n- 1\n- {a: [x, \"y\\n\"], b: }\n-\n  deep: true\ntext: |\n  one\n\n  two\nfolded: >-\n  a\n  b\nplain: two\n  lines\nünï: {}\nlast: ~\n"
	n := mustYAML(t, src)
	want := `{"id":"notes","q d":"it's","list":[1,{"a":["x","y\n"],"b":null},{"deep":true}],"text":"one\n\ntwo\n","folded":"a b","plain":"two lines","ünï":{},"last":null}`
	if got := string(JSON(n)); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	list := n.Get("list")
	for _, c := range []struct {
		n         Node
		raw       string
		line, col int
	}{
		{n.Get("id"), "notes", 2, 5},
		{n.Get("q d"), "'it''s'", 3, 8},
		{list, "- 1\n- {a: [x, \"y\\n\"], b: }\n-\n  deep: true", 5, 1},
		{list.At(1), "{a: [x, \"y\\n\"], b: }", 6, 3},
		{list.At(1).Get("a").At(1), `"y\n"`, 6, 11},
		{list.At(2).Get("deep"), "true", 8, 9},
		{n.Get("text"), "|\n  one\n\n  two", 9, 7},
		{n.Get("folded"), ">-\n  a\n  b", 13, 9},
		{n.Get("plain"), "two\n  lines", 16, 8},
		{n.Get("ünï"), "{}", 18, 8},
		{n.Get("last"), "~", 19, 7},
	} {
		if p := c.n.Pos(); string(c.n.Raw()) != c.raw || p.Line != c.line || p.Col != c.col {
			t.Errorf("%q at %d:%d, want %q at %d:%d", c.n.Raw(), p.Line, p.Col, c.raw, c.line, c.col)
		}
	}
}

func TestYAMLScalars(t *testing.T) {
	for _, c := range []struct {
		src  string
		kind Kind
		text string
		warn bool
	}{
		{"1", Int, "1", false},
		{"-0", Int, "0", false},
		{"+12", Int, "12", false},
		{"0x1F", Int, "31", false},
		{"99999999999999999999", Int, "99999999999999999999", false},
		{"1.0", Float, "1.0", false},
		{".5", Float, ".5", false},
		{"1.5e+3", Float, "1.5e+3", false},
		{"true", Bool, "true", false},
		{"FALSE", Bool, "false", false},
		{"~", Null, "", false},
		{"Null", Null, "", false},
		{"2020-01-01", Datetime, "2020-01-01", false},
		{"2020-01-01T10:00:00Z", Datetime, "2020-01-01T10:00:00Z", false},
		{"on", String, "on", true},
		{"Yes", String, "Yes", true},
		{"n", String, "n", true},
		{"0123", String, "0123", true},
		{"0o17", String, "0o17", true},
		{"08", String, "08", true},
		{"1_000", String, "1_000", true},
		{"1e3", String, "1e3", true},
		{"12:30", String, "12:30", true},
		{"12:30:45", String, "12:30:45", true},
		{"0b101", String, "0b101", true},
		{"2020-1-1", String, "2020-1-1", true},
		{"1.5e3", String, "1.5e3", true},
		{"'on'", String, "on", false},
		{`"0123"`, String, "0123", false},
		{"1.2.3", String, "1.2.3", false},
		{"v1.0", String, "v1.0", false},
		{"only", String, "only", false},
		{"-", Array, "", false},
		{"--x", String, "--x", false},
	} {
		tree, l := ParseYAML("t.yaml", []byte(c.src))
		n := tree.Root()
		if warned := len(l.Of(diag.Warning)) == 1; n.Kind() != c.kind || n.Text() != c.text || warned != c.warn || l.HasErrors() {
			t.Errorf("%s: %s %q, warned %t: %s", c.src, n.Kind(), n.Text(), warned, lines(l))
		}
	}
}

func TestYAMLFaults(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{
			"a: &x 1\nb: *x\nc: !!str 2\nd: ! 3\ne: {a: 1, a: 2}\n<<: {f: 1}\na: 1\n? [k]\n: 1\n",
			"t.yaml:1: an anchor (&x) is not allowed; write the value itself\n" +
				"t.yaml:2: an alias (*x) is not allowed; write the value itself\n" +
				"t.yaml:3: a tag (!!str) is not allowed; write the value itself\n" +
				"t.yaml:4: a tag (!) is not allowed; write the value itself\n" +
				"t.yaml:5: not valid YAML: 'a' is defined twice, first at line 5; remove one of them\n" +
				"t.yaml:6: a merge key (<<) is not allowed; write the members themselves\n" +
				"t.yaml:7: not valid YAML: 'a' is defined twice, first at line 1; remove one of them\n" +
				"t.yaml:8: a name must be text, not a list or a table; write it between quotes",
		},
		{"?\n: 2\n", "t.yaml:1: a name is missing before the colon; write it"},
		{"a: 1\n---\nb: 2\n", "t.yaml:2: a second document begins here; remove it"},
		{strings.Repeat("#", MaxYAML+1), "t.yaml:1: has more than 1 MiB, too much for YAML; split it, or write it as JSON"},
		{"\ufeffa: 1\n", "t.yaml:1: begins with a byte order mark; save the file as UTF-8 without it"},
		{"a: 1\nb: \xff\n", "t.yaml:2: not UTF-8: byte 0xff; save the file as UTF-8"},
		{"a: .inf\nb: -.nan\nc: .NaN", "t.yaml:1: .inf is not a finite number; write a number, or a string between quotes\n" +
			"t.yaml:3: .NaN is not a finite number; write a number, or a string between quotes"},
		{"on: 1\n1: 2\n", "t.yaml:1: the name on is read as text; put it between quotes\nt.yaml:2: the name 1 is read as text; put it between quotes"},
		{"a: 1\nb: x: y\n", "t.yaml:2: not valid YAML: mapping values are not allowed in this context; put text that has a colon between quotes, or mend the indentation"},
		{"a: 1\nb:\n\t- 2\n", "t.yaml:3: not valid YAML: found character that cannot start any token; indent with blanks, not tabs; put text that begins with a sign between quotes"},
		{"x: 1\na:\n  b: 1\n c: 2\n", "t.yaml:4: not valid YAML: did not find expected key; look at the indentation and at quotes and brackets from here on"},
		{"x: 1\na: [1, 2\nb: 3\n", "t.yaml:2: not valid YAML: did not find expected ',' or ']'; look at the indentation and at quotes and brackets from here on"},
		{"x: *nope\n", "t.yaml:1: not valid YAML: unknown anchor 'nope' referenced"},
		{strings.Repeat("[", 101) + strings.Repeat("]", 101), "t.yaml:1: not valid YAML: more than 100 levels of lists and tables; flatten it"},
	} {
		_, l := ParseYAML("t.yaml", []byte(c.src))
		if got := strings.TrimSuffix(lines(l), "\n"); got != c.want {
			t.Errorf("%.60q:\n got %s\nwant %s", c.src, got, c.want)
		}
	}
	if _, l := ParseYAML("t.yaml", []byte(strings.Repeat("- on\n", 999))); len(l) != maxProblems+1 || l.HasErrors() {
		t.Errorf("%d warnings, errors %t", len(l), l.HasErrors())
	}
	if tree, l := ParseYAML("t.yaml", []byte("# nothing\n")); len(l) > 0 || tree.Root().Kind() != Null {
		t.Error("a document without a value is not null")
	}
}
