package ref

import (
	"path"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestCheckLocal(t *testing.T) {
	for _, tc := range []struct{ id, fault string }{
		{"@local/~/b/x", ""},
		{"@local/a b/c.d_e-f~g@h(i)+j,k&l", ""},
		{"@local/日本/é", ""},
		{"@local/n\u0303", ""},
		{"@local/Ⅷ/٣", ""},
		{"x", "must start with @local/"},
		{"@other/x", "must start with @local/"},
		{"@local/", "empty path segment"},
		{"@local/a//b", "empty path segment"},
		{"@local/a/", "empty path segment"},
		{"@local/a/./b", "segment that is . or .."},
		{"@local/a/..", "segment that is . or .."},
		{"@local/a/ b", "opens or closes with a space"},
		{"@local/a /b", "opens or closes with a space"},
		{"@local/a:b", "contains ':'"},
		{"@local/a:b*c:d", "contains '*', ':'; a local id"},
		{"@local/a\nb", `contains '\n'`},
		{"@local/a\tb/ ", `contains '\t'; a local id may contain only ` + Allowed + ", and has a path segment that opens"},
		{"@local/a\xffb", `contains '\xff'`},
		{"@local/a\u200bb", `contains '\u200b'`},
		{"@local/a\u3164b", `contains '\u3164'`}, // a letter that shows as nothing
		{"@local/a\ufe0fb", `contains '\ufe0f'`}, // a mark that shows as nothing
		{"@local/\u0301a", "combining mark that follows no letter"},
		{"@local/a-\u0301", "combining mark that follows no letter"},
		{"@local/a/\u0301", "combining mark that follows no letter"},
		{"@local/" + strings.Repeat("a", MaxID-len(LocalPrefix)), ""},
		{"@local/" + strings.Repeat("a", MaxID-len(LocalPrefix)+1), "at most 4096 bytes, and this one has 4097"},
	} {
		got := ""
		if err := CheckLocal(tc.id); err != nil {
			got = err.Error()
		}
		if (tc.fault == "") != (got == "") || !strings.Contains(got, tc.fault) {
			t.Errorf("CheckLocal(%q) = %q, want %q", tc.id, got, tc.fault)
		}
		if strings.ContainsAny(got, "\n\t\x00") {
			t.Errorf("CheckLocal(%q): the message isn't one line: %q", tc.id, got)
		}
	}
}

func TestCheckAuthored(t *testing.T) {
	for id, fault := range map[string]string{
		"@local/x/f": "",
		"@local/" + strings.Repeat("a", MaxAuthored-len(LocalPrefix)):   "",
		"@local/" + strings.Repeat("a", MaxAuthored-len(LocalPrefix)+1): "at most 4071 bytes",
		"@local/x/fe\u0301": "composed form",
		"@local/x/a:b":      "contains ':'",
	} {
		got := ""
		if err := CheckAuthored(id); err != nil {
			got = err.Error()
		}
		if (fault == "") != (got == "") || !strings.Contains(got, fault) {
			t.Errorf("CheckAuthored(%.30q) = %q, want %q", id, got, fault)
		}
	}
}

func TestRootOf(t *testing.T) {
	for _, tc := range []struct{ dir, home, want, fault string }{
		{"/home/u/b", "/home/u", "@local/~/b", ""},
		{"/home/u/x/b/", "/home/u/", "@local/~/x/b", ""},
		{"/home/user/b", "/home/u", "@local/home/user/b", ""},
		{"/home/u", "/home/u", "@local/home/u", ""},
		{"/srv/b", "", "@local/srv/b", ""},
		{"/srv/b", "/", "@local/srv/b", ""},
		{"/srv/ne\u0301", "", "@local/srv/né", ""},
		{"/home/j\u00fcrgen m/b", "/home/j\u00fcrgen m", "@local/~/b", ""},
		{"/", "/root", "", "root of the file system"},
		{"/~", "", "", "named ~"},
		{"/~/b", "/root", "", "named ~"},
		{"/srv/a:b", "", "", "move or rename it: '@local/srv/a:b' contains ':'"},
		{"b", "/root", "", "not an absolute path"},
	} {
		got, err := RootOf(tc.dir, tc.home)
		fault := ""
		if err != nil {
			fault = err.Error()
		}
		if got != tc.want || (tc.fault == "") != (fault == "") || !strings.Contains(fault, tc.fault) {
			t.Errorf("RootOf(%q, %q) = %q, %q; want %q, %q", tc.dir, tc.home, got, fault, tc.want, tc.fault)
		}
	}
}

func TestDerivedIDs(t *testing.T) {
	// The ids that the ledger's goldens and the peer's documents have.
	for got, want := range map[string]string{
		FileID("@local/~/b/u", "sub/y.txt"):       "@local/~/b/u__8baca148fc4df819",
		FileID("@local/~/b/u", "x.txt"):           "@local/~/b/u__8a6dcb9c9836d0a0",
		Derived("@local/~/b/mail", "env_image"):   "@local/~/b/mail__env_image",
		Key("@local/~/b/u"):                       "local/b-u-1b122b44e899",
		Key("@local/x/f"):                         "local/x-f-f801a72ead85",
		Last("@local/~/b/u"):                      "u",
		InstalledRoot("agentenv-framework", "he"): "@local/agentenv-framework/he",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestFold(t *testing.T) {
	for _, pair := range [][2]string{{"Tasks", "tasks"}, {"É", "e\u0301"}, {"straße", "STRASSE"}, {"\u212a", "k"}, {"ſ", "S"}, {"Σ", "ς"}, {"Ω", "\u2126"}, {"\ufb01n", "FIN"}, {"\u0149", "\u02bcN"}, {"\u1f80", "\u1f00\u03b9"}} {
		if Fold(pair[0]) != Fold(pair[1]) {
			t.Errorf("%q and %q have different keys %q and %q", pair[0], pair[1], Fold(pair[0]), Fold(pair[1]))
		}
	}
	if Fold("a") == Fold("b") || Fold("é") == Fold("e") {
		t.Error("different names share a key")
	}
}

func TestDigest(t *testing.T) {
	d := DigestOf([]byte("hello\n"))
	if d != "sha256:5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03" || !d.Valid() || len(d.Hex()) != 64 {
		t.Errorf("DigestOf = %q", d)
	}
	for _, bad := range []Digest{"", "sha256:", "sha256:" + Digest(strings.Repeat("A", 64)), Digest(strings.Repeat("a", 64)), d + "0"} {
		if bad.Valid() {
			t.Errorf("%q counts as a digest", bad)
		}
	}
}

func FuzzCheckLocal(f *testing.F) {
	for _, s := range []string{"@local/~/b/x", "@local/a/../b", "@local/a:b", "@local/\u0301", "@local/a\u200b", "@local/\xff", "x", "@local/a /b", "@local/e\u0301"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		err := CheckLocal(id)
		if err != nil {
			if m := err.Error(); m == "" || !utf8.ValidString(m) || strings.ContainsFunc(m, unicode.IsControl) {
				t.Errorf("message of %q: %q", id, m)
			}
			return
		}
		// A valid id is a clean relative path, whatever made it, and so are its parts and what is derived from it.
		rest := strings.TrimPrefix(id, LocalPrefix)
		if path.Clean("/"+rest) != "/"+rest {
			t.Errorf("%q is valid and no clean path", id)
		}
		for seg := range strings.SplitSeq(rest, "/") {
			if err := CheckSegment(seg); err != nil {
				t.Errorf("%q is valid and its segment %q is not: %v", id, seg, err)
			}
		}
		if CheckAuthored(id) == nil {
			for _, d := range []string{FileID(id, "x"), FileID(Derived(id, "files"), "x"), Derived(id, "env_image")} {
				if err := CheckLocal(d); err != nil {
					t.Errorf("derived id %q: %v", d, err)
				}
			}
		}
		k := Key(id)
		if s := strings.TrimPrefix(k, "local/"); s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" || len(s) > 61 {
			t.Errorf("Key(%q) = %q", id, k)
		}
	})
}

// Both cases of every letter have one key, and it is its own.
func TestFoldCases(t *testing.T) {
	for r := rune(0x80); r <= unicode.MaxRune; r++ {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			if a, b := Fold(string(r)), Fold(string(f)); a != b {
				t.Errorf("the keys of %q and %q are %q and %q", r, f, a, b)
			}
		}
	}
}

func FuzzFold(f *testing.F) {
	for _, s := range []string{"Tasks", "É", "ß", "Σς", "K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		k := Fold(s)
		if Fold(k) != k {
			t.Errorf("Fold(%q) = %q, whose key is %q", s, k, Fold(k))
		}
		if Fold(NFC(s)) != k {
			t.Errorf("%q and its composed form have different keys", s)
		}
	})
}

func FuzzRootOf(f *testing.F) {
	f.Add("/home/u/b", "/home/u")
	f.Add("/~/b", "")
	f.Add("/", "/")
	f.Fuzz(func(t *testing.T, dir, home string) {
		id, err := RootOf(dir, home)
		if err == nil {
			if err := CheckAuthored(id); err != nil {
				t.Errorf("RootOf(%q, %q) = %q: %v", dir, home, id, err)
			}
		}
	})
}
