package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// ServeHTTP answers one request: a page, a file of a view for who was handed its path, or, for who holds the token, a route.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Content-Security-Policy", policy+"; frame-src "+own(r, viewsAt))
	api := r.URL.Path == "/api" || strings.HasPrefix(r.URL.Path, "/api/")
	switch {
	case !s.named(r):
		fail(w, http.StatusForbidden, "host", "this console is not asked by that name; use the address that agent-env up printed, or name it with --name")
	case strings.HasPrefix(r.URL.Path, viewsAt):
		s.view(w, r)
	case foreign(r, api):
		fail(w, http.StatusForbidden, "origin", "pages of other servers may not use this console")
	case !api:
		s.page(w, r)
	case !s.held(r):
		h.Set("WWW-Authenticate", "Bearer")
		fail(w, http.StatusUnauthorized, "token", "the token is missing or wrong; agent-env up prints it with the address")
	default:
		h.Set("Cache-Control", "no-store")
		s.route(w, r)
	}
}

// policy lets a page load its own files and call its own server: no script or style inside of a page, no frame but of views, and no text that becomes a script.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; base-uri 'none'; form-action 'none'; " +
	"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// named tells whether the Host of a request is a name of this console. A name that somebody has made to lead to this machine is none.
func (s *Server) named(r *http.Request) bool {
	name := strings.ToLower(hostname(r.Host))
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	var at netip.Addr
	if local != nil {
		if ap, err := netip.ParseAddrPort(local.String()); err == nil {
			at = ap.Addr().Unmap().WithZone("")
		}
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		addr = addr.Unmap().WithZone("")
		return addr.IsLoopback() && (!at.IsValid() || at.IsLoopback()) || addr == at
	}
	if name == "localhost" {
		return !at.IsValid() || at.IsLoopback()
	}
	return name != "" && slices.ContainsFunc(s.o.Names, func(n string) bool { return strings.EqualFold(n, name) })
}

// hostname is a host without its port and brackets.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

// foreign tells whether a request comes from a page of another server. Programs say nothing of pages.
func foreign(r *http.Request, api bool) bool {
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		u, err := url.Parse(origins[0])
		return len(origins) > 1 || err != nil || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.Path != "" || !strings.EqualFold(u.Host, r.Host)
	}
	site := r.Header.Get("Sec-Fetch-Site")
	return api && site != "" && site != "same-origin" && site != "none"
}

// held tells whether a request holds the token. Digests are compared, so that the time says nothing of it, its length included.
func (s *Server) held(r *http.Request) bool {
	given := r.Header.Get("X-API-Key")
	if auth := r.Header.Get("Authorization"); auth != "" {
		scheme, rest, _ := strings.Cut(auth, " ")
		if !strings.EqualFold(scheme, "Bearer") {
			return false
		}
		given = strings.TrimSpace(rest)
	}
	a, b := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(s.o.Token))
	return s.o.Token != "" && subtle.ConstantTimeCompare(a[:], b[:]) == 1
}
