package config

import (
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// Masked stands for a secret in reports.
const Masked = "***"

// secretWords make everything below a key that contains one of them unreadable.
var secretWords = lazyregexp.New(`(?i)password|passwd|passphrase|secret|token|credential|api[-_]?key|private[-_]?key|auth|bearer|headers`)

var (
	uri = lazyregexp.New(`[A-Za-z][A-Za-z0-9+.-]*://[^\s"']+`)
	// pair is a secret in a query or a connection string: token=…, password = "…".
	pair = lazyregexp.New(`(?i)([A-Za-z0-9_.-]*(?:password|passwd|passphrase|pwd|secret|token|credential|api[-_]?key|private[-_]?key|auth|bearer)[A-Za-z0-9_.-]*\s*=\s*)("[^"]*"|'[^']*'|[^&;\s#]+)`)
	// bearer is a secret in a header's value.
	bearer = lazyregexp.New(`(?i)\b((?:bearer|basic)\s+)\S+`)
)

// mask is a value as reports show it. path is where it stands.
func mask(n doc.Node, path []string) any {
	hide := false
	for i, name := range path {
		hide = hide || hides(path[:i], name)
	}
	return maskNode(n, path, hide)
}

// hides tells whether a key below path keeps what it holds from being shown. In the secret store's table only what is known to be no secret is shown.
func hides(path []string, name string) bool {
	switch {
	case len(path) == 1 && path[0] == "stores":
		return false // [stores.secret] is the name of a store
	case below(path, "stores", "secret"):
		switch name {
		case "impl", "config", "file_path", "use_env", "region", "project", "version", "ttl_seconds", "min_refresh_interval":
			return false
		}
		return true
	default:
		return secretWords().MatchString(name)
	}
}

func maskNode(n doc.Node, path []string, hide bool) any {
	switch n.Kind() {
	case doc.Object:
		out := map[string]any{}
		for name, v := range n.Members() {
			out[name] = maskNode(v, append(path[:len(path):len(path)], name), hide || hides(path, name))
		}
		return out
	case doc.Array:
		out := []any{}
		option := false // an argument list may hold a secret after its option
		for _, v := range n.Items() {
			out = append(out, maskNode(v, path, hide || option))
			option = strings.HasPrefix(v.Text(), "-") && secretWords().MatchString(v.Text()) && !strings.Contains(v.Text(), "=")
		}
		return out
	case doc.String:
		hide = hide || key(path) == "stores.secret" && n.Text() != Local // whoever wrote a value there may have written a secret
		return maskString(n.Text(), hide)
	default:
		if hide && !n.IsNull() {
			return Masked
		}
		return n.Any()
	}
}

// maskString shows references as written, but for a default that is a secret.
func maskString(s string, hide bool) string {
	if r, ok, err := parseReference(s); ok && err == nil {
		switch {
		case !r.hasDef:
			return r.String()
		case hide:
			return r.String() + "?" + Masked
		default:
			return r.String() + "?" + maskText(r.def)
		}
	}
	if hide {
		return Masked
	}
	return maskText(s)
}

// maskText hides what looks like a secret in plain text.
func maskText(s string) string {
	s = diag.Clean(s)
	s = uri().ReplaceAllStringFunc(s, maskUserInfo)
	s = pair().ReplaceAllString(s, "${1}"+Masked)
	return bearer().ReplaceAllString(s, "${1}"+Masked)
}

// maskUserInfo hides who signs in to a URI. Passwords hold slashes and at signs that they should not, so in doubt more is hidden.
func maskUserInfo(uri string) string {
	scheme, rest, _ := strings.Cut(uri, "://")
	last := strings.LastIndexByte(rest, '@')
	if last < 0 {
		return uri
	}
	if host, _, _ := strings.Cut(rest, "/"); !strings.ContainsAny(host, "@:") {
		return uri // an at sign of the path
	}
	return scheme + "://" + Masked + rest[last:]
}
