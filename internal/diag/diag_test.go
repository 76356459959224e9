package diag

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestShapes(t *testing.T) {
	pos := Pos{File: "tasks/t.json", Line: 7, Col: 3}
	for _, c := range []struct {
		p    Problem
		want string
	}{
		{Problem{Summary: "nothing to run"}, "nothing to run"},
		{Problem{Summary: "nothing to run", Fix: "write a task"}, "nothing to run; write a task"},
		{Problem{Pos: pos, Summary: "s"}, "tasks/t.json:7: s"},
		{Problem{Pos: pos, Where: "step 'a'", Summary: "s", Fix: "f"}, "tasks/t.json:7: step 'a': s; f"},
		{Problem{Pos: Pos{File: "x"}, Summary: "s", Fix: "f"}, "x: s; f"},
		{Problem{Pos: pos, Where: "step 'a'", Summary: "s", Fix: "f", Prefixed: true}, "tasks/t.json: step 'a': s; f (line 7)"},
		{Problem{Pos: Pos{File: "x"}, Summary: "s", Prefixed: true}, "x: s"},
		{Problem{Pos: pos, Where: "w", Summary: "s", Fix: "f", Exact: true}, "tasks/t.json: w: s"},
		{Problem{Pos: pos, Summary: "s", Fix: "f", Exact: true, Prefixed: true}, "tasks/t.json: s"},
		{Problem{Where: "--task 'x'", Summary: "s", Prefixed: true}, "--task 'x': s"},
	} {
		if got := c.p.String(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestListOf(t *testing.T) {
	var l List
	l.Errorf(Pos{File: "b", Line: 2}, "x", "second %d", 1)
	l.Errorf(Pos{File: "a", Line: 10}, "x", "ten")
	l.Errorf(Pos{File: "a", Line: 9}, "x", "nine")
	l.Errorf(Pos{File: "b", Line: 2}, "y", "second 1")
	l.Add(Problem{Summary: "careful", Severity: Warning}, Problem{Summary: "try it", Severity: Hint})
	var got []string
	for _, p := range l.Of(Error) {
		got = append(got, p.String())
	}
	if want := "a:10: ten|a:9: nine|b:2: second 1"; strings.Join(got, "|") != want {
		t.Errorf("got %q, want %q: sorted by text, each once", got, want)
	}
	if w := l.Of(Warning); len(w) != 1 || w[0].Summary != "careful" {
		t.Errorf("warnings %v", w)
	}
	if h := l.Of(Hint); len(h) != 1 || h[0].Summary != "try it" {
		t.Errorf("hints %v", h)
	}
	if len(l) != 6 || l[0].Summary != "second 1" {
		t.Error("Of changed the list")
	}
}

func TestPrefixed(t *testing.T) {
	l := List{{Pos: Pos{File: "a", Line: 1}, Summary: "x"}, {Pos: Pos{File: "a", Line: 2}, Summary: "y"}}
	for i, p := range l.Prefixed() {
		if want := fmt.Sprintf("a: %c (line %d)", 'x'+i, i+1); p.String() != want {
			t.Errorf("got %q, want %q", p, want)
		}
	}
	if !l[1].Prefixed {
		t.Error("the list itself is not changed")
	}
	if got := List(nil).Prefixed(); len(got) != 0 {
		t.Errorf("got %v", got)
	}
}

func TestRefusal(t *testing.T) {
	var l List
	if l.Err() != nil || l.HasErrors() {
		t.Error("an empty list is an error")
	}
	l.Add(Problem{Summary: "w", Severity: Warning}, Problem{Summary: "h", Severity: Hint})
	if l.Err() != nil {
		t.Error("warnings are an error")
	}
	l.Add(Problem{Summary: "z"}, Problem{Summary: "a"}, Problem{Summary: "a"})
	err := fmt.Errorf("run: %w", errors.Join(errors.New("other"), l.Err()))
	if got := l.Err().Error(); got != "a\nz" {
		t.Errorf("text %q", got)
	}
	if got, ok := From(err); !ok || len(got) != 5 {
		t.Errorf("From: %v %v", got, ok)
	}
	if _, ok := From(errors.New("x")); ok {
		t.Error("a plain error carries a list")
	}
	if _, ok := From(nil); ok {
		t.Error("nil carries a list")
	}
}

func TestClean(t *testing.T) {
	for _, c := range []struct{ in, clean, repr string }{
		{"plain é 漢 😀", "plain é 漢 😀", "'plain é 漢 😀'"},
		{"a\nb\r\t\x00\x1b[31m", `a\nb\r\t\x00\x1b[31m`, `'a\nb\r\t\x00\x1b[31m'`},
		{"it's", "it's", `'it\'s'`},
		{"\xff\xc3x", `\xff\xc3x`, `'\xff\xc3x'`},
		{"\x7f\u0085", `\x7f\u0085`, `'\x7f\u0085'`},
		{"a\u200bb\u202ec\ufeff", `a\u200bb\u202ec\ufeff`, `'a\u200bb\u202ec\ufeff'`},
		{"\u2028\u2029", `\u2028\u2029`, `'\u2028\u2029'`},
		{"\u00ad", `\u00ad`, `'\u00ad'`},
		{"\U000e0041", `\U000e0041`, `'\U000e0041'`},
		{"\ufffd", "\ufffd", "'\ufffd'"},
		{"", "", "''"},
	} {
		if got := Clean(c.in); got != c.clean {
			t.Errorf("Clean(%q) = %s, want %s", c.in, got, c.clean)
		}
		if got := Repr(c.in); got != c.repr {
			t.Errorf("Repr(%q) = %s, want %s", c.in, got, c.repr)
		}
	}
}

func FuzzClean(f *testing.F) {
	for _, s := range []string{"a\n\x1b[0m", "\u202e\xff", "\U000e0001x", "'\\'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Clean(s)
		if !utf8.ValidString(got) {
			t.Errorf("Clean(%q) = %q", s, got)
		}
		for _, r := range got {
			if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
				t.Errorf("Clean(%q) holds %U", s, r)
			}
		}
		if Clean(got) != got {
			t.Errorf("Clean(%q) is not clean", got)
		}
	})
}

func TestNearest(t *testing.T) {
	names := []string{"environment_name", "file", "description", "type", "id"}
	for _, c := range []struct{ got, want string }{
		{"enviroment_name", "environment_name"},
		{"Type", "type"},
		{"typ", "type"},
		{"filee", "file"},
		{"descripton", "description"},
		{"zzzzzz", ""},
		{"sandbox_name", ""},
		{"", ""},
	} {
		if got := Nearest(c.got, names); got != c.want {
			t.Errorf("Nearest(%q) = %q, want %q", c.got, got, c.want)
		}
	}
	if got := Nearest(strings.Repeat("type", 1<<20), names); got != "" {
		t.Errorf("a name of 4 MiB is near %q", got)
	}
	if got := Nearest("x", nil); got != "" {
		t.Errorf("nearest of nothing is %q", got)
	}
	if got := Nearest("größe", []string{"grösse", "größen"}); got != "größen" {
		t.Errorf("got %q: distance counts characters", got)
	}
}

func TestPosString(t *testing.T) {
	if got := (Pos{File: "a", Line: 3, Col: 2}).String(); got != "a:3" {
		t.Errorf("got %q", got)
	}
	if got := (Pos{File: "a"}).String(); got != "a" {
		t.Errorf("got %q", got)
	}
}

// TestLongTexts: of a text that nobody reads to its end, the beginning is shown, cut between characters.
func TestLongTexts(t *testing.T) {
	for _, long := range []string{strings.Repeat("x", 5<<20), strings.Repeat("é", 5<<20), "x" + strings.Repeat("世", 1<<20), strings.Repeat("\xff", 1<<20)} {
		got := Repr(long)
		if len(got) > 5*maxRepr || !strings.HasSuffix(got, fmt.Sprintf("'… (%d bytes)", len(long))) || !utf8.ValidString(got) {
			t.Errorf("%d bytes: …%s", len(got), got[max(0, len(got)-50):])
		}
		if long[0] != 0xff && strings.Contains(got, `\x`) {
			t.Error("cut within a character")
		}
	}
}

func TestShellWords(t *testing.T) {
	for text, want := range map[string]string{
		"a": "a", "a==1.0": "a==1.0", "a>=1": "'a>=1'", "a[x]": "'a[x]'", "a; os_name == 'nt'": `'a; os_name == '"'"'nt'"'"''`, "": "''",
	} {
		if got := ShellWord(text); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 sandboxes", 1: "1 sandbox", 2: "2 sandboxes"} {
		if got := Count(n, "sandbox"); got != want {
			t.Error(got)
		}
	}
	if got := Count(2, "more step"); got != "2 more steps" {
		t.Error(got)
	}
}
