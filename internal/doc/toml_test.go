package doc

import (
	"strings"
	"testing"
)

func mustTOML(t testing.TB, src string) Node {
	t.Helper()
	tree, l := ParseTOML("t.toml", []byte(src))
	if len(l) > 0 {
		t.Fatalf("%q: %s", src, lines(l))
	}
	return tree.Root()
}

func TestTOMLTree(t *testing.T) {
	src := "\ufeff# top\ntitle = \"x\\u00e9\"\nn.hex = 0x1F\nn.big = 1_000\nwhen = 1979-05-27 07:32:00.5Z\n" +
		"list = [ # one\n  1, # two\n  [2.5e1_0, { a = 1, \"b c\".d = 'x' }],\n]\n" +
		"[env.vars]\nA = true\n[[steps]]\nid = \"a\"\n[steps.x]\ny = 1\n[[steps]]\nid = '''\r\nb\r\n'''\n[env]\nname = \"e\"\n"
	n := mustTOML(t, src)
	want := `{"title":"xé","n":{"hex":31,"big":1000},"when":"1979-05-27T07:32:00.500000+00:00","list":[1,[25000000000.0,{"a":1,"b c":{"d":"x"}}]],` +
		`"env":{"vars":{"A":true},"name":"e"},"steps":[{"id":"a","x":{"y":1}},{"id":"b\n"}]}`
	if got := string(JSON(n)); got != want {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
	for _, c := range []struct {
		n         Node
		raw       string
		line, key int
	}{
		{n.Get("title"), `"x\u00e9"`, 2, 2},
		{n.Get("n").Get("big"), "1_000", 4, 4},
		{n.Get("list"), "[ # one\n  1, # two\n  [2.5e1_0, { a = 1, \"b c\".d = 'x' }],\n]", 6, 6},
		{n.Get("list").At(0), "1", 7, 7},
		{n.Get("list").At(1).At(1), `{ a = 1, "b c".d = 'x' }`, 8, 8},
		{n.Get("list").At(1).At(1).Get("b c").Get("d"), "'x'", 8, 8},
		{n.Get("env"), "[env]\nname = \"e\"", 20, 20},
		{n.Get("steps"), "[[steps]]\nid = \"a\"\n[steps.x]\ny = 1\n[[steps]]\nid = '''\r\nb\r\n'''", 12, 12},
		{n.Get("steps").At(1), "[[steps]]\nid = '''\r\nb\r\n'''", 16, 16},
	} {
		if string(c.n.Raw()) != c.raw || c.n.Pos().Line != c.line || c.n.KeyPos().Line != c.key {
			t.Errorf("%q at %d (%d), want %q at %d (%d)", c.n.Raw(), c.n.Pos().Line, c.n.KeyPos().Line, c.raw, c.line, c.key)
		}
	}
}

func TestTOMLFaults(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{
			"a = 1\nb = 2\na = 3\n[t]\nx = 1\nx = 2\n[t]\ny = 1\nq = ",
			"t.toml:3: not valid TOML: 'a' is defined twice, first at line 1; remove one of them\n" +
				"t.toml:6: not valid TOML: 'x' is defined twice, first at line 5; remove one of them\n" +
				"t.toml:7: not valid TOML: 't' is defined twice, first at line 4; remove one of them\n" +
				"t.toml:9: not valid TOML: expected value, not end of input",
		},
		{"a = 1\n[a]\nb = 1\n[a.b]\n[[a]]\n", "t.toml:2: not valid TOML: 'a' is a table here, but already an integer at line 1; rename one of them\n" +
			"t.toml:4: not valid TOML: 'a' is a table here, but already an integer at line 1; rename one of them\n" +
			"t.toml:5: not valid TOML: 'a' is a list of tables here, but already an integer at line 1; rename one of them"},
		{"a = {}\n[a.b]\n", "t.toml:2: not valid TOML: 'a' is a table here, but already an inline table at line 1; rename one of them"},
		{"a.b = 1\n[a]\n", "t.toml:2: not valid TOML: 'a' is defined twice, first at line 1; remove one of them"},
		{"[a.b]\n[a]\nb.c = 1\n", "t.toml:3: not valid TOML: 'b' is defined twice, first at line 1; remove one of them"},
		{"[[a]]\n[a]\n", "t.toml:2: not valid TOML: 'a' is a table here, but already a list of tables at line 1; rename one of them"},
		{"a = [{b=1, b=2}, {c=1, c.d=2}]", "t.toml:1: not valid TOML: 'b' is defined twice, first at line 1; remove one of them\n" +
			"t.toml:1: not valid TOML: 'c' is a table here, but already an integer at line 1; rename one of them"},
		{"a = 99999999999999999999\nb = inf\nc = -nan\nd = 1e999\n", "t.toml:1: 99999999999999999999 doesn't fit in 64 bits; write it as a string\n" +
			"t.toml:2: inf is not a finite number; write a number, or a string between quotes\n" +
			"t.toml:3: -nan is not a finite number; write a number, or a string between quotes\n" +
			"t.toml:4: 1e999 is not a finite number; write a number, or a string between quotes"},
		{"a = 2021-02-29\nb = 07:32\nc = 2021-01-01T25:00:00\n", "t.toml:1: 2021-02-29 is no date or time; write it as 2006-01-02, 15:04:05 or 2006-01-02T15:04:05Z, or as a string between quotes\n" +
			"t.toml:2: not valid TOML 1.0: a time without seconds; write them\n" +
			"t.toml:3: 2021-01-01T25:00:00 is no date or time; write it as 2006-01-02, 15:04:05 or 2006-01-02T15:04:05Z, or as a string between quotes"},
		{"a = {\n b = 1 }\nc = { d = 1, }\ne = \"\\e\\x41\\\\x\"", "t.toml:1: not valid TOML 1.0: an inline table over several lines; write it on one line, or as a [table]\n" +
			"t.toml:3: not valid TOML 1.0: an inline table with a comma at its end; remove the comma\n" +
			"t.toml:4: not valid TOML 1.0: the escape \\e; write \\u00 and two digits\n" +
			"t.toml:4: not valid TOML 1.0: the escape \\x; write \\u00 and two digits"},
		{"a = 1 x\n", "t.toml:1: not valid TOML: expected newline but got 'x'"},
		{"a = \"\xff\"", "t.toml:1: not UTF-8: byte 0xff; save the file as UTF-8"},
		{"a = " + strings.Repeat("[", 101) + strings.Repeat("]", 101), "t.toml:1: not valid TOML: more than 100 levels of lists and tables; flatten it"},
		{"[" + strings.Repeat("a.", 100) + "a]", "t.toml:1: not valid TOML: more than 100 levels of lists and tables; flatten it"},
		{strings.Repeat("a.", 100) + "a = 1", "t.toml:1: not valid TOML: more than 100 levels of lists and tables; flatten it"},
	} {
		_, l := ParseTOML("t.toml", []byte(c.src))
		if got := strings.TrimSuffix(lines(l), "\n"); got != c.want {
			t.Errorf("%.60q:\n got %s\nwant %s", c.src, got, c.want)
		}
	}
}
