package dist

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/requirement"
)

// Loader imports what claims name, in the environment that it was made for, and says whether that is what the group needs. The answer has
// one Loaded for every claim, in the same order; an error means that nothing could be loaded at all. A claim without a Package comes from
// the configuration, and has no Name yet.
type Loader interface {
	Load(ctx context.Context, claims []Claim) ([]Loaded, error)
}

// Loaded is what came of one claim.
type Loaded struct {
	Status Status // Active, Failed or Skipped
	Code   string
	Reason string
	Type   string  // the name that the thing has itself
	Option *Option // of GroupOptions
	Alias  string  // of GroupArtifacts: the type that an entry point under an older name stands for; "" where it is its own
}

// Option is an option of the command line that a plugin adds.
type Option struct {
	Help    string   `json:"help"`
	Flags   []string `json:"flags"`   // as people write them: --verbose, -v
	Value   bool     `json:"value"`   // a value follows
	Metavar string   `json:"metavar"` // what the value is called
	Object  uint64   `json:"object"`  // which object it is, among those that were loaded together
}

// Impl is a class that the configuration names.
type Impl struct {
	Group string
	Name  string // of a table of its own ([sandbox.providers.<name>]); "" where the class says it
	Value string // module:Class
	File  string // the configuration file
	Table string // "task_steps"
}

// Trouble is why something as a whole could not be looked at.
type Trouble struct {
	Code   string `json:"code"`
	Reason string `json:"reason"`
}

// ReportOptions are what a report takes into account.
type ReportOptions struct {
	Builtin Names
	Impls   []Impl
	Config  *Trouble // what is wrong with the configuration: groups that it has a say in are blocked
	Loader  Loader   // nil: nothing is imported
	Only    []string // these groups alone; all when empty
	// Beside are plugins that the environment doesn't hold, such as git plugins: their claims are settled with its own.
	Beside []Distribution
	// Aliases are the spellings that the configuration reads as other types of artifacts ([artifacts] type_aliases).
	Aliases map[string]string
}

// Report is every plugin of an environment and what became of what it offers.
type Report struct {
	Plugins   []Plugin           // by canonical name
	Groups    map[string]Trouble // groups that are blocked, by name
	Discovery map[string]Trouble // what could not be read, by package
	Loaded    bool
}

// Plugin is a distribution that offers something.
type Plugin struct {
	Distribution
	Contributions []Contribution
}

// Report looks at every claim of the environment. Without a Loader it starts no process. What is wrong with one distribution is told there,
// and what hinders loading as a whole blocks the groups that it was asked for; the error is of ctx.
func (e *Environment) Report(ctx context.Context, o ReportOptions) (Report, error) {
	all, bad := e.Distributions()
	var env requirement.Environment
	if slices.ContainsFunc(all, func(d Distribution) bool { return !d.Own }) { // else no interpreter has to be asked
		env, _ = e.Markers(ctx) // without one: the newest that is known
	}
	if ctx.Err() != nil {
		return Report{}, context.Cause(ctx)
	}
	all = slices.Concat(all, o.Beside)
	r := Report{Groups: map[string]Trouble{}, Discovery: map[string]Trouble{}, Loaded: o.Loader != nil && o.Config == nil}
	for _, p := range bad {
		r.Discovery[p.Package] = Trouble{p.Code, fmt.Sprintf("%s: %s", p.Path, p.Reason)}
	}
	found := Resolve(all, o.Builtin, env)
	if len(o.Only) > 0 {
		found = slices.DeleteFunc(found, func(c Contribution) bool { return !slices.Contains(o.Only, c.Group) })
	}
	e.checkBundles(found)
	refuseAliased(found, o.Aliases)
	if o.Config != nil {
		block(found, *o.Config, r.Groups)
	} else {
		err := load(ctx, found, o)
		if err == nil && r.Loaded {
			err = apply(ctx, found, o, r.Groups)
		}
		if ctx.Err() != nil {
			return Report{}, context.Cause(ctx)
		}
		if err != nil {
			why := Trouble{CodeGroupFailed, err.Error()}
			stop(found, why, r.Groups)
			for _, impl := range o.Impls {
				r.Groups[impl.Group] = why
			}
		}
	}
	for _, d := range all {
		p := Plugin{Distribution: d}
		for _, c := range found {
			if c.Dir == d.Dir && c.Package == d.Name {
				p.Contributions = append(p.Contributions, c)
			}
		}
		if len(p.Contributions) > 0 || !d.Own && r.Discovery[d.Name].Code != "" {
			r.Plugins = append(r.Plugins, p)
		}
	}
	return r, nil
}

// Find is the plugin of a name in any spelling.
func (r Report) Find(name string) (Plugin, bool) {
	name = requirement.Canonical(name)
	i := slices.IndexFunc(r.Plugins, func(p Plugin) bool { return p.Canonical() == name })
	if i < 0 {
		return Plugin{}, false
	}
	return r.Plugins[i], true
}

// configured tells whether the configuration has a table of classes for a group, and can so hinder it.
func configured(group string) bool {
	switch group {
	case GroupEnvs, GroupSteps, GroupArtifacts, GroupSandboxes, GroupStates, GroupExplorer:
		return true
	default:
		return false
	}
}

func block(found []Contribution, why Trouble, groups map[string]Trouble) {
	for i := range found {
		switch c := &found[i]; {
		case c.Status != "" && c.Status != Active:
		case configured(c.Group):
			c.Status, c.Code, c.Reason = Blocked, why.Code, why.Reason
			groups[c.Group] = why
		case c.Status == "":
			c.unloaded()
		}
	}
}

// stop blocks what could not be loaded at all.
func stop(found []Contribution, why Trouble, groups map[string]Trouble) {
	for i := range found {
		if c := &found[i]; c.Status == "" {
			c.Status, c.Code, c.Reason = Blocked, why.Code, why.Reason
			groups[c.Group] = why
		}
	}
}

func (c *Contribution) unloaded() {
	c.Status, c.Code, c.Reason = Unloaded, CodeNotLoaded, "not imported: this is what its metadata says"
}

// load fills in what the loader says of what is not settled.
func load(ctx context.Context, found []Contribution, o ReportOptions) error {
	l := o.Loader
	var open []int
	var claims []Claim
	for i := range found {
		if found[i].Status == "" {
			open, claims = append(open, i), append(claims, found[i].Claim)
		}
	}
	if l == nil {
		for _, i := range open {
			found[i].unloaded()
		}
		return nil
	}
	if len(claims) == 0 {
		return nil
	}
	loaded, err := l.Load(ctx, claims)
	if err != nil {
		return err
	}
	if len(loaded) != len(claims) {
		return fmt.Errorf("load plugins: %d of %d were answered", len(loaded), len(claims))
	}
	for n, i := range open {
		c := &found[i]
		c.Status, c.Code, c.Reason = loaded[n].Status, loaded[n].Code, loaded[n].Reason
		if c.Status == "" {
			c.Status, c.Code, c.Reason = Unloaded, CodeUnknownStatus, "nothing came of loading it"
		}
		c.option = loaded[n].Option
	}
	settleOptions(found, o.Builtin)
	for n, i := range open {
		settleAlias(found, &found[i], loaded[n].Alias)
	}
	return nil
}

// settleAlias refuses an older name of an artifact type whose own name isn't the same class's.
func settleAlias(found []Contribution, c *Contribution, of string) {
	if of == "" || c.Status != Active || c.Group != GroupArtifacts {
		return
	}
	own := slices.ContainsFunc(found, func(o Contribution) bool {
		return o.Group == c.Group && o.Name == of && o.Status == Active && SameClass(o.Value, c.Value)
	})
	if !own {
		c.Status, c.Code = Failed, CodeAlias
		c.Reason = fmt.Sprintf("its type is %s, which isn't the same class: %s can't be an older name of it", quote(of), quote(c.Name))
	}
}

// refuseAliased settles artifact types whose name the configuration reads as another type: no document of theirs would ever be found.
func refuseAliased(found []Contribution, aliases map[string]string) {
	for i := range found {
		c := &found[i]
		of, aliased := aliases[c.Name]
		if c.Group != GroupArtifacts || !aliased || of == c.Name || c.Status != "" && c.Status != Active {
			continue
		}
		c.Status, c.Code = Skipped, CodeAlias
		c.Reason = fmt.Sprintf("[artifacts] type_aliases of the configuration reads %s as %s: take that line away, or this plugin's type is never used", quote(c.Name), quote(of))
	}
}

// settleOptions gives flags to their options: those of the program itself are taken, one flag of two options is neither's, and an option that is
// exported twice is attached once.
func settleOptions(found []Contribution, builtin Names) {
	byFlag := map[string][]int{}
	first := map[uint64]int{}
	for i := range found {
		c := &found[i]
		if c.Group != GroupOptions || c.Status != Active || c.option == nil {
			continue
		}
		if j, again := first[c.option.Object]; again && c.option.Object != 0 {
			c.Code, c.Reason = CodeAttached, fmt.Sprintf("the same option as %s", found[j].by())
			continue
		}
		first[c.option.Object] = i
		for _, flag := range c.option.Flags {
			if builtin != nil && builtin(GroupOptions, flag) {
				c.Status, c.Code, c.Reason = Skipped, CodeBuiltinName, fmt.Sprintf("%s is an option of agent-env itself", quote(flag))
			}
			byFlag[flag] = append(byFlag[flag], i)
		}
	}
	for _, flag := range slices.Sorted(maps.Keys(byFlag)) {
		same := byFlag[flag]
		for _, i := range same {
			c := &found[i]
			if len(same) < 2 || c.Status == Skipped {
				continue
			}
			var others []string
			for _, j := range same {
				if j != i {
					others = append(others, found[j].by())
					c.Conflicts = append(c.Conflicts, found[j].Claim)
				}
			}
			c.Status, c.Code = Conflict, CodeNameConflict
			c.Reason = fmt.Sprintf("%s is also a flag of %s; remove all but one with `agent-env plugin remove <package>`", quote(flag), strings.Join(others, ", "))
		}
	}
}

// apply lets the classes of the configuration take their names.
func apply(ctx context.Context, found []Contribution, o ReportOptions, groups map[string]Trouble) error {
	var foreign []Impl // classes that no entry point names
	var claims []Claim
	for _, impl := range o.Impls {
		own := slices.ContainsFunc(found, func(c Contribution) bool { return c.Group == impl.Group && SameClass(c.Value, impl.Value) && !c.Exec })
		if !own {
			foreign = append(foreign, impl)
			claims = append(claims, Claim{EntryPoint: EntryPoint{impl.Group, impl.Name, impl.Value}})
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	loaded, err := o.Loader.Load(ctx, claims)
	if err != nil {
		return err
	}
	if len(loaded) != len(claims) {
		return fmt.Errorf("load the classes of the configuration: %d of %d were answered", len(loaded), len(claims))
	}
	taken := map[[2]string]Impl{}
	for i, impl := range foreign {
		name := impl.Name
		if name == "" {
			name = loaded[i].Type
		}
		key := [2]string{impl.Group, name}
		bad := ""
		switch before, twice := taken[key]; {
		case loaded[i].Status != Active:
			bad = fmt.Sprintf("%s in [%s] of %s: %s", quote(impl.Value), impl.Table, impl.File, loaded[i].Reason)
		case o.Builtin != nil && o.Builtin(impl.Group, name):
			bad = fmt.Sprintf("%s in [%s] of %s has the name %s, which is agent-env's own", quote(impl.Value), impl.Table, impl.File, quote(name))
		case twice:
			bad = fmt.Sprintf("%s and %s in [%s] of %s have one name, %s", quote(before.Value), quote(impl.Value), impl.Table, impl.File, quote(name))
		}
		taken[key] = impl
		if bad != "" {
			groups[impl.Group] = Trouble{CodeConfigInvalid, bad}
		}
	}
	for i := range found {
		c := &found[i]
		if why, blocked := groups[c.Group]; blocked && c.Status == Active {
			c.Status, c.Code, c.Reason = Blocked, why.Code, why.Reason
			continue
		}
		if impl, ok := taken[[2]string{c.Group, c.Name}]; ok && c.Status == Active {
			c.Status, c.Code = Replaced, CodeReplaced
			c.Reason = fmt.Sprintf("config names %s in [%s] of %s", quote(impl.Value), impl.Table, impl.File)
			c.ReplacedBy = &Replacement{impl.File, impl.Table, impl.Value}
		}
	}
	return nil
}

// SameClass compares module:Class without the extras that an entry point may carry.
func SameClass(a, b string) bool {
	trim := func(s string) string {
		s, _, _ = strings.Cut(s, "[")
		return strings.ReplaceAll(s, " ", "")
	}
	return trim(a) == trim(b)
}

// checkBundles settles bundles, which are folders: nothing is imported to find them.
func (e *Environment) checkBundles(found []Contribution) {
	for i := range found {
		c := &found[i]
		if c.Group != GroupBundles || c.Status != "" && c.Status != Active {
			continue
		}
		if _, err := BundleFolder(c.Claim); err != nil {
			c.Status, c.Code, c.Reason = Failed, CodeInvalid, err.Error()
		} else if c.Status == "" {
			c.Status = Active
		}
	}
}

// BundleFolder is where the bundle of a claim of GroupBundles stands: <package>/<name> beside the distribution's metadata, or the folder that a git
// plugin names.
func BundleFolder(c Claim) (string, error) {
	if strings.ContainsAny(c.Name, `/\`) || c.Name == "." || c.Name == ".." {
		return "", fmt.Errorf("%s can't be the name of a bundle", quote(c.Name))
	}
	dir := filepath.Dir(c.Dir)
	if c.Git != "" { // a git plugin's value is the folder
		dir = filepath.Join(c.Dir, filepath.FromSlash(c.Value))
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || !filepath.IsLocal(filepath.FromSlash(c.Value)) {
			return "", fmt.Errorf("it has no folder %s", quote(c.Value))
		}
		return dir, nil
	}
	for part := range strings.SplitSeq(c.Value, ".") {
		if !identifier(part) {
			return "", fmt.Errorf("%s is no package: a bundle's value is a dotted package name", quote(c.Value))
		}
		dir = filepath.Join(dir, part)
	}
	dir = filepath.Join(dir, c.Name)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return "", fmt.Errorf("there is no folder %s", dir)
	}
	return dir, nil
}

// identifier is what a part of a package name may be, as far as files are concerned.
func identifier(s string) bool {
	for i, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}
