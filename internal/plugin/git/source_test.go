package git

import (
	"strings"
	"testing"
)

// Row 16, 17, 20, 22, 24.
func TestParseSource(t *testing.T) {
	t.Parallel()
	good := []struct{ text, want, key string }{
		{"https://github.com/org/repo", "https://github.com/org/repo", "github.com/org/repo"},
		{"https://GitHub.com:443/Org/Repo.git/", "https://github.com/Org/Repo.git", "github.com/Org/Repo"},
		{"https://github.com./org/repo", "https://github.com/org/repo", "github.com/org/repo"},
		{"HTTPS://h.example:8443/a/b/c", "https://h.example:8443/a/b/c", "h.example:8443/a/b/c"},
		{"https://h.example/my%20team/r", "https://h.example/my%20team/r", "h.example/my team/r"},
		{"https://[2001:DB8:0::1]:9/r", "https://[2001:db8::1]:9/r", "[2001:db8::1]:9/r"},
		{"ssh://git@github.com/org/repo.git", "ssh://git@github.com/org/repo.git", "github.com/org/repo"},
		{"ssh://git@h.example:2222/org/repo", "ssh://git@h.example:2222/org/repo", "h.example:2222/org/repo"},
		{"git@github.com:org/repo.git", "ssh://git@github.com/org/repo.git", "github.com/org/repo"},
		{"http://h.example/r", "http://h.example/r", "h.example/r"},
		{"file:///srv/git/r.git", "file:///srv/git/r.git", "file:///srv/git/r.git"},
		{"file://localhost/srv/r", "file:///srv/r", "file:///srv/r"},
		{"/srv/a b/é", "file:///srv/a%20b/%C3%A9", "file:///srv/a b/é"},
		{"/srv/r/", "file:///srv/r", "file:///srv/r"},
	}
	for _, c := range good {
		s, err := ParseSource(c.text)
		if err != nil {
			t.Errorf("%q: %v", c.text, err)
			continue
		}
		if s.String() != c.want || s.Key() != c.key {
			t.Errorf("%q: %s, key %s; want %s, key %s", c.text, s, s.Key(), c.want, c.key)
		}
		if again, err := ParseSource(s.String()); err != nil || again != s {
			t.Errorf("%q: its canonical form reads as %v, %v", c.text, again, err)
		}
	}
	bad := []string{
		"", "ftp://x/y", "ext::sh -c id", "fd::3", "-u", "--upload-pack=x", "owner/repo", "./x", " https://x/y", "https://x/y ", "git://h/r", "C:\\x",
		"https://github.com:protoLabsAI:x@evil.example/repo", "https://github.com/protoLabsAI/../evil/x", "https://github.com/protoLabsAI/%2e%2e/evil/x",
		"https://github.com/a/%2Fb", "https://github.com/a/b?x=1", "https://github.com/a/b#f", "https://u@h/o/r", "https://user:tok3n@host/o/r", "ssh://root@h/r",
		"root@h:r", "git@h:../r", "git@h:", "https://h", "https://h/", "https://h/.git", "https:///r", "https://h:0/r", "https://h:99999/r", "https://h:/r", "https://h:080/r",
		"https://h//r/x", "https://h/a//b", "https://h/a/./b", "https://h/a\\b", "https://-h/r", "https://h_x/r", "https://hé/r", "https://[::1/r", "https://[fe80::1%25eth0]/r",
		"ssh://-oProxyCommand=x/r", "git@-oProxyCommand=x:r", "file://host/x", "file:///", "/", "/a/../b", "/a//b", "file:///a/%2e%2e/b", "https://h/a\x00b", "https://h/a\nb",
		"https://h/%zz", "https://h/a%00b", strings.Repeat("https://h/", 1) + strings.Repeat("a", 2000),
	}
	for _, text := range bad {
		s, err := ParseSource(text)
		if err == nil {
			t.Errorf("%q reads as %s", text, s)
		} else if strings.Contains(err.Error(), "tok3n") {
			t.Errorf("%q: the message repeats the password: %v", text, err)
		}
	}
}

// Row 25.
func TestCheckRef(t *testing.T) {
	t.Parallel()
	for _, ref := range []string{"", "main", "release/1.2", "v1.0.0", "feature_x", strings.Repeat("a", 40)} {
		if err := CheckRef(ref); err != nil {
			t.Errorf("%q: %v", ref, err)
		}
	}
	for _, ref := range []string{"-x", "a..b", "a b", "a?b", "a#b", "@", "v1^{}", "main\n", "/abs", "a//b", "a/", "a.lock", "v1.0+build", "a/.b", "a.", strings.Repeat("a", 300)} {
		if CheckRef(ref) == nil {
			t.Errorf("%q is taken as a ref", ref)
		}
	}
}

// Rows 19, 23, 32, 33.
func TestPolicy(t *testing.T) {
	t.Parallel()
	cases := []struct {
		pattern, url string
		want         bool
	}{
		{"github.com/org", "https://github.com/org/repo", true},
		{"github.com/org", "https://github.com/org-evil/repo", false},
		{"github.com/org/*", "git@github.com:org/repo.git", true},
		{"github.com/org/*", "https://github.com/other/repo", false},
		{"github.com/a/b", "https://github.com/a/b", true},
		{"github.com/a/b", "https://github.com/a/b.git", true},
		{"github.com/a/b", "https://github.com/a/b/", true},
		{"github.com/a/b", "https://github.com/a/b-evil", false},
		{"https://github.com/a/b.git", "ssh://git@github.com/a/b", true},
		{"git@github.com:a/b", "https://github.com/a/b", true},
		{"github.com/a/*.git", "https://github.com/a/b", false},
		{"*.git", "https://github.com/a/b", false},
		{"*", "https://github.com/a/b", true},
		{"*.example.com/*", "https://git.example.com/x/y", true},
		{"*.example.com/*", "https://example.com.evil/x", false},
		{"GitHub.com/Org", "https://github.com/Org/r", true},
		{"github.com/Org", "https://github.com/org/r", false},
		{"h.example/*", "https://h.example:8443/r", false},
		{"h.example:8443/*", "https://h.example:8443/r", true},
		{"h.example:*/*", "https://h.example:8443/r", true},
		{"github.com/*", "/github.com/x", false},
		{"/srv/git", "/srv/git/r", true},
		{"file:///srv/git/*", "/srv/git/r", true},
		{"/srv/git", "/srv/git-evil/r", false},
		{"github.com/a/../b", "https://github.com/b", false},
		{"", "https://github.com/b/c", false},
		{"[::1]/*", "https://[::1]/r", true},
	}
	for _, c := range cases {
		s, err := ParseSource(c.url)
		if err != nil {
			t.Fatal(err)
		}
		p := Policy{Allow: []string{c.pattern}, Official: []string{c.pattern}, Files: true}
		if got := p.Allows(s) == nil; got != c.want {
			t.Errorf("%q admits %s: %v, want %v", c.pattern, s, got, c.want)
		}
		if got := p.Trusted(s); got != c.want {
			t.Errorf("%q trusts %s: %v, want %v", c.pattern, s, got, c.want)
		}
	}
	plain, _ := ParseSource("http://h.example/r")
	local, _ := ParseSource("/srv/r")
	far, _ := ParseSource("https://h.example/b")
	for name, c := range map[string]struct {
		err  error
		want bool
	}{
		"open":               {Policy{}.Allows(far), true},
		"an empty list":      {Policy{Allow: []string{}}.Allows(far), false},
		"plain http":         {Policy{}.Allows(plain), false},
		"plain http allowed": {Policy{PlainHTTP: true}.Allows(plain), true},
		"files forbidden":    {Policy{}.Allows(local), false},
		"files":              {Policy{Files: true}.Allows(local), true},
		"a far bundle's":     {Policy{Files: true}.AllowsMember(far, local), false},
		"a local bundle's":   {Policy{Files: true}.AllowsMember(local, local), true},
	} {
		if (c.err == nil) != c.want {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	if (Policy{Official: []string{"h.example/*"}}).Trusted(plain) {
		t.Error("plain http is trusted by a pattern")
	}
}

func FuzzParseSource(f *testing.F) {
	for _, s := range []string{"https://h/a", "git@h:a", "/a", "file:///a%20b", "ssh://git@[::1]:2/a", "https://u:p@h/%2e%2e/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSource(text)
		if err != nil {
			return
		}
		again, err := ParseSource(s.String())
		if err != nil || again != s {
			t.Fatalf("%q: %q reads as %v, %v", text, s.String(), again, err)
		}
		if s.Host != "" && strings.ContainsAny(s.Host, "@/ ") || strings.Contains(s.Path, "/../") {
			t.Fatalf("%q: %#v", text, s)
		}
		_ = Policy{Allow: []string{text}}.Allows(s)
	})
}

// R5: who consents to a repository consents to that one, however its path is spelled, and not to what lies below it or comes over a line that anybody may answer on.
func TestAcked(t *testing.T) {
	for _, c := range []struct {
		entry, url string
		want       bool
	}{
		{"https://github.com/a/b", "https://github.com/a/b.git", true},
		{"https://github.com/a/b", "git@github.com:a/b", true},
		{"https://github.com/a", "https://github.com/a/b", false},
		{"file:///srv", "/srv/r", false},
		{"file:///srv/my%20plugins/%5Ba%5D%2A", "/srv/my plugins/[a]*", true},
		{"file:///srv/my%20plugins/%5Ba%5D%2A", "/srv/my plugins/aX", false},
		{"https://h.example/@org/r", "https://h.example/@org/r", true},
		{"github.com/a", "https://github.com/a/b", true},
		{"https://github.com/a/*", "https://github.com/a/b", true},
		{"https://h.example/r", "http://h.example/r", false},
		{"h.example/*", "http://h.example/r", false},
		{"*", "http://h.example/r", false},
		{"http://h.example/r", "http://h.example/r", true},
		{"http://h.example/*", "http://h.example/r", true},
	} {
		s, err := ParseSource(c.url)
		if err != nil {
			t.Fatal(err)
		}
		if got := (Policy{Acked: []string{c.entry}}).Trusted(s); got != c.want {
			t.Errorf("%q vouches for %s: %t", c.entry, s, got)
		}
		if err := CheckAcked(c.entry); err != nil {
			t.Error(err)
		}
		if got := (Policy{Acked: []string{s.String()}}).Trusted(s); !got {
			t.Errorf("%s doesn't vouch for itself", s)
		}
	}
}

// Row 16: no message shows what an address hides, whatever it looks like.
func TestShownAddresses(t *testing.T) {
	for _, text := range []string{
		"https://user:s3cret@h.example/a/b", "https://s3cret@h.example/a/b", "https://user:s3/cret@h.example/a/b", "https://user:a@s3cret@h.example/a", "user:s3cret@h.example:a/b",
		"https:/user:s3cret@h.example/a", "https://h.example/a/b?access_token=s3cret", "https://h.example/a/b#s3cret", "https://u:s3#cret@h.example/a", "https://h.example/a?s3cret@x",
		"ext::sh -c 'curl u:s3cret@h'", "git:s3cret@h.example/a", "ssh://git:s3cret@h.example/a", "//u:s3cret@h.example/a",
	} {
		if got := Shown(text); strings.Contains(got, "s3") || strings.Contains(got, "cret") {
			t.Errorf("%q is shown as %q", text, got)
		}
		if _, err := ParseSource(text); err == nil || strings.Contains(err.Error(), "s3") || strings.Contains(err.Error(), "cret") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"https://github.com/a/b.git", "git@github.com:a/b", "ssh://git@h.example/a", "/srv/a@b", "", "owner/repo"} {
		if got := Shown(text); got != text {
			t.Errorf("%q is shown as %q", text, got)
		}
	}
}
