package ref

import (
	"path"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCheckID(t *testing.T) {
	for _, tc := range []struct{ id, fault string }{
		{"demo", ""},
		{"mail/smoke test", ""},
		{"a.b_c-d~e@f(g)+h,i&j", ""},
		{"日本/é", ""},
		{"locale/x", ""},
		{"local-x", ""},
		{"@local/~/b/x", ""},
		{"", "can't be empty"},
		{"@foo/x", "begin with @local/"},
		{"@", "begin with @local/"},
		{"@local/x/../y", "segment that is . or .."},
		{"a//b", "empty path segment"},
		{"/a", "empty path segment"},
		{"a/.", "segment that is . or .."},
		{" a", "opens or closes with a space"},
		{"a:b", "contains ':'"},
		{"a\nb", `contains '\n'`},
		{"fe\u0301", "composed form"},
		{"local/x", "spelled as files of local ids are"},
		{"local-b-u-1b122b44e899", "spelled as files of local ids are"},
		{"local-1b122b44e899", "spelled as files of local ids are"},
		{strings.Repeat("a", MaxAuthored), ""},
		{strings.Repeat("a", MaxAuthored+1), "longer than ids may be"},
		{" a:b//", "contains ':'; a local id may contain only " + Allowed + ", and has a path segment that opens or closes with a space, and has an empty"},
	} {
		got := ""
		if err := CheckID(tc.id); err != nil {
			got = err.Error()
		}
		if (tc.fault == "") != (got == "") || !strings.Contains(got, tc.fault) {
			t.Errorf("CheckID(%.40q) = %q, want %q", tc.id, got, tc.fault)
		}
		if strings.ContainsAny(got, "\n\t\x00") || len(got) > 500 {
			t.Errorf("CheckID(%.40q): the message isn't one short line: %q", tc.id, got)
		}
	}
}

func FuzzCheckID(f *testing.F) {
	for _, s := range []string{"demo", "@local/x", "local/x", "a//b", "\xff", " ", "e\u0301", "local-000000000000"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		err := CheckID(id)
		if err != nil {
			if m := err.Error(); m == "" || !utf8.ValidString(m) || strings.ContainsFunc(m, unicode.IsControl) {
				t.Errorf("message of %q: %q", id, m)
			}
			return
		}
		if path.Clean("/"+id) != "/"+id || !IsNFC(id) {
			t.Errorf("%q is valid and no clean path in composed form", id)
		}
		if !IsLocal(id) && CheckLocal(LocalPrefix+id) != nil {
			t.Errorf("%q is valid and %s is not", id, LocalPrefix+id)
		}
	})
}
