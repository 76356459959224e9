package tools_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/gateway/tools"
)

func entry(name string) []byte {
	return fmt.Appendf(nil, `{"name":%q,"title":"T","inputSchema":{"type":"object","properties":{"n":{"const":1.0}}},"annotations":{"readOnlyHint":true}}`, name)
}

func served(s *tools.Set) string {
	var out []string
	for _, t := range s.Tools {
		out = append(out, t.Name)
	}
	return strings.Join(out, " ")
}

func TestNames(t *testing.T) {
	s := tools.Build([]tools.Source{
		{Server: "a", Entries: [][]byte{entry("search"), entry("list")}},
		{Server: "b", Entries: [][]byte{entry("search"), entry("x.y"), entry(strings.Repeat("n", 80))}},
	}, nil, nil)
	if got := served(s); !strings.HasPrefix(got, "a__search list b__search x_y_") {
		t.Errorf("names %s", got)
	}
	if c := s.Clashes["search"]; len(s.Clashes) != 1 || strings.Join(c, " ") != "a b" {
		t.Errorf("clashes %v", s.Clashes)
	}
	legal := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
	for _, tool := range s.Tools {
		if !legal.MatchString(tool.Name) || s.Get(tool.Name) != tool || !json.Valid(tool.Entry) || !json.Valid(tool.Step) {
			t.Errorf("%q: %s %s", tool.Name, tool.Entry, tool.Step)
		}
		if !strings.Contains(string(tool.Entry), `{"const":1.0}`) || !strings.Contains(string(tool.Entry), `"title":"T"`) || !tool.ReadOnly {
			t.Errorf("%q lost something: %s", tool.Name, tool.Entry)
		}
	}
}

// TestNamesStay: a server that comes later, or lists more, renames nobody.
func TestNamesStay(t *testing.T) {
	var names tools.Names
	first := tools.Source{Server: "a", Entries: [][]byte{entry("search")}}
	names.Remember(tools.Build([]tools.Source{first}, nil, &names))
	s := tools.Build([]tools.Source{{Server: "0", Entries: [][]byte{entry("search")}}, first}, nil, &names)
	if got := served(s); got != "0__search search" {
		t.Errorf("names %s", got)
	}
	names.Remember(s)
	// A name isn't given to another tool while it may be remembered by an agent.
	s = tools.Build([]tools.Source{{Server: "0", Entries: [][]byte{entry("search")}}}, nil, &names)
	if got := served(s); got != "0__search" {
		t.Errorf("names %s", got)
	}
}

func TestReserved(t *testing.T) {
	s := tools.Build([]tools.Source{{Server: "a", Entries: [][]byte{entry("list_website_urls")}}}, []string{"list_website_urls"}, nil)
	if got := served(s); got != "a__list_website_urls" || len(s.Clashes) != 1 {
		t.Errorf("names %s, clashes %v", got, s.Clashes)
	}
}

func TestSetAside(t *testing.T) {
	bad := map[string]string{
		`{"name":"t1","inputSchema":{"type":"array"}}`: `type "array"`,
		`{"name":"t2"}`:                    "is missing",
		`{"name":"t3","inputSchema":true}`: "no JSON object",
		`{"name":"t4","inputSchema":{"type":"object","properties":[]}}`:                          "/properties",
		`{"name":"t5","inputSchema":{"type":"object","required":"x"}}`:                           "/required",
		`{"name":"t6","inputSchema":{"type":"object","properties":{"a":{"$ref":"#/$defs/no"}}}}`: "#/$defs/no",
		`{"name":"t7","inputSchema":{"type":["object","null"]}}`:                                 `["object","null"]`,
		`{"name":"t8","inputSchema":{"type":"object"},"outputSchema":{"type":"string"}}`:         "outputSchema",
		`{"inputSchema":{"type":"object"}}`:                                                      "no name",
		`{"name":"t9","inputSchema":{"type":"object","anyOf":[]}}`:                               "/anyOf",
		`7`: "no JSON object",
	}
	for e, why := range bad {
		s := tools.Build([]tools.Source{{Server: "a", Entries: [][]byte{[]byte(e), entry("good")}}}, nil, nil)
		if served(s) != "good" || len(s.Aside) != 1 || !strings.Contains(s.Aside[0].Why, why) {
			t.Errorf("%s: served %q, aside %+v, want %q", e, served(s), s.Aside, why)
		}
	}
	good := []string{
		`{"$schema":"x","type":"object","$defs":{"p":{"type":"string"}},"properties":{"a":{"$ref":"#/$defs/p"},"b":{"anyOf":[{"type":"null"},true]},"c":{"type":["string","null"]}}}`,
		`{"anyOf":[{"type":"object"}]}`, `{}`, `{"type":"object","properties":{"l":{"items":[{"type":"string"}]}}}`,
	}
	for i, schema := range good {
		s := tools.Build([]tools.Source{{Server: "a", Entries: [][]byte{[]byte(`{"name":"g","inputSchema":` + schema + `}`)}}}, nil, nil)
		if len(s.Tools) != 1 || !json.Valid(s.Tools[0].Entry) || !strings.Contains(string(s.Tools[0].Entry), `"type":"object"`) {
			t.Errorf("schema %d: %+v", i, s.Aside)
		}
	}
}

func FuzzBuild(f *testing.F) {
	f.Add("search", []byte(`{"name":"a","inputSchema":{"type":"object","$ref":"#/x"}}`))
	f.Add("", []byte(`{"name":"ü","inputSchema":{}}`))
	f.Fuzz(func(t *testing.T, name string, raw []byte) {
		e, err := json.Marshal(map[string]any{"name": name, "inputSchema": map[string]any{"type": "object"}})
		if err != nil {
			return
		}
		s := tools.Build([]tools.Source{{Server: "a", Entries: [][]byte{e, raw}}, {Server: "b", Entries: [][]byte{raw, e}}}, []string{"get"}, nil)
		seen := map[string]bool{"get": true}
		for _, tool := range s.Tools {
			if seen[tool.Name] || tool.Name != tools.Legal(tool.Name, "") || !json.Valid(tool.Entry) {
				t.Fatalf("%q is served twice, or is illegal, or has an entry that is no JSON: %s", tool.Name, tool.Entry)
			}
			seen[tool.Name] = true
		}
	})
}
