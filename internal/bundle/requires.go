package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/task"
	"agentenv.internal/agentenv/sdk/plugin"
)

// ManifestName is the file at a bundle's root that says what the bundle requires.
const ManifestName = "bundle.toml"

// CodeUnmet is the code of a requirement that what is installed doesn't meet.
const CodeUnmet = "bundle.unmet"

// Groups of types that plugins add, by the names of their entry points.
const (
	StepTypes     = plugin.GroupSteps
	EnvTypes      = plugin.GroupEnvs
	ArtifactTypes = plugin.GroupArtifacts
)

// Plugins is what is installed beside the program, as far as bundles ask. Nothing is asked for a bundle that requires nothing and uses the program's own
// types alone.
type Plugins interface {
	// Installed is the set that requirements are held against. The program itself is in it, by the names that it counts as.
	Installed(ctx context.Context) (requirement.Installed, error)
	// Environment is what markers are evaluated for: the interpreter that runs plugins, or the one that would. note says what was taken for it where
	// there is none; else it is "".
	Environment(ctx context.Context) (e requirement.Environment, note string, err error)
	// Origin tells where a type comes from that the program lacks; false for one that nothing installed brings. The origin of a type that configuration
	// registers names the distribution that ships its class, if one does.
	Origin(ctx context.Context, group, name string) (catalog.Origin, bool)
}

// require reads one requirement of bundle.toml.
func (p *parser) require(label string, n doc.Node, text string) {
	r, err := requirement.Parse(text)
	if err == nil {
		p.b.Requires = append(p.b.Requires, text)
		p.b.requirements = append(p.b.requirements, r)
		return
	}
	fix := "name a package and its versions, such as agentenv-acme>=1.2"
	if _, ok := errors.AsType[*requirement.UnprintableError](err); ok {
		fix = "write it anew, without what can't be seen"
	}
	p.l.Add(diag.Problem{
		Pos: diag.Pos{File: label, Line: line(n)}, Where: "requires", Code: "bundle.requires", Prefixed: true, Summary: repr(requirement.Shown(text)) + " " + err.Error(), Fix: fix,
	})
}

// Unmet is what of a bundle's requirements isn't met here.
type Unmet struct {
	List []requirement.Unmet // in the order of bundle.toml
	Note string              // of the environment that markers were evaluated for
}

// Unmet holds the bundle's requirements against what is installed.
func (b *Bundle) Unmet(ctx context.Context) (Unmet, error) {
	if len(b.requirements) == 0 || b.options.Plugins == nil {
		return Unmet{}, nil
	}
	var u Unmet
	var e requirement.Environment
	in, err := b.options.Plugins.Installed(ctx)
	if err == nil && slices.ContainsFunc(b.requirements, func(r *requirement.Requirement) bool { return r.Marker != nil || len(r.Extras) > 0 }) {
		e, u.Note, err = b.options.Plugins.Environment(ctx)
	}
	if err != nil {
		return u, fmt.Errorf("look for what %s requires: %w", ManifestName, err)
	}
	u.List = requirement.Check(b.requirements, e, in)
	return u, nil
}

// Install are the requirements that plugin add can meet, as declared, each once.
func (u Unmet) Install() []string {
	var out []string
	have := map[string]bool{}
	for _, m := range u.List {
		if text := strings.TrimSpace(m.Requirement.Text); !m.Core && !have[text] {
			have[text] = true
			out = append(out, text)
		}
	}
	return out
}

// Problems tells every requirement that isn't met, in a line each; the last of those that can be installed names the one command for all of them.
func (u Unmet) Problems() diag.List {
	var texts, own []string
	for _, m := range u.List {
		if m.Core {
			own = append(own, coreText(m))
		} else {
			texts = append(texts, unmetText(m))
		}
	}
	slices.Sort(texts)
	texts = slices.Compact(texts)
	if install := u.Install(); len(install) > 0 {
		it := "it"
		if len(install) > 1 {
			it = "them"
		}
		texts[len(texts)-1] += "; install " + it + " with: " + AddCommand(install)
	}
	var l diag.List
	for _, text := range slices.Concat(texts, own) {
		l.Add(diag.Problem{Pos: diag.Pos{File: ManifestName}, Code: CodeUnmet, Summary: text, Exact: true})
	}
	if u.Note != "" && len(l) > 0 {
		l.Add(diag.Problem{Pos: diag.Pos{File: ManifestName}, Code: "bundle.markers", Summary: u.Note, Severity: diag.Hint, Exact: true})
	}
	return l
}

// AddCommand is the command that installs requirements, as a shell reads it.
func AddCommand(requirements []string) string {
	out := "agent-env plugin add"
	for _, r := range requirements {
		out += " " + diag.ShellWord(r)
	}
	return out
}

func unmetText(m requirement.Unmet) string {
	out := "requires " + repr(m.Requirement.Text)
	if m.For != nil {
		out += ", whose extra needs " + repr(neededText(m.For))
	}
	if m.Installed == "" {
		return out + ", which isn't installed"
	}
	return out + ", and " + diag.Clean(m.Name) + " " + diag.Clean(m.Installed) + " is installed"
}

func coreText(m requirement.Unmet) string {
	if m.Installed == "" { // a name that the program goes by and that is no package
		return unmetText(m) + " and can't be; require agentenv-framework in place of it"
	}
	return unmetText(m) + "; upgrade agent-env with the installer that installed it"
}

// neededText is what an extra needs, without the marker that ties it to the extra.
func neededText(r *requirement.Requirement) string {
	text, _, _ := strings.Cut(r.Text, ";")
	return strings.TrimSpace(text)
}

// repr is a text as Python shows it: between quotes, and what can't be printed escaped.
func repr(text string) string {
	quote := '\''
	if strings.Contains(text, "'") && !strings.Contains(text, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteRune(quote)
	for _, r := range text {
		switch at := strings.IndexRune("\t\n\r", r); {
		case at >= 0:
			b.WriteString(`\` + "tnr"[at:at+1])
		case r == quote, r == '\\':
			b.WriteString(`\` + string(r))
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteRune(quote)
	return b.String()
}

// HeldBack says whether a problem is one that an unmet requirement may explain: a type that nobody knows.
func HeldBack(p diag.Problem) bool {
	return p.Code == task.CodeType || p.Code == codeEnvType || p.Code == codeArtifactType
}

// Codes of types that nobody knows.
const (
	codeEnvType      = "env.type"
	codeArtifactType = "artifact.type"
)

// Use is a type that a bundle uses and that the program has from elsewhere.
type Use struct {
	Group, Type string
	Origin      catalog.Origin
	Where       string // the label of the first entry that uses it
}

// String is "step type 'acme_check'".
func (u Use) String() string {
	return map[string]string{StepTypes: "step type ", EnvTypes: "env type ", ArtifactTypes: "artifact type "}[u.Group] + diag.Repr(u.Type)
}

// Origin tells where a type comes from; false for the program's own and for one that nobody has.
func (o Options) Origin(ctx context.Context, group, name string) (catalog.Origin, bool) {
	switch group {
	case EnvTypes:
		if slices.Contains(env.Types(), name) {
			return catalog.Origin{}, false
		}
	case ArtifactTypes:
		if artifact.Known(name) {
			return catalog.Origin{}, false
		}
	case StepTypes: // the class that serves the name counts, where configuration replaces a plugin's
		if k, ok := o.Kinds.Get(name); ok {
			return k.Origin, k.Origin.Kind != catalog.Builtin
		}
	}
	if o.Plugins == nil {
		return catalog.Origin{}, false
	}
	return o.Plugins.Origin(ctx, group, name)
}

// Uses are the types that the bundle's own entries use and that the program has from elsewhere, each once, by group and name. The bundle is resolved.
func (b *Bundle) Uses(ctx context.Context) []Use {
	type key struct{ group, name string }
	seen := map[key]bool{}
	var out []Use
	use := func(e *Entry, group, name string) {
		k := key{group, name}
		if seen[k] {
			return
		}
		seen[k] = true
		if from, ok := b.options.Origin(ctx, group, name); ok {
			out = append(out, Use{Group: group, Type: name, Origin: from, Where: e.Label})
		}
	}
	for _, e := range b.Entries {
		switch {
		case e.Group == Envs:
			use(e, EnvTypes, e.Type)
		case e.Group == Artifacts:
			use(e, ArtifactTypes, e.Type)
		case e.task != nil:
			for i := range e.task.Steps {
				use(e, StepTypes, e.task.Steps[i].Type)
			}
		}
	}
	slices.SortFunc(out, func(a, b Use) int { return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Type, b.Type)) })
	return out
}

// Declaration is what bundle.toml would say of the types that a bundle uses.
type Declaration struct {
	Exists   bool     // there is a bundle.toml
	Missing  []string // the requirements that it lacks, by canonical name
	Requires []string // all that it would hold
	Why      string   // what the missing ones are for, in words: "step type 'acme_check' of agentenv-acme 1.2.0"
	Hints    diag.List
}

// Declare makes a declaration of uses, beside what is declared.
func (o Options) Declare(ctx context.Context, uses []Use, exists bool, declared []string) (Declaration, error) {
	d := Declaration{Exists: exists, Requires: slices.Clone(declared)}
	have := map[string]bool{}
	for _, text := range declared {
		if r, err := requirement.Parse(text); err == nil {
			have[r.Canonical()] = true
		}
	}
	missing := map[string]string{}
	var why []string
	for _, u := range uses {
		if u.Origin.Kind != catalog.Distribution {
			d.Hints.Add(foreign(u))
			continue
		}
		name := requirement.Canonical(u.Origin.Package)
		if have[name] || requirement.IsCore(name) {
			continue
		}
		text, version, err := o.bound(ctx, u.Origin)
		if err != nil {
			return d, err
		}
		missing[name] = text
		why = append(why, u.String()+" of "+diag.Clean(strings.TrimSpace(u.Origin.Package+" "+version)))
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		d.Missing = append(d.Missing, missing[name])
	}
	d.Requires = append(d.Requires, d.Missing...)
	d.Why = strings.Join(why, ", ")
	return d, nil
}

// Declaration is the bundle's. The bundle is resolved.
func (b *Bundle) Declaration(ctx context.Context) (Declaration, error) {
	return b.options.Declare(ctx, b.Uses(ctx), b.HasManifest, b.Requires)
}

// bound is the requirement of what is installed of a distribution, or a newer version of it, with its name as it spells itself.
func (o Options) bound(ctx context.Context, from catalog.Origin) (text, version string, err error) {
	name, version := from.Package, from.Version
	if o.Plugins != nil {
		in, err := o.Plugins.Installed(ctx)
		if err != nil {
			return "", "", fmt.Errorf("look for %s: %w", diag.Clean(from.Package), err)
		}
		if d, ok := in.Find(requirement.Canonical(name)); ok {
			name, version = d.Name, d.Version
		}
	}
	v, err := requirement.ParseVersion(version)
	if err != nil {
		return name, version, nil //nolint:nilerr // a version that can't be compared is no bound
	}
	return name + ">=" + v.Public(), version, nil
}

// foreign is the hint about a type that no requirement can stand for.
func foreign(u Use) diag.Problem {
	p := diag.Problem{Pos: diag.Pos{File: u.Where}, Code: "bundle.foreign", Severity: diag.Hint, Prefixed: true}
	from := diag.Clean(strings.TrimSpace(u.Origin.Package + " " + u.Origin.Version))
	switch {
	case u.Origin.Kind == catalog.GitPlugin:
		p.Summary = "uses the " + u.String() + " of the git plugin " + from
		p.Fix = "whoever runs it installs that with: agent-env plugin install " + diag.ShellWord(diag.Clean(cmp.Or(u.Origin.Where, "URL")))
	case from != "":
		p.Summary = "uses the " + u.String() + ", which this machine's configuration registers, from " + from
		p.Fix = "whoever runs it needs that package and its configuration"
	default:
		p.Summary = "uses the " + u.String() + ", which this machine's configuration registers"
		p.Fix = "whoever runs it needs that configuration"
	}
	return p
}

// Line is the declaration in one line of TOML.
func (d Declaration) Line() string {
	return "requires = [" + strings.Join(tomlStrings(d.Requires), ", ") + "]"
}

// Text is a bundle.toml that declares it: one requirement on one line, several one per line.
func (d Declaration) Text() string {
	if len(d.Requires) < 2 {
		return d.Line() + "\n"
	}
	return "requires = [\n  " + strings.Join(tomlStrings(d.Requires), ",\n  ") + ",\n]\n"
}

func tomlStrings(texts []string) []string {
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(t) + `"`
	}
	return out
}
