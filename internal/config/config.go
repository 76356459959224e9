// Package config finds and reads the configuration, and says where every setting came from.
//
// One file is read per process: the one that AGENT_ENV_CONFIG names, else the nearest .agentenv/config.toml upward. A setting is the
// environment's if a variable sets it, else the file's, else the default. Strings may be references, `env:NAME` and `secret:KEY`, each with
// `?default` at the end; they are resolved when a section is asked for, never before, and shown as written.
//
// A file that a stranger may have written (see Trust) keeps only its harmless keys until its owner trusts it. No message and no report of
// this package holds a secret. The package opens no store: who asks for a section hands in what looks secrets up.
package config

import (
	"fmt"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// Options are what Load looks at.
type Options struct {
	Dir string                           // the working folder, absolute
	Env func(name string) (string, bool) // as os.LookupEnv
	// Passwd is the home folder that the system's user list gives this user, "" for none. nil asks the system.
	Passwd func() string
}

// Config is the configuration of one process. It doesn't change after Load.
type Config struct {
	env    func(string) (string, bool)
	home   string
	state  string
	file   file
	tree   doc.Node // the file's settings that count; absent when there is no file or it can't be read
	kept   doc.Node // tree without what an untrusted file may not say
	hidden []ignored
	schema *doc.Schema
	list   diag.List
}

// Load reads the configuration. The Config works whatever the list holds: settings that can't be read are the defaults.
// A command that acts on it refuses when the list has errors; one that reports shows them.
func Load(o Options) (*Config, diag.List) {
	c := &Config{env: o.Env}
	var problems diag.List
	c.home = home(o)
	c.state = stateRoot(o.Env, c.home, &problems)
	c.schema = newSchema(c.state)
	c.file = find(o, &problems)
	if c.file.src != nil {
		c.read(&problems)
	}
	c.checkEnv(&problems)
	c.list = problems
	return c, problems
}

// read parses and checks the file.
func (c *Config) read(l *diag.List) {
	t := c.parse(c.file.src, l)
	if t == nil {
		return
	}
	c.tree = t.Root()
	c.kept = c.tree
	c.file.doubt = doubt(c.file, c.home, c.state)
	if c.file.doubt != "" {
		c.hidden = c.harmful(c.tree)
		c.kept = without(c.tree, nil, c.hidden)
		for _, h := range c.hidden {
			l.Add(diag.Problem{
				Pos: h.pos, Code: "config.untrusted", Severity: diag.Warning,
				Summary: fmt.Sprintf("%s is ignored: %s", h.key, c.file.doubt),
				Fix:     "read the file, then trust it with agent-env config trust " + shellWord(c.file.path),
			})
		}
	}
	check(c.schema, c.kept, l)
}

// parse reads src as the file; nil for what can't be read.
func (c *Config) parse(src []byte, l *diag.List) *doc.Tree {
	t, faults := doc.ParseTOML(c.file.path, src)
	for _, p := range faults {
		l.Add(withoutValue(p))
	}
	return t
}

// withoutValue keeps the values that the reader shows (a number that doesn't fit, a date that is none) out of a problem: they may be secrets.
func withoutValue(p diag.Problem) diag.Problem {
	for _, tail := range []string{" doesn't fit", " is not a finite", " is no date", " is too", " has more"} {
		if i := strings.Index(p.Summary, tail); i > 0 && (p.Code == "toml.number" || p.Code == "toml.date") {
			p.Summary = "the value" + p.Summary[i:]
		}
	}
	return p
}

// Path is the configuration file; "" when there is none.
func (c *Config) Path() string { return c.file.path }

// Has tells whether the configuration that counts has a value at a path of names; a default is none.
func (c *Config) Has(path ...string) bool { return c.value(path...).Exists() }

// Check is what would be wrong if the file held src. Whether the file is trusted doesn't count.
func (c *Config) Check(src []byte) diag.List {
	var l diag.List
	if t := c.parse(src, &l); t != nil {
		check(c.schema, t.Root(), &l)
	}
	return l
}

// Root is the folder that relative paths of the file count from: the one that holds .agentenv. "" without a file.
func (c *Config) Root() string { return c.file.root }

// Home is the user's home folder; "" when it can't be told.
func (c *Config) Home() string { return c.home }

// StateRoot is the folder that holds all state of the program; "" when it can't be told, which Load reports as an error.
func (c *Config) StateRoot() string { return c.state }

// Abs is a path of the file as an absolute one: `~/` is the home folder, relative paths count from Root.
func (c *Config) Abs(path string) string {
	switch {
	case path == "~":
		return c.home
	case strings.HasPrefix(path, "~/"):
		return filepath.Join(c.home, path[2:])
	case filepath.IsAbs(path):
		return filepath.Clean(path)
	default:
		return filepath.Join(c.file.root, path)
	}
}

// at is the value at a path of names.
func at(n doc.Node, path ...string) doc.Node {
	for _, name := range path {
		n = n.Get(name)
	}
	return n
}

// set is the value of an environment variable; an empty one counts as not set.
func (c *Config) set(name string) (string, bool) {
	v, ok := c.env(name)
	return v, ok && v != ""
}

// shellWord is a path as it can be pasted into a shell.
func shellWord(path string) string {
	plain := func(r rune) bool {
		return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || strings.ContainsRune("/._-+,@%:", r)
	}
	if path != "" && !strings.ContainsFunc(path, func(r rune) bool { return !plain(r) }) {
		return path
	}
	return "'" + strings.ReplaceAll(diag.Clean(path), "'", `'\''`) + "'"
}
