package git

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"unicode/utf8"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// Transports.
const (
	HTTPS = "https"
	HTTP  = "http"
	SSH   = "ssh"
	File  = "file"
)

// Source is where a repository is, in the one spelling that messages, locks and allow-lists see.
type Source struct {
	Scheme string // https, http, ssh or file
	Host   string // lower case, without a final dot; "" for files
	Port   int    // 0: the transport's own
	Path   string // decoded, begins with "/" and doesn't end with one; of files an absolute path
}

const maxSource = 1024

var (
	hostName = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
	scpForm  = lazyregexp.New(`^([^/@:\s]+)@(\[[^\]/]*\]|[^/:@\s]+):([^:]*)$`)
)

// ParseSource reads a URL (https, http, ssh, file), git@host:path, or an absolute path. What two readers could take differently is refused:
// users and passwords, dot segments, encoded slashes, queries, fragments, options, other transports. No message repeats a password.
func ParseSource(text string) (Source, error) {
	s, err := parseSource(text)
	if err != nil {
		return Source{}, fmt.Errorf("%s is no source of plugins: %w", diag.Repr(withoutSecrets(text)), err)
	}
	return s, nil
}

func parseSource(text string) (Source, error) {
	switch {
	case text == "":
		return Source{}, errors.New("it is empty; give a URL such as https://host/owner/repository")
	case len(text) > maxSource:
		return Source{}, fmt.Errorf("it has more than %d characters", maxSource)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' && r != ' ' || r == 0x7f }):
		return Source{}, errors.New("it holds control characters")
	case strings.TrimSpace(text) != text:
		return Source{}, errors.New("blanks stand before or after it")
	case strings.HasPrefix(text, "-"):
		return Source{}, errors.New("it begins with a dash, as options do")
	case strings.HasPrefix(text, "/"):
		return fileSource(text)
	}
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		if m := scpForm().FindStringSubmatch(text); m != nil {
			if m[1] != "git" {
				return Source{}, errors.New("only git@host:path may name a user")
			}
			return network(SSH, m[2], strings.TrimPrefix(m[3], "/"))
		}
		return Source{}, errors.New("use https://, ssh://, git@host:path, file:// or an absolute path")
	}
	scheme = strings.ToLower(scheme)
	switch scheme {
	case File:
		return fileURL(rest)
	case HTTPS, HTTP, SSH:
	case "git":
		return Source{}, errors.New("git:// is neither encrypted nor signed; use https:// or ssh://")
	default:
		return Source{}, errors.New("use https://, ssh://, git@host:path, file:// or an absolute path")
	}
	authority, p, _ := strings.Cut(rest, "/")
	if user, host, ok := cutLast(authority, "@"); ok {
		if scheme != SSH || user != "git" {
			return Source{}, errors.New("it holds a user or a password; give those to git's transport (an ssh agent, GITHUB_TOKEN), never in a URL")
		}
		authority = host
	}
	if p, err := unescape(p); err != nil {
		return Source{}, err
	} else {
		return network(scheme, authority, p)
	}
}

// network checks host, port and the decoded path.
func network(scheme, authority, p string) (Source, error) {
	s := Source{Scheme: scheme}
	var host, port string
	if end := strings.LastIndexByte(authority, ']'); strings.HasPrefix(authority, "[") && end > 0 {
		host, port = authority[1:end], strings.TrimPrefix(authority[end+1:], ":")
		a, err := netip.ParseAddr(host)
		if err != nil || !a.Is6() || a.Zone() != "" || authority[end+1:] != "" && authority[end+1] != ':' {
			return Source{}, errors.New("its host is no IPv6 address")
		}
		s.Host = a.String()
	} else {
		host, port, _ = strings.Cut(authority, ":")
		s.Host = strings.ToLower(strings.TrimSuffix(host, "."))
		if len(s.Host) > 253 || !hostName().MatchString(s.Host) {
			return Source{}, errors.New("its host is no host name (names beyond ASCII are written in their xn-- form)")
		}
	}
	if strings.HasSuffix(authority, ":") {
		return Source{}, errors.New("its port is missing")
	}
	if port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n == 0 || port[0] == '0' {
			return Source{}, errors.New("its port is no number from 1 to 65535")
		}
		if int(n) != defaultPort(scheme) {
			s.Port = int(n)
		}
	}
	s.Path = "/" + strings.TrimRight(p, "/")
	if s.Path == "/" || s.Path == "/.git" {
		return Source{}, errors.New("it names no repository: the path is missing")
	}
	return s, checkPath(s.Path)
}

func defaultPort(scheme string) int {
	switch scheme {
	case HTTPS:
		return 443
	case HTTP:
		return 80
	case SSH:
		return 22
	default:
		return 0
	}
}

func fileURL(rest string) (Source, error) {
	host, p, ok := strings.Cut(rest, "/")
	if host != "" && host != "localhost" || !ok {
		return Source{}, errors.New("a file URL names no host: file:///folder")
	}
	p, err := unescape(p)
	if err != nil {
		return Source{}, err
	}
	return fileSource("/" + p)
}

func fileSource(p string) (Source, error) {
	if len(p) > 1 {
		p = strings.TrimRight(p, "/")
	}
	if p == "" || p == "/" {
		return Source{}, errors.New("it names no repository: the path is missing")
	}
	return Source{Scheme: File, Path: p}, checkPath(p)
}

// checkPath refuses paths that two readers could take differently.
func checkPath(p string) error {
	for part := range strings.SplitSeq(p[1:], "/") {
		switch {
		case part == "." || part == "..":
			return errors.New("its path holds a dot segment (. or ..)")
		case part == "":
			return errors.New("its path holds an empty segment (//)")
		}
	}
	if i := strings.IndexAny(p, "\\?#"); i >= 0 {
		return fmt.Errorf("its path holds a %q", p[i])
	}
	if strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }) || !utf8.ValidString(p) {
		return errors.New("its path holds control characters")
	}
	return nil
}

// unescape decodes the path of a URL; encoded slashes and dots are refused.
func unescape(p string) (string, error) {
	if i := strings.IndexAny(p, "?#"); i >= 0 {
		return "", errors.New("it holds a query or a fragment; give the branch or tag with --ref")
	}
	lower := strings.ToLower(p)
	for _, code := range []string{"%2f", "%5c", "%2e", "%00", "%3f", "%23"} {
		if strings.Contains(lower, code) {
			return "", fmt.Errorf("its path holds an encoded %s", code)
		}
	}
	out, err := url.PathUnescape(p)
	if err != nil {
		return "", errors.New("its path has a % that begins no code")
	}
	return out, nil
}

// String is the canonical URL.
func (s Source) String() string {
	p := (&url.URL{Path: s.Path}).EscapedPath()
	switch s.Scheme {
	case "":
		return ""
	case File:
		return "file://" + p
	case SSH:
		return "ssh://git@" + s.authority() + p
	default:
		return s.Scheme + "://" + s.authority() + p
	}
}

// Key is what two spellings of one repository have in common: host, port and path without .git. The transport doesn't count, but a file is no
// host's repository.
func (s Source) Key() string {
	if s.Scheme == File {
		return "file://" + s.Path
	}
	return s.authority() + strings.TrimSuffix(s.Path, ".git")
}

// Same tells whether two sources are one repository.
func (s Source) Same(o Source) bool { return s.Key() == o.Key() }

// Local tells a repository on this machine's file system.
func (s Source) Local() bool { return s.Scheme == File }

// Name is the last part of the path, without .git: what a repository is called until its manifest is read.
func (s Source) Name() string { return strings.TrimSuffix(path.Base(s.Path), ".git") }

// authority is host and port as URLs spell them.
func (s Source) authority() string {
	h := s.Host
	if strings.Contains(h, ":") {
		h = "[" + h + "]"
	}
	if s.Port != 0 {
		h += ":" + strconv.Itoa(s.Port)
	}
	return h
}

// Shown is an address from outside, of a lock for instance, as it may be shown: of one that names no source, what may be a password or a token is left out.
func Shown(text string) string {
	if _, err := parseSource(text); err != nil {
		return withoutSecrets(text)
	}
	return text
}

// withoutSecrets takes out of a text what may be a user with a password, and what a query or a fragment may hold. Where a password ends isn't asked of what
// can't be read: everything before the last @ may be one.
func withoutSecrets(text string) string {
	head, rest, ok := strings.Cut(text, "://")
	if ok {
		head += "://"
	} else {
		head, rest = "", text
	}
	if user, host, has := cutLast(rest, "@"); has && user != "git" {
		rest = "***@" + host
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 && i+1 < len(rest) {
		rest = rest[:i+1] + "***"
	}
	return head + rest
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return "", s, false
	}
	return s[:i], s[i+len(sep):], true
}

var (
	refForm = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._/-]*$`)
	fullSHA = lazyregexp.New(`^[0-9a-f]{40}$`)
	hexForm = lazyregexp.New(`^[0-9a-fA-F]{7,40}$`)
)

const maxRef = 250

// CheckRef says what is wrong with the name of a branch or a tag, or a commit; "" is the repository's default branch.
func CheckRef(ref string) error {
	switch {
	case ref == "":
		return nil
	case len(ref) > maxRef:
		return fmt.Errorf("a ref has at most %d characters", maxRef)
	case !refForm().MatchString(ref) || strings.Contains(ref, "..") || strings.Contains(ref, "//") || strings.HasSuffix(ref, "/") ||
		strings.HasSuffix(ref, ".") || strings.HasSuffix(ref, ".lock") || strings.Contains(ref, "/."):
		return fmt.Errorf("%s is no ref: it has letters, digits, dots, dashes, underscores and slashes, and begins with a letter or digit", diag.Repr(ref))
	default:
		return nil
	}
}
