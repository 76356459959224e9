package console

import (
	"embed"
	"net/http"
	"path"
)

// Everything that a page loads. Nothing in it is a template: what is shown comes from the API, and scripts put it into the page as text.
//
//go:embed page
var files embed.FS

// pages are the files by the path at which they are served.
func pages() map[string]string {
	return map[string]string{
		"/":             "plugins.html",
		"/plugins.js":   "plugins.js",
		"/computers":    "computers.html",
		"/computers.js": "computers.js",
		"/api.js":       "api.js",
		"/console.css":  "console.css",
	}
}

// page serves a file.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	name, ok := pages()[r.URL.Path]
	switch {
	case !ok:
		fail(w, http.StatusNotFound, "route", "there is no such page; / is the console")
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		w.Header().Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "method", "pages are read")
		return
	}
	b, err := files.ReadFile("page/" + name)
	if err != nil {
		fail(w, http.StatusInternalServerError, "internal", "the page is missing from agent-env")
		return
	}
	kind := map[string]string{".html": "text/html", ".js": "text/javascript", ".css": "text/css"}[path.Ext(name)]
	w.Header().Set("Content-Type", kind+"; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	if r.Method == http.MethodGet {
		_, _ = w.Write(b) // who asked may be gone
	}
}
