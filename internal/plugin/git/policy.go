package git

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
)

// Policy says which sources plugins may come from, and which of them need no consent. Patterns are HOST/PATH, each part a glob of its own in
// which * stays within one segment; a pattern that ends early admits all below: github.com/org admits every repository of org. A transport
// before a pattern and a .git behind it don't count; a port counts, and a pattern without one means the transport's own.
type Policy struct {
	Allow           []string // nil: any source; empty: none
	Official        []string // sources that need no consent
	Acked           []string // sources that were consented to: each alone, unless it is a pattern
	TrustUnverified bool     // no source needs consent
	PlainHTTP       bool     // http:// may be used
	Files           bool     // repositories of this machine may be used
	Mirror          string   // a folder or an address that is asked before any source; "" for none. See CheckMirror
}

// Refused is a source that the policy doesn't allow.
type Refused struct {
	Source Source
	Why    string // with what to do
}

func (r *Refused) Error() string { return fmt.Sprintf("%s is refused: %s", r.Source, r.Why) }

// Allows is nil for a source that plugins may come from, else a *Refused. It is asked before anything is sent to the source.
func (p Policy) Allows(s Source) error {
	switch {
	case s.Scheme == HTTP && !p.PlainHTTP:
		return &Refused{s, "http:// is not encrypted; use https://, or set plain_http = true in [git_plugins.sources]"}
	case s.Scheme == File && !p.Files:
		return &Refused{s, "files = false in [git_plugins.sources] forbids repositories of this machine"}
	case p.Allow == nil:
		return nil
	case len(p.Allow) == 0:
		return &Refused{s, "allow = [] in [git_plugins.sources] allows no source"}
	case !matchAny(p.Allow, s):
		return &Refused{s, "no pattern of allow in [git_plugins.sources] matches it; add " + diag.Repr(s.Key()) + " there if you want it"}
	default:
		return nil
	}
}

// AllowsMember is Allows for a source that a bundle from parent names: what comes over the network names no files of this machine.
func (p Policy) AllowsMember(parent, s Source) error {
	if s.Local() && !parent.Local() {
		return &Refused{s, fmt.Sprintf("the bundle %s may not name repositories of this machine", parent)}
	}
	return p.Allows(s)
}

// Trusted tells whether a source needs no consent. Over plain HTTP nobody knows who answers, so that no pattern makes it trusted.
func (p Policy) Trusted(s Source) bool {
	return p.TrustUnverified || s.Scheme != HTTP && matchAny(p.Official, s) || slices.ContainsFunc(p.Acked, func(entry string) bool { return acked(entry, s) })
}

// acked tells whether an entry that somebody consented to means a source. One that is spelled as a source means that repository alone, and not what lies below
// it; any other is a pattern. For plain HTTP both have to say http://.
func acked(entry string, s Source) bool {
	if s.Scheme == HTTP && !strings.HasPrefix(strings.ToLower(entry), HTTP+"://") {
		return false
	}
	if src, err := ParseSource(entry); err == nil && !strings.ContainsAny(entry, globs) {
		return src.Same(s)
	}
	return match(entry, s)
}

// CheckAcked says what is wrong with an entry that somebody consented to; it would match nothing.
func CheckAcked(entry string) error {
	if _, err := ParseSource(entry); err == nil {
		return nil
	}
	return CheckPattern(entry)
}

// globs are the characters that make a pattern.
const globs = "*?["

func matchAny(patterns []string, s Source) bool {
	for _, p := range patterns {
		if match(p, s) {
			return true
		}
	}
	return false
}

// CheckPattern says what is wrong with a pattern of a policy; it would match nothing.
func CheckPattern(pattern string) error {
	scheme, host, p := splitPattern(pattern)
	switch {
	case scheme != "" && scheme != HTTPS && scheme != HTTP && scheme != SSH && scheme != File && scheme != "git":
		return fmt.Errorf("the pattern %s has an unknown transport", diag.Repr(pattern))
	case host == "" && p == "":
		return fmt.Errorf("the pattern %s is empty", diag.Repr(pattern))
	case strings.Contains(host, "@") || strings.ContainsAny(p, "@?#\\"):
		return fmt.Errorf("the pattern %s holds a user, a query or a backslash", diag.Repr(pattern))
	}
	for part := range strings.SplitSeq(host+"/"+strings.Trim(p, "/"), "/") {
		if _, err := path.Match(part, ""); err != nil || part == ".." || part == "." {
			return fmt.Errorf("the pattern %s can't be read at %s", diag.Repr(pattern), diag.Repr(part))
		}
	}
	return nil
}

// splitPattern takes a pattern apart: its transport ("" without one), host with port ("" for files), and path.
func splitPattern(pattern string) (scheme, host, p string) {
	rest := pattern
	if before, after, ok := strings.Cut(pattern, "://"); ok {
		scheme, rest = strings.ToLower(before), after
	}
	if scheme == "" && strings.HasPrefix(rest, "/") {
		scheme = File
	}
	if scheme == File {
		return scheme, "", strings.TrimRight(rest, "/")
	}
	rest = strings.TrimPrefix(rest, "git@")
	if m := strings.IndexByte(rest, ':'); m >= 0 && !strings.Contains(rest[:m], "/") && scheme == "" && rest[0] != '[' {
		if tail := rest[m+1:]; tail != "" && strings.Trim(strings.SplitN(tail, "/", 2)[0], "0123456789*") != "" {
			rest = rest[:m] + "/" + tail // host:path
		}
	}
	host, p, _ = strings.Cut(rest, "/")
	return scheme, strings.ToLower(host), strings.TrimRight(p, "/")
}

func match(pattern string, s Source) bool {
	if CheckPattern(pattern) != nil {
		return false
	}
	scheme, host, p := splitPattern(pattern)
	if (scheme == File) != s.Local() && pattern != "*" {
		return false
	}
	if !s.Local() && !matchHost(host, s) {
		return false
	}
	if !strings.ContainsAny(pattern, globs) && !s.Local() {
		p = strings.TrimSuffix(p, ".git")
	}
	have := strings.Trim(s.Path, "/")
	if !s.Local() {
		have = strings.TrimSuffix(have, ".git")
	}
	if pattern == "*" {
		return true
	}
	return matchPath(strings.Trim(p, "/"), have)
}

// matchHost matches host and port apart.
func matchHost(pattern string, s Source) bool {
	host, port := pattern, ""
	if i := strings.LastIndexByte(pattern, ':'); i >= 0 && !strings.HasSuffix(pattern, "]") {
		host, port = pattern[:i], pattern[i+1:]
	}
	have := Source{Scheme: s.Scheme, Host: s.Host}.authority()
	if strings.HasPrefix(host, "[") { // an IPv6 address is no glob
		if host != have {
			return false
		}
	} else if ok, err := path.Match(host, have); err != nil || !ok {
		return false
	}
	n := s.Port
	if n == 0 {
		n = defaultPort(s.Scheme)
	}
	if port == "" {
		return s.Port == 0
	}
	ok, err := path.Match(port, fmt.Sprint(n))
	return err == nil && ok
}

// matchPath matches the segments of a pattern with the first segments of a path.
func matchPath(pattern, have string) bool {
	if pattern == "" {
		return true
	}
	want, got := strings.Split(pattern, "/"), strings.Split(have, "/")
	if len(want) > len(got) {
		return false
	}
	for i, w := range want {
		if ok, err := path.Match(w, got[i]); err != nil || !ok {
			return false
		}
	}
	return true
}
