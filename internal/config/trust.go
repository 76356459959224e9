package config

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/ref"
)

// A file that was found in a bundle, or that another user owns, may have come from a stranger. It can't make the program run code, lower
// isolation, or send anything anywhere, until its owner says so for these very bytes: `config trust` records path and digest in the state
// root. A file that AGENT_ENV_CONFIG names is trusted: somebody chose it.

// trustFile is below the state root.
const trustFile = "trust.json"

// trusted is what trust.json holds: files by real path.
type trusted struct {
	FormatVersion int                    `json:"format_version"`
	Files         map[string]trustedFile `json:"files"`
}

type trustedFile struct {
	Digest ref.Digest `json:"digest"`
	At     time.Time  `json:"at"`
}

// ignored is a setting that an untrusted file may not make.
type ignored struct {
	key  string
	path []string
	pos  diag.Pos
}

// harmless are the settings that a stranger may make. Everything else is ignored: what is new is distrusted until somebody thought about it.
func harmless() [][]string {
	return [][]string{
		{"model", "default"},
		{"model", "roles"},
		{"agents", "default_a2a_agent_id"},
		{"sandbox", "attribution"},
		{"artifacts", "type_aliases"},
		{"explorer", "port"},
	}
}

// doubt says why a file is not trusted; "" when it is.
func doubt(f file, home, state string) string {
	if f.source != sourceWalk {
		return ""
	}
	why := ""
	if bundle := bundleAbove(f.root, home); bundle != "" {
		why = "the file lies in the bundle " + diag.Clean(bundle)
	} else if me := os.Geteuid(); f.owner >= 0 && f.owner != 0 && f.owner != me {
		why = "the file belongs to another user"
	}
	if why == "" || state == "" {
		return why
	}
	t, err := readTrust(state)
	if err != nil {
		return why // an unreadable record trusts nobody
	}
	if rec, ok := t.Files[realPath(f.path)]; ok {
		if rec.Digest == ref.DigestOf(f.src) {
			return ""
		}
		return why + " and was changed since it was trusted"
	}
	return why
}

// bundleAbove is the innermost bundle that holds dir; "" when none does. Both the path as given and the real one count. The home folder, the
// folders above it and the root are no bundles: a `tasks` folder there would make every file distrusted.
func bundleAbove(dir, home string) string {
	for _, start := range []string{dir, realPath(dir)} {
		for d := start; ; d = filepath.Dir(d) {
			if !holds(d, home) && isBundle(d) {
				return d
			}
			if d == filepath.Dir(d) {
				break
			}
		}
	}
	return ""
}

// holds tells whether dir is home or above it.
func holds(dir, home string) bool {
	if dir == "/" {
		return true
	}
	for _, h := range []string{home, realPath(home)} {
		if rel, err := filepath.Rel(dir, h); home != "" && err == nil && filepath.IsLocal(rel) {
			return true
		}
	}
	return false
}

func isBundle(dir string) bool {
	for _, name := range []string{"envs", "agents", "artifacts", "skills", "tasks", "evals"} {
		if fi, err := os.Stat(filepath.Join(dir, name)); err == nil && fi.IsDir() {
			return true
		}
	}
	return false
}

func realPath(path string) string {
	if p, err := filepath.EvalSymlinks(path); err == nil {
		return p
	}
	return filepath.Clean(path)
}

// harmful are the settings of a tree that an untrusted file may not make, in order. References are never harmless: they name secrets.
func (c *Config) harmful(root doc.Node) []ignored {
	var out []ignored
	var walk func(n doc.Node, path []string)
	walk = func(n doc.Node, path []string) {
		for name, v := range n.Members() {
			p := append(slices.Clip(path), name)
			switch {
			case slices.ContainsFunc(harmless(), func(h []string) bool { return below(p, h...) }):
				if hasReference(v) {
					out = append(out, ignored{key(p), p, v.KeyPos()})
				}
			case v.Kind() == doc.Object && c.grouping(p):
				walk(v, p)
			default:
				out = append(out, ignored{key(p), p, v.KeyPos()})
			}
		}
	}
	walk(root, nil)
	return out
}

// grouping tells a table that only holds settings, or tables by name, from one that is a setting itself (a class table, a plugin's table).
func (c *Config) grouping(path []string) bool {
	f := c.field(path...)
	return f != nil && !slices.Contains(f.Type.Kinds, doc.String) && (f.Type.Fields != nil || open(&f.Type)) && slices.Contains(f.Type.Kinds, doc.Object)
}

func hasReference(n doc.Node) bool {
	found := false
	n.MapStrings(func(s doc.Node) (string, bool) {
		_, ok, _ := parseReference(s.Text())
		found = found || ok
		return "", false
	})
	return found
}

// without is a tree that lacks what is ignored.
func without(n doc.Node, path []string, hidden []ignored) doc.Node {
	if !slices.ContainsFunc(hidden, func(h ignored) bool { return below(h.path, path...) }) {
		return n
	}
	kept := map[string]any{}
	for name, v := range n.Members() {
		p := append(slices.Clip(path), name)
		if slices.ContainsFunc(hidden, func(h ignored) bool { return slices.Equal(h.path, p) }) {
			continue
		}
		if k := without(v, p, hidden); k.Same(v) || k.Len() > 0 {
			kept[name] = k
		}
	}
	return doc.Build(kept)
}

// Trusted is what Trust did.
type Trusted struct {
	FormatVersion int        `json:"format_version"`
	Path          string     `json:"path"`
	Digest        ref.Digest `json:"digest"`
	Already       bool       `json:"already"`
	// Keys are the settings that count from now on and would not without trust.
	Keys []TrustedKey `json:"keys"`
}

// TrustedKey is one of them; secrets in its value are masked.
type TrustedKey struct {
	Key   string `json:"key"`
	Line  int    `json:"line"`
	Value any    `json:"value"`
}

// Trust records that the file at path, or the .agentenv/config.toml of the folder at path, is trusted as it is now.
func (c *Config) Trust(ctx context.Context, path string) (Trusted, error) {
	if c.state == "" {
		return Trusted{}, errors.New("there is no place for state: set HOME or XDG_STATE_HOME to an absolute path")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return Trusted{}, err
	}
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		path = filepath.Join(path, Name)
	}
	src, _, err := readFile(path)
	if err != nil {
		return Trusted{}, fmt.Errorf("can't trust %s: %s", diag.Clean(path), why(err))
	}
	t, faults := doc.ParseTOML(path, src)
	if t == nil {
		var l diag.List
		for _, p := range faults {
			l.Add(withoutValue(p))
		}
		return Trusted{}, l.Err()
	}
	out := Trusted{FormatVersion: 1, Path: realPath(path), Digest: ref.DigestOf(src), Keys: []TrustedKey{}}
	for _, h := range c.harmful(t.Root()) {
		out.Keys = append(out.Keys, TrustedKey{h.key, h.pos.Line, mask(at(t.Root(), h.path...), h.path)})
	}
	if err := atomicfile.MkdirAll(c.state); err != nil {
		return Trusted{}, fmt.Errorf("make the state folder: %w", err)
	}
	err = atomicfile.Update(ctx, filepath.Join(c.state, trustFile), 0o600, func(old []byte) ([]byte, error) {
		return addTrust(old, out.Path, out.Digest, &out.Already)
	})
	if err != nil {
		return Trusted{}, fmt.Errorf("record the trust: %w", err)
	}
	return out, nil
}

func addTrust(old []byte, path string, d ref.Digest, already *bool) ([]byte, error) {
	t, err := parseTrust(old)
	if err != nil {
		return nil, err
	}
	if t.Files[path].Digest == d {
		*already = true
		return old, nil
	}
	t.Files[path] = trustedFile{Digest: d, At: time.Now().UTC().Truncate(time.Second)}
	maps.DeleteFunc(t.Files, func(p string, _ trustedFile) bool {
		_, err := os.Lstat(p)
		return errors.Is(err, fs.ErrNotExist) // files that are gone are forgotten
	})
	b, err := json.MarshalIndent(t, "", "  ")
	return append(b, '\n'), err
}

func readTrust(state string) (trusted, error) {
	b, err := os.ReadFile(filepath.Join(state, trustFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return trusted{}, err
	}
	return parseTrust(b)
}

func parseTrust(b []byte) (trusted, error) {
	t := trusted{FormatVersion: 1}
	if len(b) > 0 {
		if err := json.Unmarshal(b, &t); err != nil {
			return trusted{}, fmt.Errorf("%s in the state folder is damaged: remove it, and trust your files again", trustFile)
		}
		if t.FormatVersion != 1 {
			return trusted{}, fmt.Errorf("%s in the state folder was written by a newer version of the program", trustFile)
		}
	}
	if t.Files == nil {
		t.Files = map[string]trustedFile{}
	}
	return t, nil
}
