package doc

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
)

var schema = Schema{Fields: []Field{
	{Name: "id", Type: Type{Kinds: []Kind{String}, NonEmpty: true}, Required: true, Doc: "its name"},
	{Name: "mode", Type: Type{Kinds: []Kind{String}, OneOf: []string{"fast", "slow"}}, Required: true},
	{Name: "k", Type: Type{Kinds: []Kind{Int}, Null: true, Min: new(1.0), Max: new(8.0)}, Default: 3},
	{Name: "score", Type: Type{Kinds: []Kind{Float}, Min: new(0.0)}},
	{Name: "target", Type: Type{Kinds: []Kind{String, Array}, Elem: &Type{Kinds: []Kind{String}}}},
	{Name: "vars", Type: Type{Kinds: []Kind{Object}, Elem: &Type{Kinds: []Kind{String}}}},
	{Name: "key", Type: Type{Kinds: []Kind{String}, Secret: true}},
	{Name: "any", Type: Type{}},
	{Name: "ref", Type: Type{Kinds: []Kind{String}, Plain: true, OneOf: []string{"1.0", "v2"}}},
	{Name: "criteria", Type: Type{Kinds: []Kind{Array}, NonEmpty: true, Elem: &Type{Kinds: []Kind{Object}, Fields: &Schema{Fields: []Field{
		{Name: "paths", Type: Type{Kinds: []Kind{Array}, Elem: &Type{Kinds: []Kind{String}}}, Required: true},
		{Name: "weight", Type: Type{Kinds: []Kind{Float}}, Default: 1.0},
	}}, Check: func(n Node, l *diag.List) {
		if n.Get("weight").Text() == "9" {
			l.Add(diag.Problem{Where: "weight", Code: "t.nine", Summary: "must not be 9"})
			l.Errorf(n.Get("paths").Pos(), "t.here", "here")
		}
	}}}},
}}

func TestCheck(t *testing.T) {
	for _, c := range []struct{ src, at, want string }{
		{`{"id":"a","mode":"fast","k":null,"score":2,"target":["x"],"vars":{"A":"b"},"any":[1],"criteria":[{"paths":[]}]}`, "step 'a'", ""},
		{"[1]", "step 'a'", "t:1: step 'a': must be a table, not [1]"},
		{
			"{\n\"modes\":\"fast\",\n\"mode\":\"fsat\"}", "step 'a'",
			"t:2: step 'a': unknown key 'modes'; did you mean 'mode'? known here: any, criteria, id, k, key, mode, ref, score, target, vars\n" +
				"t:3: step 'a': mode: must be one of fast, slow, not \"fsat\"; did you mean 'fast'?\n" +
				"t:1: step 'a': id is missing; write it: a string",
		},
		{"{}", "", "t:1: id is missing; write it: a string\nt:1: mode is missing; write it: one of fast, slow"},
		{
			`{"id":3,"mode":true,"k":true,"score":"1","target":{},"vars":[],"key":5,"any":null}`, "",
			"t:1: id: must be a string, not 3; put it between quotes\n" +
				"t:1: mode: must be a string, not true; put it between quotes\n" +
				"t:1: k: must be an integer or null, not true\n" +
				"t:1: score: must be a number, not \"1\"\n" +
				"t:1: target: must be a string or a list, not {}\n" +
				"t:1: vars: must be a table, not []\n" +
				"t:1: key: must be a string, not an integer; put it between quotes\n" +
				"t:1: any: must be a value, not null",
		},
		{
			`{"id":"","mode":"fast","k":0,"score":-0.5,"criteria":[]}`, "",
			"t:1: id: must not be empty\nt:1: k: must be from 1 to 8, not 0\nt:1: score: must be at least 0, not -0.5\nt:1: criteria: must not be empty",
		},
		{`{"id":"x","mode":"fast","k":1.0}`, "", "t:1: k: must be an integer or null, not 1.0"},
		{
			`{"id":"x","mode":"fast","vars":{"a b":1,"c":2},"target":["x",1],"criteria":[{"paths":["a"]},{"path":[]},{"paths":[1,[2]]},{"paths":[],"weight":9}]}`, "e",
			"t:1: e: vars['a b']: must be a string, not 1; put it between quotes\n" +
				"t:1: e: vars.c: must be a string, not 2; put it between quotes\n" +
				"t:1: e: target[1]: must be a string, not 1; put it between quotes\n" +
				"t:1: e: criteria[1]: unknown key 'path'; did you mean 'paths'? known here: paths, weight\n" +
				"t:1: e: criteria[1]: paths is missing; write it: a list\n" +
				"t:1: e: criteria[2].paths[0]: must be a string, not 1; put it between quotes\n" +
				"t:1: e: criteria[2].paths[1]: must be a string, not [2]\n" +
				"t:1: e: criteria[3].weight: must not be 9\n" +
				"t:1: e: criteria[3]: here",
		},
		{`{"id":["` + strings.Repeat("x\u0007", 90) + `"],"mode":"fast"}`, "", `t:1: id: must be a string, not ["` + strings.Repeat(`x\u0007`, 8) + `x\…`},
	} {
		var l diag.List
		src, parsed := ParseJSON("t", []byte(strings.ReplaceAll(c.src, "\u0007", `\u0007`)))
		if len(parsed) > 0 {
			t.Fatal(lines(parsed))
		}
		schema.Check(src.Root(), c.at, &l)
		if got := strings.TrimSuffix(lines(l), "\n"); got != c.want {
			t.Errorf("%.50s\n got %s\nwant %s", c.src, got, c.want)
		}
	}
}

func TestCheckPlainScalars(t *testing.T) {
	n := mustYAML(t, "id: a\nmode: fast\nref: 1.0\n")
	var l diag.List
	schema.Check(n, "", &l)
	if got := lines(l); got != "t.yaml:3: ref: 1.0 is read as text; put it between quotes\n" || l.HasErrors() {
		t.Errorf("got %s", got)
	}
	if s, ok := schema.Fill(n).Get("ref").Str(); s != "1.0" || !ok {
		t.Errorf("filled %q", s)
	}
	l = nil
	schema.Check(mustYAML(t, "id: a\nmode: fast\nref: 1.1\n"), "", &l)
	if l.Of(diag.Error).HasErrors() != true || !strings.Contains(lines(l), "must be one of 1.0, v2, not 1.1") {
		t.Errorf("got %s", lines(l))
	}
	l = nil
	schema.Check(mustTOML(t, "id = 'a'\nmode = 'fast'\nref = 1.0\n"), "", &l)
	if got := lines(l); got != "t.toml:3: ref: must be a string, not 1.0; put it between quotes\n" {
		t.Errorf("got %s", got)
	}
}

func TestFill(t *testing.T) {
	n := mustJSON(t, `{"id":"a","criteria":[{"paths":["x"]},{"paths":[],"weight":2}],"k":null}`)
	full := schema.Fill(n)
	if got, want := string(JSON(full)), `{"id":"a","criteria":[{"paths":["x"],"weight":1.0},{"paths":[],"weight":2}],"k":null}`; got != want {
		t.Errorf("got %s", got)
	}
	if !full.Get("criteria").At(1).Same(n.Get("criteria").At(1)) {
		t.Error("what is unchanged is not shared")
	}
	if got, want := string(JSON(n)), `{"id":"a","criteria":[{"paths":["x"]},{"paths":[],"weight":2}],"k":null}`; got != want {
		t.Errorf("the original became %s", got)
	}
	if p := full.Get("criteria").At(0).Get("paths").Pos(); p.Col != 32 {
		t.Errorf("moved to %v", p)
	}
	if got := string(JSON(schema.Fill(mustJSON(t, `{}`)))); got != `{"k":3}` {
		t.Errorf("got %s", got)
	}
	big := Schema{}
	for i := range 20 {
		big.Fields = append(big.Fields, Field{Name: fmt.Sprint("f", i), Default: i})
	}
	filled := big.Fill(mustJSON(t, `{"f3":true}`))
	if filled.Len() != 20 || filled.Get("f19").Text() != "19" || filled.Get("f3").Text() != "true" {
		t.Errorf("got %s", JSON(filled))
	}
}

func TestJSONSchema(t *testing.T) {
	b, err := json.Marshal(schema.JSONSchema())
	if err != nil {
		t.Fatal(err)
	}
	want := `{"$schema":"https://json-schema.org/draft/2020-12/schema","additionalProperties":false,"properties":{"any":{},` +
		`"criteria":{"items":{"additionalProperties":false,"properties":{"paths":{"items":{"type":"string"},"type":"array"},"weight":{"default":1,"type":"number"}},"required":["paths"],"type":"object"},"minItems":1,"type":"array"},` +
		`"id":{"description":"its name","minLength":1,"type":"string"},"k":{"default":3,"maximum":8,"minimum":1,"type":["integer","null"]},"key":{"type":"string"},` +
		`"mode":{"enum":["fast","slow"],"type":"string"},"ref":{"enum":["1.0","v2"],"type":"string"},"score":{"minimum":0,"type":"number"},"target":{"items":{"type":"string"},"type":["string","array"]},` +
		`"vars":{"additionalProperties":{"type":"string"},"type":"object"}},"required":["id","mode"],"type":"object"}`
	if string(b) != want {
		t.Errorf("got %s", b)
	}
}

func TestBuild(t *testing.T) {
	src := mustJSON(t, `{"a":[1]}`)
	n := Build(map[string]any{"z": nil, "b": true, "i": -3, "l": int64(4), "u": uint64(math.MaxUint64), "f": 1.0, "s": "x", "a": []any{1, []string{"y"}}, "n": src, "gone": Node{}})
	if got, want := string(JSON(n)), `{"a":[1,["y"]],"b":true,"f":1.0,"gone":null,"i":-3,"l":4,"n":{"a":[1]},"s":"x","u":18446744073709551615,"z":null}`; got != want {
		t.Errorf("got %s", got)
	}
	if n.Pos().Line != 0 || n.Get("n").Get("a").Pos().Line != 0 || n.Get("n").Raw() != nil {
		t.Error("a value of another tree keeps its position there")
	}
	w := src.With("b", src.Get("a")).With("a", "new")
	if got := string(JSON(w)); got != `{"a":"new","b":[1]}` || w.Get("b").Pos().Col != 6 || string(JSON(src)) != `{"a":[1]}` {
		t.Errorf("got %s, b at %v", got, w.Get("b").Pos())
	}
	if got := string(JSON(Node{}.With("x", 1))); got != `{"x":1}` {
		t.Errorf("got %s", got)
	}
	m := mustJSON(t, `{"a":["x",{"b":"x"}],"c":["y"]}`)
	got := m.MapStrings(func(n Node) (string, bool) { return "z", n.Text() == "x" })
	if string(JSON(got)) != `{"a":["z",{"b":"z"}],"c":["y"]}` || !got.Get("c").Same(m.Get("c")) {
		t.Errorf("got %s", JSON(got))
	}
	if v, ok := m.Any().(map[string]any)["c"].([]any); !ok || v[0] != "y" {
		t.Errorf("got %v", m.Any())
	}
	if (&Tree{}).Root().Exists() || (*Tree)(nil).Root().Exists() {
		t.Error("a tree without a value has one")
	}
}

func TestManyProblems(t *testing.T) {
	many := strings.Repeat(`"a":1,`, 1000)
	tree, l := ParseJSON("t", []byte("{"+many+`"b":2}`))
	if len(l) != maxProblems+1 || l[maxProblems].String() != "t: there are more problems than are shown; mend these first" || tree == nil {
		t.Errorf("%d problems, then %v", len(l), l[len(l)-1])
	}
	if _, l = ParseJSON("t", []byte("{"+many)); !l.HasErrors() {
		t.Error("a broken document has no problem")
	}
	n := mustJSON(t, `{"id":"x","mode":"fast","target":[`+strings.Repeat("1,", 999)+"1]}")
	l = diag.List{{Summary: "earlier"}}
	schema.Check(n, "", &l)
	if len(l) != 1+maxProblems+1 || l[len(l)-1].Code != CodeMore {
		t.Errorf("%d problems, then %v", len(l), l[len(l)-1])
	}
}
