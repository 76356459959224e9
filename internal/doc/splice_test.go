package doc

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
)

func TestSplice(t *testing.T) {
	obj := func(kv ...any) map[string]any {
		m := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			m[kv[i].(string)] = kv[i+1]
		}
		return m
	}
	for _, c := range []struct {
		name, src string
		edits     []Edit
		want      string
	}{
		// JSON
		{"a.json", `{"a": 1, "b": [1, 2]}`, []Edit{Set("x", "a"), Set(3, "b", 1), Insert(0, "b", 0), Insert(9, "b", 3)}, `{"a": "x", "b": [0, 1, 3, 9]}`},
		{"a.json", `{"a":1}`, []Edit{Set(true, "b")}, `{"a":1, "b":true}`},
		{"a.json", "\ufeff{\n\t\"a\": 1\n}\n", []Edit{Set(obj("x", 1, "y", []any{}), "b")}, "\ufeff{\n\t\"a\": 1,\n\t\"b\": {\n\t\t\"x\": 1,\n\t\t\"y\": []\n\t}\n}\n"},
		{"a.json", "{\n  \"a\": 1,\n  \"b\": 2,\n  \"c\": 3\n}\n", []Edit{Remove("b")}, "{\n  \"a\": 1,\n  \"c\": 3\n}\n"},
		{"a.json", "{\n  \"a\": 1,\n  \"b\": 2\n}\n", []Edit{Remove("b")}, "{\n  \"a\": 1\n}\n"},
		{"a.json", "{\n  \"a\": 1\n}\n", []Edit{Remove("a")}, "{}\n"},
		{"a.json", `[1, 2, 3]`, []Edit{Remove(0), Remove(1), Remove("x"), Remove(7)}, `[2]`},
		{"a.json", "{}\n", []Edit{Set(1, "a", "b", "c")}, "{\n  \"a\": {\n    \"b\": {\n      \"c\": 1\n    }\n  }\n}\n"},
		{"a.json", "[\r\n  {\"id\": \"a\"}\r\n]\r\n", []Edit{Insert(obj("id", "b"), 0)}, "[\r\n  {\r\n    \"id\": \"b\"\r\n  },\r\n  {\"id\": \"a\"}\r\n]\r\n"},
		{"a.json", `{"a": {"x": 1, "y": 2}}`, []Edit{Set(obj("y", 3, "z", 4), "a")}, `{"a": {"y": 3, "z": 4}}`},

		// TOML
		{
			"a.toml", "# top\na = 1 # one\n\n[t]\nx = 'y'  # tail\n",
			[]Edit{Set("z", "t", "x"), Set(2, "a"), Set(true, "t", "new key"), Set(0.5, "b")},
			"# top\na = 2 # one\nb = 0.5\n\n[t]\nx = \"z\"  # tail\n\"new key\" = true\n",
		},
		{"a.toml", "# only\n\n# of t\n[t]\n", []Edit{Set(1, "a")}, "# only\n\na = 1\n\n# of t\n[t]\n"},
		{"a.toml", "", []Edit{Set(1, "a"), Set("v", "plugins", "x.y", "k")}, "a = 1\n\n[plugins.\"x.y\"]\nk = \"v\"\n"},
		{"a.toml", "a = 1", []Edit{Set(obj("k", 1), "t")}, "a = 1\n\n[t]\nk = 1\n"},
		{
			"a.toml", "[a.b]\nx = 1\n\n# about c\n[c]\ny = 1\n",
			[]Edit{Set(2, "a", "k"), Set(obj("z", 1), "a", "n"), Remove("a", "b")},
			"[a]\nk = 2\n\n[a.n]\nz = 1\n\n# about c\n[c]\ny = 1\n",
		},
		{"a.toml", "[a.b]\nx = 1\n\n[c]\n", []Edit{Remove("a", "b")}, "[a]\n\n[c]\n"},
		{"a.toml", "[a.b]\nx = 1\n", []Edit{Set(3, "a", "b")}, "[a]\nb = 3\n"},
		{"a.toml", "a.b.c = 1\na.d = 2\n\n[t]\n", []Edit{Set(3, "a", "b", "x"), Remove("a", "d"), Remove("a", "b", "c"), Remove("a", "b", "x")}, "a.b = {}\n\n[t]\n"},
		{"a.toml", "a = [\n  1, # one\n  2  # two\n]\n", []Edit{Insert(3, "a", 2), Insert(0, "a", 0)}, "a = [\n  0,\n  1, # one\n  2,  # two\n  3\n]\n"},
		{"a.toml", "a = [\n  1, # one\n  2, # two\n]\n", []Edit{Insert(3, "a", 2), Remove("a", 0)}, "a = [\n  2, # two\n  3,\n]\n"},
		{
			"a.toml", "a = [1, 2,]\nb = { x = 1 }\nc = {}\nd = []\n",
			[]Edit{Insert(3, "a", 2), Set(2, "b", "y"), Set(1, "c", "z"), Insert("q", "d", 0), Remove("b", "x")},
			"a = [1, 2, 3,]\nb = { y = 2 }\nc = { z = 1 }\nd = [\"q\"]\n",
		},
		{
			"a.toml", "[[s]]\nid = 1\n\n[s.x]\ny = 1\n\n[[s]]\nid = 2\n\n[z]\n",
			[]Edit{Insert(obj("id", 9), "s", 1), Insert(obj("id", 3, "m", obj("n", 1)), "s", 3), Remove("s", 0)},
			"[[s]]\nid = 9\n\n[[s]]\nid = 2\n\n[[s]]\nid = 3\n\n[s.m]\nn = 1\n\n[z]\n",
		},
		{"a.toml", "b = 1\n\n[[s]]\nid = 1\n", []Edit{Remove("s", 0)}, "b = 1\ns = []\n\n"},
		{"a.toml", "[[s]]\nid = 1\nk = 2\n\n[[s]]\nid = 2\n", []Edit{Set([]any{obj("id", 5, "k", 2)}, "s")}, "[[s]]\nid = 5\nk = 2\n\n"},
		{"a.toml", "x = 1\n", []Edit{Set([]any{obj("id", 1), obj("id", 2)}, "s")}, "x = 1\n\n[[s]]\nid = 1\n\n[[s]]\nid = 2\n"},
		{"a.toml", "  [t]\n  a = 1\r\n", []Edit{Set("\x7f\"\u2028", "t", "b")}, "  [t]\n  a = 1\r\n  b = \"\\u007f\\\"\u2028\"\r\n"},
		{"a.toml", "when = 2020-01-01\n", []Edit{Set(1.0, "when"), Set([]string{"a"}, "list")}, "when = 1.0\nlist = [\"a\"]\n"},

		// YAML
		{
			"a.yaml", "# top\nid: notes  # tail\nlist:\n- a\n- b   # bee\nm:\n  k: v\n",
			[]Edit{Set("other", "id"), Insert("c", "list", 2), Insert("0", "list", 0), Set(1, "m", "z"), Remove("list", 1)},
			"# top\nid: other  # tail\nlist:\n- \"0\"\n- b   # bee\n- c\nm:\n  k: v\n  z: 1\n",
		},
		{"a.yaml", "a: 1\nb:\n  c: 2\n  # about d\n  d: 3\n", []Edit{Remove("b", "c"), Remove("a")}, "b:\n  # about d\n  d: 3\n"},
		{"a.yaml", "a:\n  b: 1\nl:\n- 1\n", []Edit{Remove("a", "b"), Remove("l", 0)}, "a: {}\nl: []\n"},
		{"a.yaml", "a:\nb: |\n  text\n  more\nc: 1", []Edit{Set("x y", "a"), Set("on", "b"), Set("é", "d")}, "a: x y\nb: \"on\"\nc: 1\nd: \"é\""},
		{
			"a.yaml", "s:\n  - id: a\n    v: 1\n  - id: b\n",
			[]Edit{Remove("s", 0, "id"), Set(true, "s", 1, "w"), Insert(obj("id", "z"), "s", 1)},
			"s:\n  - v: 1\n  - {id: z}\n  - id: b\n    w: true\n",
		},
		{"a.yaml", "f: [1, 2]\ng: {a: 1}\n", []Edit{Insert(3, "f", 2), Remove("f", 0), Set("x: y", "g", "b"), Remove("g", "a")}, "f: [2, 3]\ng: {b: \"x: y\"}\n"},
		{"a.yaml", "a: 1\n", []Edit{Set(nil, "a"), Set(1e20, "b"), Set("\u0085\U0001f600", "c")}, "a: null\nb: 1.0e+20\nc: \"\\u0085😀\"\n"},
		{"a.yaml", "a: 1\nb: 2", []Edit{Remove("b")}, "a: 1"},
		{"a.yaml", "\"q k\" : [x]\n", []Edit{Set(obj("z", 1), "q k")}, "\"q k\" : {z: 1}\n"},
	} {
		tree, l := Parse(c.name, []byte(c.src))
		if l.HasErrors() {
			t.Fatal(lines(l))
		}
		got, err := Splice(tree, c.edits...)
		if err != nil {
			t.Errorf("%q: %v", c.src, err)
		} else if string(got) != c.want {
			t.Errorf("%q:\n got %q\nwant %q", c.src, got, c.want)
		}
		if string(tree.Src) != strings.TrimPrefix(c.src, bom) {
			t.Errorf("%q: the source itself became %q", c.src, tree.Src)
		}
	}
}

func TestSpliceRefuses(t *testing.T) {
	for _, c := range []struct {
		name, src string
		edit      Edit
		want      string
	}{
		{"a.json", "{}", Set(1, 0), "a.json: [0]: there is no such place"},
		{"a.json", "[1]", Set(1, 1), "a.json: [1]: there is no such element"},
		{"a.json", "[1]", Insert(1, 2), "a.json: [2]: there is no such place"},
		{"a.json", `{"a": 1}`, Set(1, "a", "b"), "a.json: a.b: there is no such place"},
		{"a.json", `{"a": 1}`, Insert(1, "a"), "a.json: a: there is no such place"},
		{"a.json", `{"a": 1}`, Set(1), "a.json: the whole document can't be changed; write a new file"},
		{"a.json", `{"a": 1}`, Set(1, "x", 0), "a.json: x[0]: there is no such place"},
		{"a.json", `{"a": 1}`, Set(1, 1.5), "a.json: [1.5]: there is no such place"},
		{"a.toml", "a = 1\n", Set(nil, "b"), "a.toml: b: TOML has no null; remove the key instead"},
		{"a.toml", "a = { b.c = 1 }\n", Set("x", "a", "b", "d e"), "a.toml:1: a.b['d e']: can't be changed without touching more of the file; write this there: \"d e\" = \"x\""},
		{"a.yaml", "- [a: b]\n", Set(2, 0, 0, "c"), "a.yaml:1: [0][0].c: can't be changed without touching more of the file; write this there: c: 2"},
	} {
		tree, l := Parse(c.name, []byte(c.src))
		if l.HasErrors() {
			t.Fatal(lines(l))
		}
		got, err := Splice(tree, c.edit)
		if err == nil {
			t.Errorf("%q became %q", c.src, got)
			continue
		}
		if _, ok := diag.From(err); !ok || err.Error() != c.want {
			t.Errorf("%q:\n got %v\nwant %s", c.src, err, c.want)
		}
	}
	if _, err := Splice(&Tree{Name: "x"}, Set(1, "a")); err == nil {
		t.Error("a tree without a source was edited")
	}
}
