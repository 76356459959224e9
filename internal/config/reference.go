package config

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// Secrets looks the value of a `secret:` reference up; found is false when the store has no such key. Its errors hold no values.
type Secrets func(ctx context.Context, key string) (value string, found bool, err error)

// reference is a string that stands for a value kept elsewhere.
type reference struct {
	scheme string // "env" or "secret"
	name   string
	def    string
	hasDef bool
}

var variable = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// parseReference reads `env:NAME`, `secret:KEY`, `env:NAME?default`. ok is false for a plain string; err is for a reference that names nothing.
func parseReference(s string) (r reference, ok bool, err error) {
	scheme, rest, found := strings.Cut(s, ":")
	if !found || scheme != "env" && scheme != "secret" {
		return reference{}, false, nil
	}
	r.scheme = scheme
	r.name, r.def, r.hasDef = strings.Cut(rest, "?")
	switch {
	case r.name == "":
		return r, true, errors.New("the reference names nothing")
	case scheme == "env" && !variable().MatchString(r.name):
		return r, true, errors.New("the reference is not the name of an environment variable")
	}
	return r, true, nil
}

func (r reference) String() string { return r.scheme + ":" + diag.Clean(r.name) }

// checkReferences reports references that can never be resolved.
func checkReferences(n doc.Node, path []string, l *diag.List) {
	switch n.Kind() {
	case doc.String:
		r, ok, err := parseReference(n.Text())
		switch {
		case !ok:
		case err != nil:
			l.Add(diag.Problem{Pos: n.Pos(), Where: key(path), Code: "config.reference", Summary: err.Error(), Fix: "write env:NAME or secret:KEY, with ?default at the end if there is one"})
		case r.scheme == "secret" && below(path, "stores", "secret"):
			l.Add(diag.Problem{Pos: n.Pos(), Where: key(path), Code: "config.reference", Summary: "the secret store can't be set up from its own secrets", Fix: "use env:NAME here"})
		}
	case doc.Array:
		for i, e := range n.Items() {
			checkReferences(e, append(path[:len(path):len(path)], fmt.Sprintf("[%d]", i)), l)
		}
	case doc.Object:
		for name, v := range n.Members() {
			checkReferences(v, append(path[:len(path):len(path)], name), l)
		}
	default:
	}
}

// Resolve is n with every reference replaced by its value. All that have none are reported at once.
// secrets may be nil where no secret store is at hand. at names n in problems ("model").
func (c *Config) Resolve(ctx context.Context, n doc.Node, at string, secrets Secrets) (doc.Node, error) {
	var l diag.List
	out := n.MapStrings(func(s doc.Node) (string, bool) {
		r, ok, err := parseReference(s.Text())
		if !ok {
			return "", false
		}
		if err == nil {
			var v string
			if v, err = c.lookup(ctx, r, secrets); err == nil {
				return v, true
			}
		}
		l.Add(diag.Problem{Pos: s.Pos(), Where: at, Code: "config.reference", Summary: err.Error(), Fix: fixFor(r)})
		return "", false
	})
	return out, l.Err()
}

func (c *Config) lookup(ctx context.Context, r reference, secrets Secrets) (string, error) {
	if r.scheme == "env" {
		if v, ok := c.set(r.name); ok {
			return v, nil
		}
		if r.hasDef {
			return r.def, nil
		}
		return "", fmt.Errorf("%s: the variable is not set", r)
	}
	if secrets == nil {
		return "", fmt.Errorf("%s: no secret store is open here", r)
	}
	v, found, err := secrets(ctx, r.name)
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", r, err)
	case found:
		return v, nil
	case r.hasDef:
		return r.def, nil
	default:
		return "", fmt.Errorf("%s: the secret store has no such key", r)
	}
}

func fixFor(r reference) string {
	if r.scheme == "env" {
		return fmt.Sprintf("set %s, or write %s?default", diag.Clean(r.name), r)
	}
	return "put it into the secret store ([stores.secret])"
}

// SecretKey is the key of a reference to a secret; ok is false for every other string.
func SecretKey(s string) (key string, ok bool) {
	r, ok, _ := parseReference(s)
	return r.name, ok && r.scheme == "secret"
}

// IsReference tells a string that stands for a value kept elsewhere, whether it can be resolved or not.
func IsReference(s string) bool {
	_, ok, _ := parseReference(s)
	return ok
}
