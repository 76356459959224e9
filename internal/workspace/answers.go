package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/plugin/pack"
)

// Answers are what the operator says while a pack is set up.
type Answers struct {
	Values  map[string]any    // of inputs, by key, read by their types
	Servers map[string]string // of inputs of MCP servers, by "SERVER:KEY" or "KEY"
	Secrets map[string]string // by key
	// Delegates are entries that may be copied, by name.
	Delegates map[string]Delegate
}

// Delegate is an agent that work may be handed to, with the values of the secrets that its entry refers to.
type Delegate struct {
	Entry   doc.Node          // an object
	Secrets map[string]string // by key of `secret:KEY`
}

// Question is something that a pack asks for.
type Question struct {
	Key      string // as --input takes it; of a secret as --secret does
	Label    string
	Help     string
	Type     string // pack's types
	Required bool
	Secret   bool
	Of       string // what asks: config (a setting), server (an MCP server) or secret (the pack)
	Default  string
	Choices  []string // of a delegate: those that there are
}

// Questions are what a pack asks, in its order, that neither answers nor fallbacks cover.
func Questions(m *pack.Manifest, delegates []string) []Question {
	var out []Question
	for _, in := range m.Inputs {
		q := Question{Of: "config", Key: in.Key, Label: in.Label, Help: in.Help, Type: in.Type, Required: in.Required && in.Type != pack.Boolean}
		if v := in.Value(); v != nil {
			q.Default = fmt.Sprint(v)
		}
		if in.Type == pack.Delegate {
			q.Choices = slices.Sorted(slices.Values(delegates))
		}
		out = append(out, q)
	}
	for _, s := range m.Servers {
		for _, in := range s.Inputs {
			out = append(out, Question{Of: "server", Key: s.Name + ":" + in.Key, Label: in.Label, Type: pack.String, Secret: in.Secret, Default: in.Default})
		}
	}
	for _, s := range m.Secrets {
		out = append(out, Question{Of: "secret", Key: s.Key, Label: s.Label, Help: s.Placeholder, Type: pack.String, Required: s.Required, Secret: true})
	}
	return out
}

// ReadAnswers takes what was typed (key=value) apart: inputs by their types, servers' inputs by theirs. Every key that the pack doesn't know
// and every value that doesn't fit is told at once.
func ReadAnswers(m *pack.Manifest, typed map[string]string) (Answers, diag.List) {
	a := Answers{Values: map[string]any{}, Servers: map[string]string{}, Secrets: map[string]string{}, Delegates: map[string]Delegate{}}
	var l diag.List
	known := []string{}
	for _, in := range m.Inputs {
		known = append(known, in.Key)
	}
	for _, s := range m.Servers {
		for _, in := range s.Inputs {
			known = append(known, s.Name+":"+in.Key, in.Key)
		}
	}
	for _, key := range sorted(typed) {
		i := slices.IndexFunc(m.Inputs, func(in pack.Input) bool { return in.Key == key })
		switch {
		case i >= 0:
			v, err := m.Inputs[i].Read(typed[key])
			if err != nil {
				l.Add(diag.Problem{Where: m.Inputs[i].Label, Code: "workspace.input", Summary: err.Error()})
			} else if v != nil {
				a.Values[key] = v
			}
		case slices.Contains(known, key):
			a.Servers[key] = typed[key]
		default:
			p := diag.Problem{Where: "--input", Code: "workspace.input", Summary: diag.Repr(key) + " is no input of the bundle " + m.ID, Fix: "it asks for nothing"}
			if near := diag.Nearest(key, known); near != "" {
				p.Fix = "did you mean " + near + "?"
			} else if len(known) > 0 {
				p.Fix = "it asks for " + strings.Join(slices.Compact(slices.Sorted(slices.Values(known))), ", ")
			}
			l.Add(p)
		}
	}
	return a, l
}

// Open is a pack's manifest in which nothing is required that has a value already: in the workspace's files, or elsewhere, as set tells (nil: it has
// none). Files that can't be read hold none.
func Open(k *pack.Pack, f Files, set func(path []string) bool) *pack.Manifest {
	m := *k.Manifest
	m.Inputs = slices.Clone(m.Inputs)
	if f.ConfigName == "" {
		f.ConfigName = config.Name
	}
	have, err := parseSettings(f.ConfigName, f.Config, f.Secrets)
	sections := Sections(k)
	for i, in := range m.Inputs {
		sec, known := sections[in.Section()]
		if !known {
			continue
		}
		path := settings(sec.ID, in.Setting()...)
		given := set != nil && set(path)
		if err == nil && !given {
			given, _ = held(have.config.Root(), path)
			hidden, _ := held(have.secrets.Root(), secretOf(path))
			given = given || hidden
		}
		if given {
			m.Inputs[i].Required = false
		}
	}
	return &m
}

// Gate tells every required input without an answer or a default, by its label. A boolean never holds anybody up: unanswered it is off.
// delegates are the names that may be answered.
func Gate(m *pack.Manifest, a Answers, delegates []string) diag.List {
	var l diag.List
	for _, in := range m.Inputs {
		v, answered := a.Values[in.Key]
		if name, ok := v.(string); answered && ok && in.Type == pack.Delegate && !slices.Contains(delegates, name) {
			fix := "there are none; add [delegates." + diag.Clean(name) + "] to the configuration first"
			if len(delegates) > 0 {
				fix = "choose one of " + strings.Join(slices.Sorted(slices.Values(delegates)), ", ")
			}
			l.Add(diag.Problem{Where: in.Label, Code: "workspace.delegate", Summary: diag.Repr(name) + " is no delegate", Fix: fix})
			continue
		}
		if !in.Required || in.Type == pack.Boolean || answered || in.Value() != nil {
			continue
		}
		l.Add(diag.Problem{Where: in.Label, Code: "workspace.required", Summary: "is required and was not answered", Fix: "give it with --input " + in.Key + "=…"})
	}
	return l
}

// hasDelegate tells whether a delegate is in the configuration or may be copied there.
func (d *seeder) hasDelegate(name string) bool {
	_, can := d.Answers.Delegates[name]
	return can || nodeAt(d.config.Root(), []string{"delegates", name}).Exists()
}

// follow does what an answer brings with it: a delegate's entry is copied with its own secrets, a project's folder is registered.
func (d *seeder) follow(in pack.Input, v any) error {
	text, ok := v.(string)
	if !ok {
		return nil
	}
	switch {
	case in.Type == pack.Delegate:
		return d.copyDelegate(text)
	case in.Type == pack.Path && in.Project:
		return d.addProject(text)
	}
	return nil
}

func (d *seeder) copyDelegate(name string) error {
	from, can := d.Answers.Delegates[name]
	if !can || nodeAt(d.config.Root(), []string{"delegates", name}).Exists() {
		return nil
	}
	moved := map[string]string{}
	entry := from.Entry.MapStrings(func(s doc.Node) (string, bool) {
		key, isSecret := config.SecretKey(s.Text())
		value, has := from.Secrets[key]
		if !isSecret || !has {
			return "", false
		}
		flat := notInKeys().ReplaceAllString(key, "-")
		moved[flat] = value
		return "secret:delegates." + name + "." + flat, true
	})
	for _, key := range sorted(moved) {
		if err := d.set(inSecrets, moved[key], "delegates", name, key); err != nil {
			return err
		}
	}
	return d.set(inConfig, entry.Any(), "delegates", name)
}

var notInKeys = lazyregexp.New(`[^A-Za-z0-9_-]+`)

func (d *seeder) addProject(path string) error {
	list := d.config.Root().Get("projects")
	taken := map[string]bool{}
	for _, p := range list.Items() {
		if filepath.Clean(p.Get("path").Text()) == filepath.Clean(path) {
			return nil
		}
		taken[p.Get("name").Text()] = true
	}
	base := filepath.Base(filepath.Clean(path))
	name := base
	for i := 2; taken[name]; i++ {
		name = fmt.Sprintf("%s-%d", base, i)
	}
	entry := map[string]any{"name": name, "path": filepath.Clean(path), "write": true}
	if owner := gitHub(path); owner != "" {
		entry["github"] = owner
	}
	if err := d.appendTo(entry, "projects"); err != nil {
		return err
	}
	d.record(inConfig, entry, []string{"projects", name})
	return nil
}

var (
	originURL = lazyregexp.New(`(?m)^\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)\s*$`)
	gitHubURL = lazyregexp.New(`^(?:https://|ssh://git@|git@)github\.com[:/]([A-Za-z0-9_.-]+/[A-Za-z0-9_.-]+?)(?:\.git)?/?$`)
)

// gitHub is owner/name of the GitHub repository that a folder was cloned from; "" where there is none or it can't be told.
func gitHub(path string) string {
	b, err := os.ReadFile(filepath.Join(path, ".git", "config"))
	if err != nil || len(b) > 1<<20 {
		return ""
	}
	if m := originURL().FindSubmatch(b); m != nil {
		if o := gitHubURL().FindSubmatch(m[1]); o != nil {
			return string(o[1])
		}
	}
	return ""
}
