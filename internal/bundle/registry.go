package bundle

import (
	"strings"

	"github.com/google/go-containerregistry/pkg/name"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

// registryFault is why a registry's image reference can't be used; "" where it can. Its first part must name the registry, so that it means the same
// everywhere, and nothing of this machine: the sources of images that are none of a registry are no hosts.
func registryFault(s string) string {
	host, rest, ok := strings.Cut(s, "/")
	switch {
	case s == "" || strings.ContainsAny(s, " \t\n"):
		return diag.Repr(s) + " is no image reference"
	case ok && strings.Contains(host, "@"): // it may hold a password
		return "it names whom to sign in as; leave that out, and sign in with docker login"
	case !ok || rest == "" || host != "localhost" && !strings.ContainsAny(host, ".:"):
		return diag.Repr(s) + " doesn't name its registry; spell it out, as in docker.io/library/" + diag.Clean(s)
	case !isHost(host):
		return diag.Repr(s) + " is no image of a registry: " + diag.Repr(host) + " is no host, or host:port"
	}
	if _, digest, pinned := strings.Cut(s, "@"); pinned && !ref.Digest(digest).Valid() {
		return diag.Repr(s) + " is pinned to no digest: write sha256: and 64 digits behind the @"
	}
	if _, err := name.ParseReference(s); err != nil {
		return diag.Repr(s) + " is no image reference; write host/name:tag, with the name in lower case"
	}
	return ""
}

// isHost tells whether text is a host's name or IPv4 address, or an IPv6 address in brackets, with or without a port.
func isHost(text string) bool {
	host, port, has := text, "", false
	if i := strings.LastIndexByte(text, ':'); i > strings.LastIndexByte(text, ']') {
		host, port, has = text[:i], text[i+1:], true
	}
	if has && (port == "" || strings.Trim(port, "0123456789") != "") {
		return false
	}
	if inner, ok := strings.CutPrefix(host, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && inner != "" && strings.Trim(inner, "0123456789abcdefABCDEF:.") == ""
	}
	for label := range strings.SplitSeq(host, ".") {
		if label == "" || strings.HasPrefix(label, "-") || strings.HasSuffix(label, "-") ||
			strings.ContainsFunc(label, func(r rune) bool {
				return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z')
			}) {
			return false
		}
	}
	return true
}
