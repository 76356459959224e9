package requirement_test

import (
	"strings"
	"testing"
	"unicode"

	"agentenv.internal/agentenv/internal/requirement"
)

// FuzzParse holds that what is accepted is one printable line that can be no option of an installer, and that what it says can be read again.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"a", "agentenv-acme[img,all] (>=1.2,<2) ; python_version > '3.9' and (os_name == 'nt' or extra == 'x')", "a===1,b", "a @ https://x.invalid",
		"a; 'a' == os.name", "a; os_name == '\\x41\\u00e9'", "a~=1.2.post1.dev3,!=1!2.*", "a>=1,", "-e .", "a\n", "a;" + strings.Repeat("(", 300),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := requirement.Parse(s)
		if err != nil {
			if r != nil || err.Error() == "" {
				t.Fatalf("%q: %v, %v", s, r, err)
			}
			return
		}
		if strings.HasPrefix(strings.TrimSpace(s), "-") || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
			t.Fatalf("%q is accepted", s)
		}
		again, err := requirement.Parse(r.Name + "[" + strings.Join(r.Extras, ",") + "]" + r.Specifiers.String())
		if err != nil || again.Name != r.Name || again.Specifiers.String() != r.Specifiers.String() {
			t.Fatalf("%q: %+v, %v", s, again, err)
		}
		r.Applies(base(), "x")
		r.Specifiers.Contains("1.2.0rc1+a")
	})
}

// FuzzVersion holds that versions have an order, and that a normalised version is itself.
func FuzzVersion(f *testing.F) {
	for _, s := range []string{"1", "1.2.0rc1+acme.1", "1!2.post3.dev4", "v1-1", "0", "1.0.0.0", "99999999999999999999999", "1a.dev", "1+01.a"} {
		f.Add(s, "1.2")
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		v, err := requirement.ParseVersion(a)
		if err != nil {
			return
		}
		if again, err := requirement.ParseVersion(v.String()); err != nil || again.Compare(v) != 0 || again.String() != v.String() {
			t.Fatalf("%q: %q, %v", a, v, err)
		}
		public, err := requirement.ParseVersion(v.Public())
		if err != nil || public.Compare(v) > 0 {
			t.Fatalf("%q: %q, %v", a, v.Public(), err)
		}
		if w, err := requirement.ParseVersion(b); err == nil && v.Compare(w) != -w.Compare(v) {
			t.Fatalf("%q and %q: %d and %d", a, b, v.Compare(w), w.Compare(v))
		}
		r, err := requirement.Parse("a>=" + v.Public())
		if err != nil || !r.Specifiers.Contains(a) {
			t.Fatalf("%q isn't in >=%s: %v", a, v.Public(), err)
		}
	})
}
