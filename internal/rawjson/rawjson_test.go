package rawjson_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"agentenv.internal/agentenv/internal/rawjson"
)

func TestMembersKeepBytes(t *testing.T) {
	object := []byte(` { "a" : 1.0 , "n\u0061me" : "x\"}" , "deep":{"k":[1,{"z":"]"}]}, "big":12345678901234567890,"e":{} , "l":[ ] } `)
	want := map[string]string{"a": "1.0", "name": `"x\"}"`, "deep": `{"k":[1,{"z":"]"}]}`, "big": "12345678901234567890", "e": "{}", "l": "[ ]"}
	got := map[string]string{}
	for m := range rawjson.Members(object) {
		got[m.Name] = string(m.Value)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("members %v", got)
	}
	var elements []string
	for e := range rawjson.Elements([]byte(`[1, "a,b" ,{"x":[2]}, []]`)) {
		elements = append(elements, string(e))
	}
	if want := []string{"1", `"a,b"`, `{"x":[2]}`, "[]"}; !reflect.DeepEqual(elements, want) {
		t.Errorf("elements %v", elements)
	}
}

func TestPickRefuses(t *testing.T) {
	for _, s := range []string{``, `[]`, `1`, `{"a":1,}`, `{"a":1}x`, `{"a":1,"\u0061":2}`} {
		if err := rawjson.Pick([]byte(s), []string{"a"}, make([][]byte, 1)); !errors.Is(err, rawjson.ErrSyntax) {
			t.Errorf("Pick(%s): %v", s, err)
		}
	}
}

func TestAppendString(t *testing.T) {
	for _, s := range []string{"", "a\"b\\c\n\t\x00\x7f", "ünïcode <&>"} {
		var back string
		if err := json.Unmarshal(rawjson.AppendString(nil, s), &back); err != nil || back != s {
			t.Errorf("%q came back as %q, %v", s, back, err)
		}
	}
}

func TestFinderRefuses(t *testing.T) {
	for _, s := range []string{``, `[]`, `{`, `{"a"}`, `{"a":1}}`, `{"a":[}`, `{"a":1 "b":2}`, `{"a":}`, `{a:1}`, `{"a":"`} {
		f := rawjson.NewFinder("a")
		_, err := f.Write([]byte(s))
		if err == nil {
			err = f.End()
		}
		if !errors.Is(err, rawjson.ErrSyntax) {
			t.Errorf("%s: %v", s, err)
		}
	}
}

// FuzzFinder holds the finder, fed byte by byte and at once, to what Members and the standard library say.
func FuzzFinder(f *testing.F) {
	for _, s := range []string{`{"id":1,"result":{"a":[1,"}"]}}`, ` {"result":"\"","x":null , "id" : "7" } `, `{"r\u0065sult":1.5e3}`, `{}`, `{"a":{"result":1}}`} {
		f.Add([]byte(s), uint8(3))
	}
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		find := rawjson.NewFinder("id", "result")
		var err error
		for n := 0; n < len(b) && err == nil; {
			end := min(len(b), n+1+int(step))
			_, err = find.Write(b[n:end])
			n = end
		}
		if err == nil {
			err = find.End()
		}
		if !json.Valid(b) || rawjson.Kind(b) != '{' {
			return
		}
		if err != nil {
			t.Fatalf("valid JSON is refused: %v", err)
		}
		for _, name := range []string{"id", "result"} {
			span, found := find.Span(name)
			value := rawjson.Get(b, name)
			if found != (value != nil) || found && string(b[span.From:span.To]) != string(value) {
				t.Fatalf("%s: found %v %q, want %q", name, found, b[span.From:span.To], value)
			}
		}
		for m := range rawjson.Members(b) {
			if !json.Valid(m.Value) {
				t.Fatalf("member %q has %q", m.Name, m.Value)
			}
		}
	})
}
