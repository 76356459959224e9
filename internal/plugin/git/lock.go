package git

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// LockVersion is the format that is written. A file without a version is of format 1, and read.
const LockVersion = 2

// ErrLock is in every error about a lock that can't be used as it is.
var ErrLock = errors.New("plugins.lock can't be used")

// Lock is a plugins.lock: what is installed in a workspace, pinned.
type Lock struct {
	Version  int         // as read; Bytes writes LockVersion
	Plugins  []Row       // by id
	Bundles  []BundleRow // as installed, newest last
	Problems diag.List   // warnings: rows that were left out
}

// Row pins one git plugin.
type Row struct {
	ID           string          `json:"id"`
	SourceURL    string          `json:"source_url"`    // untrusted until ParseSource has read it again
	RequestedRef string          `json:"requested_ref"` // "": the default branch
	ResolvedSHA  string          `json:"resolved_sha"`  // the commit, 40 hex digits
	TreeSHA256   string          `json:"tree_sha256,omitempty"`
	Fetch        string          `json:"fetch,omitempty"` // "git", "archive" or "mirror"
	InstalledAt  string          `json:"installed_at"`
	By           string          `json:"by"`                     // cli, console, ops, sync, autoupdate, bundle:ID
	DeclaredRef  string          `json:"declared_ref,omitempty"` // what the bundle pinned where RequestedRef is newer
	Deps         json.RawMessage `json:"deps,omitempty"`
}

// BundleRow records one plugin bundle.
type BundleRow struct {
	ID              string          `json:"id"`
	Name            string          `json:"name"`
	SourceURL       string          `json:"source_url"`
	RequestedRef    string          `json:"requested_ref"`
	ResolvedSHA     string          `json:"resolved_sha"`
	TreeSHA256      string          `json:"tree_sha256,omitempty"`
	Fetch           string          `json:"fetch,omitempty"`
	Plugins         []string        `json:"plugins"` // ids of the members that were fetched
	Members         []Member        `json:"members,omitempty"`
	Superseded      []string        `json:"superseded,omitempty"`
	MissingBuiltin  []string        `json:"missing_builtin,omitempty"`
	Enabled         []string        `json:"enabled"`
	Config          json.RawMessage `json:"config,omitempty"`
	MCP             json.RawMessage `json:"mcp,omitempty"`
	Secrets         json.RawMessage `json:"secrets,omitempty"` // declarations, never values
	ConfigInputs    json.RawMessage `json:"config_inputs,omitempty"`
	Archetype       json.RawMessage `json:"archetype,omitempty"`
	VerifiedAgainst string          `json:"verified_against,omitempty"`
	Seeded          []Seeded        `json:"seeded,omitempty"`
	InstalledAt     string          `json:"installed_at"`
	By              string          `json:"by"`
}

// Member is a member as its bundle declared it.
type Member struct {
	Declared string `json:"declared"` // its id in the bundle
	ID       string `json:"id"`       // its manifest's
	URL      string `json:"url,omitempty"`
	Ref      string `json:"ref,omitempty"`
	Builtin  bool   `json:"builtin,omitempty"`
}

// Seeded is a value that a bundle wrote.
type Seeded struct {
	File   string `json:"file"` // "config" or "secrets"
	Key    string `json:"key"`  // dotted
	SHA256 string `json:"sha256"`
}

// ReadLock reads a plugins.lock; no bytes are an empty one. Rows that can't be meant are left out and told in Problems. What can't be read
// at all, is of a newer format, or holds an id that leads out of the store is refused with ErrLock: whoever writes it would lose every pin.
func ReadLock(name string, src []byte) (*Lock, error) {
	l := &Lock{Version: LockVersion}
	if len(src) == 0 {
		return l, nil
	}
	t, faults := doc.ParseJSON(name, src)
	if faults.HasErrors() {
		return nil, refuseLock(name, faults[0].String())
	}
	root := t.Root()
	if root.Kind() != doc.Object {
		return nil, refuseLock(name, "it is no JSON object")
	}
	l.Version = 1
	if v := root.Get("version"); v.Exists() {
		n, ok := v.Int()
		switch {
		case !ok || n < 1:
			return nil, refuseLock(name, "its version is no number")
		case n > LockVersion:
			return nil, fmt.Errorf("%s: %w: it has format %d, and this agent-env knows up to %d; upgrade agent-env", name, ErrLock, n, LockVersion)
		}
		l.Version = int(n)
	}
	var err error
	if l.Plugins, err = rows(l, name, root.Get("plugins"), "plugins", func(r Row) string { return r.ID }); err != nil {
		return nil, err
	}
	if l.Bundles, err = rows(l, name, root.Get("bundles"), "bundles", func(r BundleRow) string { return r.ID }); err != nil {
		return nil, err
	}
	l.fold(root)
	l.sort()
	return l, nil
}

func refuseLock(name, why string) error {
	return fmt.Errorf("%s: %w: %s; restore it from version control, or move it away and install again", name, ErrLock, strings.TrimPrefix(why, name+": "))
}

// rows reads a list of rows: the last of an id counts.
func rows[R any](l *Lock, name string, list doc.Node, what string, id func(R) string) ([]R, error) {
	if !list.Exists() {
		return nil, nil
	}
	if list.Kind() != doc.Array {
		return nil, refuseLock(name, what+" is no list")
	}
	var out []R
	at := map[string]int{}
	for i, n := range list.Items() {
		left := func(why string) {
			l.Problems.Add(diag.Problem{
				Pos: n.Pos(), Where: fmt.Sprintf("%s[%d]", what, i), Code: "lock.row", Severity: diag.Warning, Summary: why,
				Fix: "the next change of the lock leaves it out",
			})
		}
		var r R
		if n.Kind() != doc.Object {
			left("it is no row")
			continue
		}
		if err := json.Unmarshal(doc.JSON(n), &r); err != nil {
			left("a value of it has the wrong type")
			continue
		}
		key := id(r)
		if key == "" {
			left("it has no id")
			continue
		}
		if !safeName(key) {
			return nil, refuseLock(name, fmt.Sprintf("%s[%d]: the id %s is none", what, i, diag.Repr(key)))
		}
		if j, twice := at[key]; twice {
			left("the id " + diag.Repr(key) + " is there twice, and the last row counts")
			out[j] = r
			continue
		}
		at[key] = len(out)
		out = append(out, r)
	}
	return out, nil
}

// fold takes the installed packages of an older shape, {"ID": {"deps": […]}}, into the rows.
func (l *Lock) fold(root doc.Node) {
	for id, v := range root.Members() {
		deps := v.Get("deps")
		if id == "version" || id == "plugins" || id == "bundles" || deps.Kind() != doc.Array || !safeName(id) {
			continue
		}
		if r := l.Plugin(id); r == nil {
			l.Plugins = append(l.Plugins, Row{ID: id, Deps: doc.JSON(deps)})
		} else if r.Deps == nil {
			r.Deps = doc.JSON(deps)
		}
	}
}

func (l *Lock) sort() {
	slices.SortStableFunc(l.Plugins, func(a, b Row) int { return cmp.Compare(a.ID, b.ID) })
}

// Plugin is the row of an id, for changing too; nil when there is none.
func (l *Lock) Plugin(id string) *Row {
	if i := slices.IndexFunc(l.Plugins, func(r Row) bool { return r.ID == id }); i >= 0 {
		return &l.Plugins[i]
	}
	return nil
}

// Bundle is the row of a bundle, for changing too; nil when there is none.
func (l *Lock) Bundle(id string) *BundleRow {
	if i := slices.IndexFunc(l.Bundles, func(r BundleRow) bool { return r.ID == id }); i >= 0 {
		return &l.Bundles[i]
	}
	return nil
}

// Put adds a row or takes the place of the one of its id.
func (l *Lock) Put(r Row) {
	if have := l.Plugin(r.ID); have != nil {
		*have = r
		return
	}
	l.Plugins = append(l.Plugins, r)
	l.sort()
}

// PutBundle adds a bundle's row, newest last.
func (l *Lock) PutBundle(r BundleRow) {
	l.DropBundle(r.ID)
	l.Bundles = append(l.Bundles, r)
}

// Drop removes the row of an id, and tells whether there was one.
func (l *Lock) Drop(id string) bool {
	n := len(l.Plugins)
	l.Plugins = slices.DeleteFunc(l.Plugins, func(r Row) bool { return r.ID == id })
	return len(l.Plugins) < n
}

// DropBundle removes a bundle's row, and tells whether there was one.
func (l *Lock) DropBundle(id string) bool {
	n := len(l.Bundles)
	l.Bundles = slices.DeleteFunc(l.Bundles, func(r BundleRow) bool { return r.ID == id })
	return len(l.Bundles) < n
}

// Bytes is the lock as it is written: equal locks make equal bytes.
func (l *Lock) Bytes() ([]byte, error) {
	l.sort()
	out := struct {
		Version int         `json:"version"`
		Plugins []Row       `json:"plugins"`
		Bundles []BundleRow `json:"bundles,omitempty"`
	}{LockVersion, append([]Row{}, l.Plugins...), slices.Clone(l.Bundles)}
	for i, b := range out.Bundles {
		out.Bundles[i].Plugins = append([]string{}, b.Plugins...)
		out.Bundles[i].Enabled = append([]string{}, b.Enabled...)
	}
	var buf bytes.Buffer
	e := json.NewEncoder(&buf)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err := e.Encode(out)
	return buf.Bytes(), err
}

// Clone is a copy that shares nothing that changes.
func (l *Lock) Clone() *Lock {
	return &Lock{l.Version, slices.Clone(l.Plugins), slices.Clone(l.Bundles), slices.Clone(l.Problems)}
}

// Stamp is a time as rows spell it: UTC, microseconds.
func Stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000+00:00") }
