package redact

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

const canary = `ca"n<ry\7f3 é`

func TestEverySpelling(t *testing.T) {
	var r Redactor
	r.Add("unrelated")
	r.Add(canary)
	asJSON, _ := json.Marshal(map[string]string{"k": "x" + canary + "y"})
	for _, s := range []string{
		canary, "a" + canary + canary, string(asJSON), url.QueryEscape(canary), url.PathEscape(canary), base64.StdEncoding.EncodeToString([]byte(canary)),
	} {
		got := r.String(s)
		if strings.Contains(got, "7f3") || !strings.Contains(got, Mask) {
			t.Errorf("%q became %q", s, got)
		}
	}
	if got := r.JSON(asJSON); string(got) != `{"k":"x***y"}` {
		t.Errorf("%s", got)
	}
}

func TestJSONStaysJSON(t *testing.T) {
	var r Redactor
	for _, v := range []string{"1234", "true", "caf\u00e9"} {
		r.Add(v)
	}
	for in, want := range map[string]string{
		`{"a":1234,"true":[true,12345,-1.5e3],"b":"caf\u00e9 \"1234\" <"}`: `{"a":"***","***":[true,"***",-1.5e3],"b":"*** \"***\" \u003c"}`,
		`["nothing","\u003c here"]`:                                        `["nothing","\u003c here"]`, `7`: `7`, `"1234"`: `"***"`,
	} {
		if got := string(r.JSON([]byte(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}

func TestTheLongestWins(t *testing.T) {
	var r Redactor
	r.Add("abcd")
	r.Add("abcdefgh")
	if got := r.String("abcdefgh abcdx"); got != "*** ***x" {
		t.Error(got)
	}
}

func TestLinesOfAKey(t *testing.T) {
	var r Redactor
	r.Add("-----BEGIN\nMIIabcdef\nxyz\n")
	if got := r.String("it says MIIabcdef, and xyz"); got != "it says ***, and xyz" {
		t.Error(got)
	}
}

func TestShortAndUnknown(t *testing.T) {
	var r Redactor
	if r.Add("abc") || r.Add("") {
		t.Error("a short value counts")
	}
	b := []byte("abc")
	if got := r.JSON(b); &got[0] != &b[0] || r.String("abc") != "abc" || r.Open("abc") != 0 {
		t.Error("changed")
	}
	var none *Redactor
	if none.String("x") != "x" || string(none.JSON(b)) != "abc" {
		t.Error("a nil Redactor changes texts")
	}
}

// TestAcrossEdges cuts a text that holds a secret at every place.
func TestAcrossEdges(t *testing.T) {
	var r Redactor
	r.Add("hunter22")
	r.Add("nterlude") // begins inside the other
	text := "say hunter22 twice: hunter22hunter22."
	for i := range len(text) + 1 {
		a, b := r.Across(text[:i], text[i:])
		if got := strings.ReplaceAll(a+b, Mask, ""); got != "say  twice: ." {
			t.Errorf("cut at %d: %q | %q", i, a, b)
		}
		if open := r.Open(text[:i]); open == 0 && a != r.String(text[:i]) {
			t.Errorf("cut at %d: changed, though nothing was open", i)
		}
	}
}

func FuzzJSON(f *testing.F) {
	f.Add("secret", `{"say":"secret in \u0073ecret","n":[1,2.5e3]}`)
	f.Add("2.5e", `[2.5e3,"a\"b\\"]`)
	f.Fuzz(func(t *testing.T, value, text string) {
		var r Redactor
		if !r.Add(value) || !json.Valid([]byte(text)) {
			return
		}
		got := r.JSON([]byte(text))
		if !json.Valid(got) {
			t.Fatalf("%q in %s became %s", value, text, got)
		}
		var v any
		_ = json.Unmarshal(got, &v)
		if s, ok := v.(string); ok && strings.Contains(s, value) && !strings.Contains(value, "*") {
			t.Errorf("%q is left in %s", value, got)
		}
	})
}
