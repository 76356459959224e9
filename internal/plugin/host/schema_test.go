package host

import (
	"encoding/json"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/sdk/plugin"
)

func TestKinds(t *testing.T) {
	k, err := Kind(plugin.Type{Name: "x", Schema: json.RawMessage(`{"type":"object","properties":{
		"text":{"type":"string","minLength":1},"n":{"type":["integer","null"],"minimum":1,"maximum":3,"default":2},
		"of":{"type":"array","items":{"type":"object","properties":{"a":{"enum":["p","q"],"type":"string"}},"required":["a"]}},
		"map":{"type":"object","additionalProperties":{"type":"number"}},"any":true,"id":{"type":"integer"}},"required":["text"]}`)})
	if err != nil {
		t.Fatal(err)
	}
	for in, want := range map[string]string{
		`{"id":"s","type":"x","text":"t","n":null,"of":[{"a":"p"}],"map":{"k":1},"any":[1,{}]}`: "",
		`{"id":"s","type":"x"}`:                                   "text is missing",
		`{"id":"s","type":"x","text":""}`:                         "must not be empty",
		`{"id":"s","type":"x","text":"t","n":4}`:                  "n: must be",
		`{"id":"s","type":"x","text":"t","of":[{"a":"z"}]}`:       "of[0].a",
		`{"id":"s","type":"x","text":"t","of":[{"a":"p","b":1}]}`: "unknown key 'b'",
		`{"id":"s","type":"x","text":"t","map":{"k":"v"}}`:        "map.k",
		`{"id":"s","type":"x","text":"t","tex":1}`:                "unknown key 'tex'",
	} {
		n, l := doc.ParseJSON("f", []byte(in))
		if l.HasErrors() {
			t.Fatal(l)
		}
		var found diag.List
		k.Schema().Check(n.Root(), "", &found)
		switch {
		case want == "" && len(found) > 0:
			t.Errorf("%s: %v", in, found)
		case want != "" && (len(found) == 0 || !contains(found[0].String(), want)):
			t.Errorf("%s: %v, want %s", in, found, want)
		}
	}
	n, _ := doc.ParseJSON("f", []byte(`{"id":"s","type":"x","text":"t"}`))
	if v, _ := k.Fill(n.Root()).Get("n").Float(); v != 2 {
		t.Error("no default")
	}
	for _, bad := range []string{`[]`, `{"properties":{"a":{"type":"text"}}}`, `{"properties":{"a":{"type":[]}}}`, `{"properties":{"a":5}}`} {
		if _, err := Kind(plugin.Type{Name: "x", Schema: json.RawMessage(bad)}); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	if k, err := Kind(plugin.Type{Name: "x"}); err != nil || !k.Fields.Open {
		t.Error(err)
	}
}

func contains(s, part string) bool {
	for i := range s {
		if len(s)-i >= len(part) && s[i:i+len(part)] == part {
			return true
		}
	}
	return false
}

// FuzzSchema: whatever a plugin writes, its kind can check any document and fill it.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(`{"properties":{"a":{"type":["string","null"],"enum":["x",null],"default":"x"}},"required":["b"]}`), []byte(`{"id":"s","a":"y"}`))
	f.Add([]byte(`{"additionalProperties":{"type":"array","items":{"type":"object"}}}`), []byte(`{"c":[{}]}`))
	f.Fuzz(func(t *testing.T, schema, in []byte) {
		k, err := Kind(plugin.Type{Name: "x", Schema: schema})
		if err != nil {
			return
		}
		n, l := doc.ParseJSON("f", in)
		if l.HasErrors() {
			return
		}
		var found diag.List
		k.Schema().Check(n.Root(), "step", &found)
		if n.Root().Kind() == doc.Object {
			_ = k.Fill(n.Root()).Any()
		}
	})
}

// FuzzCache: a file that is none remembers nothing.
func FuzzCache(f *testing.F) {
	f.Add([]byte(`{"format_version":1,"generation":"g","types":{"[\"a\",\"b\",\"c\"]":{"name":"b"}}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		if parseCache(in).Types == nil {
			t.Fatal("no map")
		}
	})
}
