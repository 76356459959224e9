package dist

import (
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/sdk/plugin"
)

// Groups of entry points that count here.
const (
	GroupEnvs      = plugin.GroupEnvs
	GroupSteps     = plugin.GroupSteps
	GroupArtifacts = plugin.GroupArtifacts
	GroupSandboxes = plugin.GroupProviders
	GroupStates    = "agent_env.state_providers"
	GroupProviders = "agent_env.env_providers"
	GroupExplorer  = "agent_env.explorer_plugins"
	GroupCommands  = plugin.GroupCommands
	GroupOptions   = "agent_env.cli_root_options"
	GroupBundles   = plugin.GroupBundles
	// GroupExec names an executable of the distribution: what it serves stands in agentenv_plugin.json.
	GroupExec = plugin.GroupExec
)

// groups are in the order of reports, with what one thing of each is called.
var groups = []struct{ name, one string }{
	{GroupEnvs, "env"},
	{GroupSteps, "task step"},
	{GroupArtifacts, "artifact type"},
	{GroupSandboxes, "sandbox provider"},
	{GroupStates, "state provider"},
	{GroupProviders, "env provider"},
	{GroupExplorer, "explorer plugin"},
	{GroupCommands, "CLI command"},
	{GroupOptions, "root option"},
	{GroupBundles, "bundle"},
	{GroupExec, "executable"},
}

// GroupWord is what one contribution of a group is called: "task step". Other groups are none of ours: "".
func GroupWord(group string) string {
	for _, g := range groups {
		if g.name == group {
			return g.one
		}
	}
	return ""
}

// Claim is one thing that one distribution offers: an entry point, or a type that its executable serves.
type Claim struct {
	Package string // as the distribution spells itself
	Version string
	EntryPoint
	Exec bool   // Value is an executable of the distribution, not module:Attribute
	Dir  string // the distribution's metadata; a git plugin's files
	Git  string // the address of the git plugin that offers it; "" for a distribution
}

// Status is what became of a contribution.
type Status string

// The statuses. None is ever removed or used for something else.
const (
	Active   Status = "active"
	Replaced Status = "replaced"
	Failed   Status = "failed"
	Skipped  Status = "skipped"
	Conflict Status = "conflict"
	Blocked  Status = "blocked"
	Unloaded Status = "unloaded"
)

// The codes of contributions and of what hinders a whole group. None is ever removed or used for something else.
const (
	CodeLoadFailed    = "load-failed"
	CodeInvalid       = "invalid-plugin"
	CodeIncompatible  = "incompatible-core"
	CodeBuiltinName   = "builtin-name"
	CodeNameConflict  = "name-conflict"
	CodeReplaced      = "replaced-by-config"
	CodeAttached      = "already-attached"
	CodeNotLoaded     = "not-loaded"
	CodeUnknownStatus = "status-unknown"
	CodeConfigMissing = "config-not-found"
	CodeConfigBad     = "config-unreadable"
	CodeConfigInvalid = "config-invalid"
	CodeGroupFailed   = "group-build-failed"
	CodeQualified     = "qualified-only"
	CodeAlias         = "alias-refused"
	CodeManifest      = "manifest-unreadable" // agentenv_plugin.json
)

// Contribution is a claim and what became of it.
type Contribution struct {
	Claim
	Status     Status // "" until it is known: nothing is wrong so far
	Code       string
	Reason     string
	ReplacedBy *Replacement
	Conflicts  []Claim // the other claims on the name

	option *Option // of GroupOptions, once it is loaded
}

// Option is the option of a contribution to GroupOptions that was loaded; nil of any other.
func (c Contribution) Option() *Option { return c.option }

// Usable tells that nothing is known against the contribution.
func (c Contribution) Usable() bool { return c.Status == "" || c.Status == Active }

// Replacement is the configuration that takes a contribution's name.
type Replacement struct{ File, Table, Impl string }

// Names tells which names of a group the program itself serves.
type Names func(group, name string) bool

// Resolve says which claims of the distributions stand, before anything of them is loaded: built-ins keep their names, a distribution that
// needs another version of the program claims nothing, and a name with several claims is nobody's. The answer is sorted by package, group
// and name; env holds the markers of requirements.
func Resolve(all []Distribution, builtin Names, env requirement.Environment) []Contribution {
	var out []Contribution
	claims := map[[2]string][]int{} // usable claims by group and name
	for _, d := range all {
		if d.Own {
			continue
		}
		incompatible := incompatibility(d, all, env)
		for _, c := range d.claims() {
			n := Contribution{Claim: c}
			switch {
			case incompatible != "":
				n.Status, n.Code, n.Reason = Failed, CodeIncompatible, incompatible
			case c.Group == GroupOptions: // its name is a label; the flags come with the object
			case c.Group == GroupBundles && builtin != nil && builtin(c.Group, c.Name):
				n.Status, n.Code = Active, CodeQualified
				n.Reason = fmt.Sprintf("runs as %s: the name alone is a bundle of agent-env itself", quote(requirement.Canonical(c.Package)+"/"+c.Name))
			case builtin != nil && builtin(c.Group, c.Name):
				n.Status, n.Code, n.Reason = Skipped, CodeBuiltinName, fmt.Sprintf("%s is a %s of agent-env itself", quote(c.Name), GroupWord(c.Group))
			default:
				key := [2]string{c.Group, c.Name}
				claims[key] = append(claims[key], len(out))
			}
			out = append(out, n)
		}
	}
	for key, same := range claims {
		if len(same) > 1 {
			clash(out, key[0], same)
		}
	}
	return out
}

// clash settles several claims on one name.
func clash(out []Contribution, group string, same []int) {
	packages := map[string]int{}
	claims, said := make([]Claim, len(same)), make([]string, len(same)) // of each, once
	for at, i := range same {
		packages[requirement.Canonical(out[i].Package)]++
		claims[at], said[at] = out[i].Claim, out[i].by()
	}
	for at, i := range same {
		c := &out[i]
		name := requirement.Canonical(c.Package)
		if group == GroupCommands { // the first keeps its command
			if at > 0 {
				c.Status, c.Code, c.Reason = Skipped, CodeNameConflict, "the command is "+said[0]
				c.Conflicts = claims[:1:1]
			}
			continue
		}
		c.Conflicts = slices.Concat(claims[:at], claims[at+1:])
		others := strings.Join(slices.Concat(said[:at], said[at+1:]), ", ")
		if group == GroupBundles && packages[name] == 1 { // bundles have a longer name each
			c.Status, c.Code = Active, CodeQualified
			c.Reason = fmt.Sprintf("runs as %s: the name is also that of %s", quote(name+"/"+c.Name), others)
			continue
		}
		c.Status, c.Code = Conflict, CodeNameConflict
		how := "remove all but one with `agent-env plugin remove <package>`"
		if slices.ContainsFunc(same, func(i int) bool { return out[i].Git != "" }) {
			how = "keep one: `agent-env plugin disable <id>` turns a git plugin off, `agent-env plugin remove <package>` removes a package"
		}
		c.Reason = fmt.Sprintf("also registered by %s; %s", others, how)
	}
}

// by names a claim in messages: 'acme_check' from agentenv-acme 1.2.0 (acme:Check).
func (c Claim) by() string {
	if c.Git != "" {
		return fmt.Sprintf("%s from the git plugin %s %s", quote(c.Name), c.Package, c.Version)
	}
	return fmt.Sprintf("%s from %s %s (%s)", quote(c.Name), c.Package, c.Version, c.Value)
}

// Registered says in messages how an unknown name was claimed and why that came to nothing: "registered by … but failed to load: …".
func (c Contribution) Registered() string {
	why := c.Reason
	switch {
	case c.Status == Conflict:
		return "registered by " + c.by() + " but " + why
	case why == "":
		why = "it is not loaded"
	}
	return "registered by " + c.by() + " but " + why
}

func quote(name string) string { return "'" + name + "'" }

// claims are a distribution's, by group in the order of reports, and name.
func (d Distribution) claims() []Claim {
	var out []Claim
	add := func(e EntryPoint, exec bool) {
		if GroupWord(e.Group) != "" {
			out = append(out, Claim{Package: d.Name, Version: d.Version, EntryPoint: e, Exec: exec, Dir: d.Dir, Git: d.Git})
		}
	}
	for _, e := range d.Entries {
		if e.Group != GroupExec || len(d.Types) == 0 { // an executable stands for the types that it serves
			add(e, e.Group == GroupExec)
		}
	}
	for _, e := range d.Types {
		add(e, true)
	}
	slices.SortStableFunc(out, func(a, b Claim) int {
		if c := order(a.Group) - order(b.Group); c != 0 {
			return c
		}
		return compareEntries(a.EntryPoint, b.EntryPoint)
	})
	return out
}

// Plugin tells whether the distribution declares anything.
func (d Distribution) Plugin() bool { return len(d.claims()) > 0 }

func order(group string) int {
	for i, g := range groups {
		if g.name == group {
			return i
		}
	}
	return len(groups)
}

// Core are a distribution's requirements on the program itself that count in env, in their order.
func (d Distribution) Core(env requirement.Environment) []*requirement.Requirement {
	var out []*requirement.Requirement
	for _, line := range d.Requires {
		if !requirement.IsCore(requirement.Canonical(leadingName(line))) {
			continue // parsing every line of every distribution costs more than anything else here
		}
		if r, err := requirement.ParseMetadata(line); err == nil && requirement.IsCore(r.Canonical()) && r.Applies(env, "") {
			out = append(out, r)
		}
	}
	return out
}

// leadingName is the name that a line of Requires-Dist begins with.
func leadingName(line string) string {
	line = strings.TrimLeft(line, " \t")
	end := strings.IndexFunc(line, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
	})
	if end < 0 {
		return line
	}
	return line[:end]
}

// incompatibility is why a distribution can't work with this program; "" when nothing is known against it.
func incompatibility(d Distribution, all []Distribution, env requirement.Environment) string {
	for _, r := range d.Core(env) {
		i := slices.IndexFunc(all, func(o Distribution) bool { return o.Own && o.Canonical() == r.Canonical() })
		if i >= 0 && !r.Specifiers.Contains(all[i].Version) {
			return fmt.Sprintf("needs %s%s (installed: %s)", r.Name, r.Specifiers, all[i].Version)
		}
	}
	return ""
}
