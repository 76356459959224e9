package workspace

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/ref"
)

// Files are the two files that seeding changes, as bytes; nil is an empty one.
type Files struct {
	ConfigName string // its suffix says how it is read; "" is config.toml
	Config     []byte
	Secrets    []byte // TOML
}

// Section is the settings of one installed member.
type Section struct {
	ID      string   // of the plugin
	Secrets []string // first parts of settings that are secret
}

// Seeding is what a pack gives a workspace: settings, servers, secrets, what is on. What the operator has set stays; what the pack gave once and
// the operator took away doesn't come back.
type Seeding struct {
	Pack     *pack.Manifest
	Sections map[string]Section // by the name that the pack uses for it
	Known    []string           // ids that may be turned on: installed ones and those that come with the program
	Answers  Answers
	Earlier  []git.Seeded // what an earlier installation of this pack gave
	// Env is a variable of the environment that the operator grants to packs; nil grants none.
	Env func(name string) (string, bool)
	// Set tells whether a setting has a value from elsewhere than the two files; nil: none has.
	Set func(path []string) bool
	// Check refuses the new files before they are written; nil: it refuses none.
	Check func(Files) error
}

// Seeded is the outcome.
type Seeded struct {
	Files
	Rows     []git.Seeded // what this pack gave, now and earlier, for the lock
	Enabled  []string     // ids that were turned on
	Servers  []string     // MCP servers that were added
	Off      []string     // those of them that lack a required value, and are off
	Written  []string     // keys of settings that were written
	Warnings diag.List
}

// Files of git.Seeded.
const (
	inConfig  = "config"
	inSecrets = "secrets"
)

// seeder is a seeding under way: edits are made at once, so that each sees the ones before.
type seeder struct {
	Seeding
	config, secrets *doc.Tree
	out             Seeded
}

// Apply makes the new files. Nothing is written. An error is a file that can't be read or edited; what could not be seeded is a warning.
func (s Seeding) Apply(f Files) (*Seeded, error) {
	if f.ConfigName == "" {
		f.ConfigName = config.Name
	}
	have, err := parseSettings(f.ConfigName, f.Config, f.Secrets)
	if err != nil {
		return nil, err
	}
	d := &seeder{Seeding: s, config: have.config, secrets: have.secrets, out: Seeded{Rows: slices.Clone(s.Earlier)}}
	for _, step := range []func() error{d.answers, d.defaults, d.overlay, d.servers, d.bundleSecrets, d.enable} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	d.out.Files = Files{f.ConfigName, d.config.Src, d.secrets.Src}
	return &d.out, nil
}

func (d *seeder) warn(pos diag.Pos, where, why, fix string) {
	d.out.Warnings.Add(diag.Problem{Pos: pos, Where: where, Code: "workspace.seed", Severity: diag.Warning, Summary: why, Fix: fix})
}

// set writes one value and records who gave it.
func (d *seeder) set(file string, v any, path ...string) error {
	t := &d.config
	if file == inSecrets {
		t = &d.secrets
	}
	if err := edit(t, doc.Set(v, anyPath(path)...)); err != nil {
		return err
	}
	d.record(file, v, path)
	return nil
}

func edit(t **doc.Tree, e doc.Edit) error {
	src, err := doc.Splice(*t, e)
	if err != nil {
		return err
	}
	next, l := doc.Parse((*t).Name, src)
	if l.HasErrors() {
		return l.Err()
	}
	*t = next
	return nil
}

func (d *seeder) record(file string, v any, path []string) {
	key := dotted(path)
	row := git.Seeded{File: file, Key: key, SHA256: ref.DigestOf(doc.Canonical(doc.Build(v))).Hex()}
	i := slices.IndexFunc(d.out.Rows, func(r git.Seeded) bool { return r.File == file && r.Key == key })
	if i < 0 {
		d.out.Rows = append(d.out.Rows, row)
	} else {
		d.out.Rows[i] = row
	}
	if file == inConfig && len(path) > 3 && path[0] == "git_plugins" {
		d.out.Written = append(d.out.Written, dotted(path[2:]))
	}
}

// given tells that the pack gave this before: when it is gone, the operator took it away.
func (d *seeder) given(file string, path []string) bool {
	key := dotted(path)
	return slices.ContainsFunc(d.Earlier, func(r git.Seeded) bool { return r.File == file && r.Key == key })
}

// settings is the place of a section's settings.
func settings(id string, rest ...string) []string {
	return append([]string{"git_plugins", "config", id}, rest...)
}

// held tells whether a place has a value, and what stands in the way where it can't have one: a scalar where a table would have to be.
func held(root doc.Node, path []string) (has bool, inTheWay doc.Node) {
	n := root
	for i, p := range path {
		v := n.Get(p)
		switch {
		case !v.Exists():
			return false, doc.Node{}
		case i < len(path)-1 && v.Kind() != doc.Object:
			return false, v
		}
		n = v
	}
	return true, doc.Node{}
}

// free tells whether a setting may be seeded: nobody set it, in the file, as a secret or elsewhere, and nothing stands in its way. It warns of what does.
func (d *seeder) free(path []string) bool {
	has, scalar := held(d.config.Root(), path)
	if scalar.Exists() {
		d.warn(scalar.Pos(), dotted(path), fmt.Sprintf("can't be set: a value of the configuration stands where its table would have to be (%s)", scalar.Kind()),
			"nothing is changed there; make it a table if you want the bundle's setting")
		return false
	}
	if has || d.Set != nil && d.Set(path) {
		return false
	}
	secret, scalar := held(d.secrets.Root(), secretOf(path))
	return !secret && !scalar.Exists() && !d.given(inConfig, path)
}

// secretOf is where secrets.toml holds a setting that is secret.
func secretOf(path []string) []string { return append([]string{"plugins"}, path[2:]...) }

// answers are the operator's words: they count more than what is there.
func (d *seeder) answers() error {
	for _, in := range d.Pack.Inputs {
		v, ok := d.Answers.Values[in.Key]
		if !ok {
			continue
		}
		if err := d.input(in, v); err != nil {
			return err
		}
		if err := d.follow(in, v); err != nil {
			return err
		}
	}
	return nil
}

// defaults fill settings that nobody answered and nobody set.
func (d *seeder) defaults() error {
	for _, in := range d.Pack.Inputs {
		v := in.Value()
		sec, known := d.Sections[in.Section()]
		if _, answered := d.Answers.Values[in.Key]; answered || v == nil || !known || !d.free(settings(sec.ID, in.Setting()...)) || !d.fit(in.Pos, in.Key, v) {
			continue
		}
		if in.Type == pack.Delegate && !d.hasDelegate(v.(string)) { // Read answers texts for all but booleans
			d.warn(in.Pos, in.Key, diag.Repr(v.(string))+" is no delegate of this workspace and is not set", "add [delegates."+v.(string)+"] to the configuration")
			continue
		}
		if err := d.input(in, v); err != nil {
			return err
		}
		if err := d.follow(in, v); err != nil {
			return err
		}
	}
	return nil
}

// input writes the value of an input.
func (d *seeder) input(in pack.Input, v any) error {
	sec, ok := d.Sections[in.Section()]
	if !ok {
		d.warn(in.Pos, in.Key, diag.Repr(in.Section())+" is no member of the bundle, and is not set", "")
		return nil
	}
	path := settings(sec.ID, in.Setting()...)
	if slices.Contains(sec.Secrets, in.Setting()[0]) {
		return d.set(inSecrets, v, secretOf(path)...)
	}
	if _, scalar := held(d.config.Root(), path); scalar.Exists() {
		d.free(path) // tells
		return nil
	}
	return d.set(inConfig, v, path...)
}

// overlay fills in what the pack's config says, leaf by leaf.
func (d *seeder) overlay() error {
	for name, values := range d.Pack.Config.Members() {
		sec, ok := d.Sections[name]
		if !ok {
			d.warn(values.Pos(), "config."+diag.Clean(name), "is no section of a member of the bundle, and is not set", "")
			continue
		}
		if has, scalar := held(d.config.Root(), settings(sec.ID)); scalar.Exists() || has && nodeAt(d.config.Root(), settings(sec.ID)).Kind() != doc.Object {
			d.free(settings(sec.ID, "*")) // tells
			continue
		}
		if err := d.leaves(sec, values, settings(sec.ID)); err != nil {
			return err
		}
	}
	return nil
}

func (d *seeder) leaves(sec Section, n doc.Node, path []string) error {
	for name, v := range n.Members() {
		at := append(slices.Clip(path), name)
		if v.Kind() == doc.Object && v.Len() > 0 {
			if has, scalar := held(d.config.Root(), at); scalar.Exists() || has && nodeAt(d.config.Root(), at).Kind() != doc.Object {
				continue // the operator's value, whatever it is
			}
			if err := d.leaves(sec, v, at); err != nil {
				return err
			}
			continue
		}
		switch {
		case !d.free(at):
		case slices.Contains(sec.Secrets, at[3]):
			d.warn(v.Pos(), dotted(at[2:]), "is a secret of the plugin, which no bundle may set", "")
		case v.IsNull():
			d.warn(v.Pos(), dotted(at[2:]), "is null, which is not set", "")
		case d.fit(v.Pos(), dotted(at[2:]), v.Any()):
			if err := d.set(inConfig, v.Any(), at...); err != nil {
				return err
			}
		}
	}
	return nil
}

// fit refuses values that would fetch something of the operator's: references to secrets and to the environment are the operator's alone.
func (d *seeder) fit(pos diag.Pos, where string, v any) bool {
	if !refers(doc.Build(v)) {
		return true
	}
	d.warn(pos, where, "refers to a secret or a variable of the environment, which no bundle may do, and is not set", "set it yourself if you want it")
	return false
}

func refers(n doc.Node) bool {
	found := false
	if s, ok := n.Str(); ok {
		return config.IsReference(s)
	}
	n.MapStrings(func(s doc.Node) (string, bool) {
		found = found || config.IsReference(s.Text())
		return "", false
	})
	return found
}

// bundleSecrets writes the secrets that were handed in, of those that the pack declares.
func (d *seeder) bundleSecrets() error {
	for _, s := range d.Pack.Secrets {
		v := strings.TrimSpace(d.Answers.Secrets[s.Key])
		path := []string{"bundles", d.Pack.ID, s.Key}
		if v == "" {
			if has, _ := held(d.secrets.Root(), path); s.Required && !has {
				d.warn(s.Pos, "secrets."+s.Key, "was not given", fmt.Sprintf("write it to .agentenv/secrets.toml: [bundles.%s] %s", d.Pack.ID, s.Key))
			}
			continue
		}
		if err := d.set(inSecrets, v, path...); err != nil {
			return err
		}
	}
	return nil
}

// enable turns on what the pack names, except what the operator turned off.
func (d *seeder) enable() error {
	root := d.config.Root().Get("git_plugins")
	on, off := texts(root.Get("enabled")), texts(root.Get("disabled"))
	for _, id := range d.Pack.On() {
		switch {
		case slices.Contains(on, id):
			continue
		case slices.Contains(off, id):
			d.warn(diag.Pos{}, "enabled", diag.Repr(id)+" is in disabled of [git_plugins] and stays off", "agent-env plugin enable "+id+" turns it on")
			continue
		case !slices.Contains(d.Known, id):
			d.warn(diag.Pos{}, "enabled", diag.Repr(id)+" is not installed and is not turned on", "")
			continue
		}
		if d.given(inConfig, []string{"git_plugins", "enabled", id}) {
			continue // it was taken out of the list since
		}
		on = append(on, id)
		d.out.Enabled = append(d.out.Enabled, id)
	}
	if len(d.out.Enabled) == 0 {
		return nil
	}
	if err := edit(&d.config, doc.Set(on, "git_plugins", "enabled")); err != nil {
		return err
	}
	for _, id := range d.out.Enabled {
		d.record(inConfig, true, []string{"git_plugins", "enabled", id})
	}
	return nil
}

func texts(n doc.Node) []string {
	out := []string{}
	for _, v := range n.Items() {
		if s, ok := v.Str(); ok {
			out = append(out, s)
		}
	}
	return out
}

func nodeAt(n doc.Node, path []string) doc.Node {
	for _, p := range path {
		n = n.Get(p)
	}
	return n
}

func anyPath(path []string) []any {
	out := make([]any, len(path))
	for i, p := range path {
		out[i] = p
	}
	return out
}

var bareKey = lazyregexp.New(`^[A-Za-z0-9_-]+$`)

// dotted is a path as TOML spells it.
func dotted(path []string) string {
	parts := slices.Clone(path)
	for i, p := range parts {
		if !bareKey().MatchString(p) {
			parts[i] = strconv.Quote(p)
		}
	}
	return strings.Join(parts, ".")
}

// sorted are the keys of a map, in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
