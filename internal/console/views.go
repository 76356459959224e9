package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/gitplugins"
)

// Views are pages of git plugins, and whoever wrote them is a stranger: they run in a frame whose origin is nobody's, and reach their own files alone.
//
// A frame can't send the token, so the API hands out a path for each plugin, with a part that can't be guessed. It holds for the plugin's files as they were
// listed, while the plugin is on and allowed, and until the console ends.

// viewsAt begins the paths of views.
const viewsAt = "/views/"

const (
	maxViewFile = 16 << 20
	viewTime    = 30 * time.Second // for a file to be taken
	mostViews   = 16               // files that are served at once; others wait
)

// handed are the files of a plugin that a path was handed out for.
type handed struct {
	secret   string
	id, tree string
	folders  []string // of its views' pages; what lies elsewhere is not shown
}

// views are the paths that are handed out: those of the plugins that were on when somebody listed them last.
type views struct {
	mu    sync.Mutex
	all   []handed
	slots chan struct{}
}

// hand replaces what is handed out, and answers it with secrets: the same for files that had one.
func (v *views) hand(now []handed) []handed {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, n := range now {
		k := slices.IndexFunc(v.all, func(h handed) bool { return h.id == n.id && h.tree == n.tree })
		if k >= 0 {
			now[i].secret = v.all[k].secret
		} else {
			now[i].secret = strings.ToLower(rand.Text())
		}
	}
	v.all = now
	return slices.Clone(now)
}

// find is what a secret was handed out for. Digests of all are compared, so that the time says nothing of any.
func (v *views) find(secret string) (out handed, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	given := sha256.Sum256([]byte(secret))
	for _, h := range v.all {
		if sum := sha256.Sum256([]byte(h.secret)); subtle.ConstantTimeCompare(given[:], sum[:]) == 1 {
			out, ok = h, true
		}
	}
	return out, ok
}

// listedView is a view of an installed plugin.
type listedView struct {
	ID    string  `json:"id"`
	Title string  `json:"title"`
	URL   *string `json:"url"`   // a path of the console; null of a plugin that is off or can't be used, and where there is no such file
	Error *string `json:"error"` // why a plugin that is on has no such page
}

// listViews adds the views to plugins that are listed, and hands out paths for those that can be shown now.
func (s *Server) listViews(ctx context.Context, p *gitplugins.Plugins, cards []gitplugins.Card, out []installedPlugin) error {
	var now []handed
	pages := map[string][]string{} // addresses by plugin, in the order of its views; "" of one that there is no file of
	for i, card := range cards {
		out[i].Views = []listedView{}
		if card.Manifest == nil || len(card.Manifest.Views) == 0 {
			continue
		}
		for _, v := range card.Manifest.Views {
			title := v.Label
			if title == "" {
				title = v.ID
			}
			out[i].Views = append(out[i].Views, listedView{ID: v.ID, Title: title})
		}
		h, err := p.Hold(ctx, card.ID)
		if err != nil {
			return err
		}
		if h == nil {
			continue
		}
		if h.Tree == card.Row.TreeSHA256 { // else it was updated just now, and the next list has it
			found, folders := viewPages(h)
			pages[card.ID] = found
			now = append(now, handed{id: card.ID, tree: h.Tree, folders: folders})
		}
		if err := h.Close(); err != nil {
			return err
		}
	}
	for _, h := range s.views.hand(now) {
		i := slices.IndexFunc(out, func(x installedPlugin) bool { return x.ID == h.id })
		for k, address := range pages[h.id] {
			if address == "" {
				out[i].Views[k].Error = new("the plugin has no file for this page; what a program of the plugin would serve is not shown here")
			} else {
				out[i].Views[k].URL = new(viewsAt + h.secret + "/" + address)
			}
		}
	}
	return nil
}

// viewPages are the addresses of a plugin's views below its files, "" of one that there is no file of, and the folders that they lie in.
func viewPages(h *gitplugins.Held) (addresses, folders []string) {
	for _, v := range h.Manifest.Views {
		file, address := v.Page(h.ID)
		f, _, err := openView(h.Dir, file)
		if err != nil {
			addresses = append(addresses, "")
			continue
		}
		_ = f.Close() // it was only read
		addresses, folders = append(addresses, address), append(folders, path.Dir(file))
	}
	return addresses, folders
}

// openView opens a file of a tree: nothing that is hidden or a link, and no folder.
func openView(dir, name string) (*os.File, fs.FileInfo, error) {
	if name == "." || !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") {
		return nil, nil, fs.ErrNotExist
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = root.Close() }() // it was only read
	for i, c := range []byte(name + "/") {
		if c != '/' {
			continue
		}
		info, err := root.Lstat(name[:i])
		if err != nil {
			return nil, nil, err
		}
		last := i == len(name)
		if strings.HasPrefix(path.Base(name[:i]), ".") || last && !info.Mode().IsRegular() || !last && !info.IsDir() {
			return nil, nil, fs.ErrNotExist
		}
	}
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	if err != nil {
		_ = f.Close() // it was only read
		return nil, nil, err
	}
	return f, info, nil
}

// viewKind is how a file of a view is announced. What isn't listed is bytes that no page can use as anything else.
func viewKind(name string) string {
	kinds := map[string]string{
		".html": "text/html; charset=utf-8", ".htm": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".mjs": "text/javascript; charset=utf-8",
		".css": "text/css; charset=utf-8", ".json": "application/json; charset=utf-8", ".txt": "text/plain; charset=utf-8", ".md": "text/plain; charset=utf-8", ".csv": "text/csv; charset=utf-8",
		".svg": "image/svg+xml", ".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".webp": "image/webp", ".avif": "image/avif", ".ico": "image/x-icon",
		".woff": "font/woff", ".woff2": "font/woff2", ".ttf": "font/ttf", ".otf": "font/otf",
		".mp3": "audio/mpeg", ".ogg": "audio/ogg", ".wav": "audio/wav", ".mp4": "video/mp4", ".webm": "video/webm", ".wasm": "application/wasm",
	}
	if kind := kinds[strings.ToLower(path.Ext(name))]; kind != "" {
		return kind
	}
	return "application/octet-stream"
}

// own is what lies below a path of the server that a request came to, as policies name it. A host that they can't name stands for all of the server.
func own(r *http.Request, below string) string {
	host, port, _ := strings.Cut(strings.ToLower(r.Host), ":")
	if host == "" || strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-.") != "" || strings.Trim(port, "0123456789") != "" {
		return "'self'"
	}
	return r.Host + below
}

// viewPolicy is the policy of a view: its origin is nobody's, so that it has no storage and no other page lets it in; it loads its own files and asks for
// nothing else, sends no form, and only the console frames it. The frame's address is held by the console's own policy.
func viewPolicy(own string) string {
	return "sandbox allow-scripts; default-src 'none'; script-src " + own + " 'unsafe-inline'; style-src " + own + " 'unsafe-inline'; img-src " + own + " data: blob:; font-src " + own +
		" data:; media-src " + own + " data: blob:; connect-src " + own + "; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
}

// framed tells whether a browser asks for a frame, or a page without an origin for what it loads. So no page of the console, and none of another server, loads
// a plugin's file as a script of its own, and none is shown outside of a frame. Programs say nothing of pages.
func framed(r *http.Request) bool {
	if origins := r.Header.Values("Origin"); len(origins) > 1 || len(origins) == 1 && origins[0] != "null" {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Dest") {
	case "", "iframe":
		return true
	case "script", "style", "image", "font", "audio", "video", "track", "json", "empty":
		return r.Header.Get("Sec-Fetch-Site") == "cross-site"
	default:
		return false
	}
}

// view serves a file of a view.
func (s *Server) view(w http.ResponseWriter, r *http.Request) {
	secret, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, viewsAt), "/")
	h := w.Header()
	h.Set("Content-Security-Policy", viewPolicy("'none'"))
	h.Set("X-Frame-Options", "SAMEORIGIN")
	h.Set("X-DNS-Prefetch-Control", "off")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Origin")
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		h.Set("Allow", "GET, HEAD")
		fail(w, http.StatusMethodNotAllowed, "method", "pages of plugins are read")
		return
	case !framed(r):
		fail(w, http.StatusForbidden, "origin", "pages of plugins are shown by the console's page alone")
		return
	}
	to, ok := s.views.find(secret)
	if !ok {
		noView(w)
		return
	}
	select {
	case s.views.slots <- struct{}{}:
		defer func() { <-s.views.slots }()
	case <-r.Context().Done():
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), viewTime)
	defer cancel()
	err := s.showView(ctx, w, r, to, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		noView(w)
	case err != nil:
		s.o.Log.Debug("a page of a plugin", "plugin", to.id, "error", err)
		fail(w, http.StatusInternalServerError, "internal", "the file can't be read")
	}
}

func noView(w http.ResponseWriter) {
	fail(w, http.StatusNotFound, "view", "there is no such page of a plugin any more; the console's page lists those that there are")
}

// showView answers a file of what a path was handed out for, or an error before anything is answered. It is fs.ErrNotExist where the plugin isn't what it was.
func (s *Server) showView(ctx context.Context, w http.ResponseWriter, r *http.Request, to handed, name string) (err error) {
	if name == "" || strings.HasSuffix(name, "/") {
		name += "index.html"
	}
	if !slices.ContainsFunc(to.folders, func(dir string) bool { return dir == "." || strings.HasPrefix(name, dir+"/") }) {
		return fs.ErrNotExist
	}
	p, done, err := s.o.Open(ctx)
	if err != nil {
		return err
	}
	defer s.letGo(ctx, "close the workspace", done)
	held, err := p.Hold(ctx, to.id)
	if err != nil {
		return err
	}
	if held == nil {
		return fs.ErrNotExist
	}
	defer func() { _ = held.Close() }() // it was only read
	if held.Tree != to.tree {
		return fs.ErrNotExist
	}
	f, info, err := openView(held.Dir, name)
	if err != nil {
		return fs.ErrNotExist // what can't be opened is no page
	}
	defer func() { _ = f.Close() }() // it was only read
	if info.Size() > maxViewFile {
		fail(w, http.StatusForbidden, "size", fmt.Sprintf("the file has more than %d MiB, which is as much as a page of a plugin may load", maxViewFile>>20))
		return nil
	}
	h := w.Header()
	h.Set("Content-Security-Policy", viewPolicy(own(r, viewsAt+to.secret+"/")))
	h.Set("Cross-Origin-Resource-Policy", "cross-origin") // to its own page, whose origin is nobody's
	if r.Header.Get("Origin") == "null" {
		h.Set("Access-Control-Allow-Origin", "null")
	}
	h.Set("Content-Type", viewKind(name))
	h.Set("Content-Length", fmt.Sprint(info.Size()))
	if r.Method == http.MethodHead {
		return nil
	}
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Now().Add(viewTime)) // a writer without one needs none
	_, _ = io.CopyN(w, f, info.Size())                 // who asked may be gone
	_ = out.Flush()
	_ = out.SetWriteDeadline(time.Time{}) // the connection's next answer has a time of its own
	return nil
}
