package redact

import (
	"slices"
	"strings"
	"testing"
)

func TestPieces(t *testing.T) {
	var r Redactor
	r.Add("secret-one")
	r.Add("xy-xy-xy")
	for _, c := range []struct{ in, want []string }{
		{nil, nil},
		{[]string{"", "nothing", ""}, []string{"", "nothing", ""}},
		{[]string{"a sec", "ret-", "one b"}, []string{"a ***", "", " b"}},
		{[]string{"a secret-one", "secret", "-one"}, []string{"a ***", "***", ""}},
		{[]string{"s", "", "ecret-on", "e", "xy-", "xy-xy", "!"}, []string{"***", "", "", "", "***", "", "!"}},
		{[]string{"secret-", "two"}, []string{"secret-", "two"}},
	} {
		if got := r.Pieces(c.in); !slices.Equal(got, c.want) {
			t.Errorf("%q became %q, want %q", c.in, got, c.want)
		}
	}
}

// FuzzPieces: the pieces together are the whole, redacted, wherever it is cut.
func FuzzPieces(f *testing.F) {
	f.Add("a secret-one b xy-xy-xy", uint16(0x1234))
	f.Fuzz(func(t *testing.T, s string, cuts uint16) {
		var r Redactor
		r.Add("secret-one")
		r.Add("xy-xy-xy")
		r.Add("xy-x")
		var p []string
		rest := s
		for ; cuts > 0 && rest != ""; cuts >>= 3 {
			n := min(int(cuts&7), len(rest))
			p, rest = append(p, rest[:n]), rest[n:]
		}
		p = append(p, rest)
		if got, want := strings.Join(r.Pieces(p), ""), r.String(s); got != want {
			t.Errorf("%q became %q, want %q", p, got, want)
		}
	})
}

func TestEnds(t *testing.T) {
	var r Redactor
	r.Add("secret-one")
	for _, c := range [][4]string{
		{"a secret", "et-one b", "a ***", "*** b"},
		{"a sec", "one b", "a sec", "one b"}, // too short to tell
		{"a", "b", "a", "b"},
		{"secret-one", "secret-one", "secret-one", "secret-one"}, // whole ones are found by whoever records
	} {
		if head, tail := r.Ends(c[0], c[1]); head != c[2] || tail != c[3] {
			t.Errorf("%q … %q became %q … %q", c[0], c[1], head, tail)
		}
	}
}
