package host

import (
	"os"
	"slices"

	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/sdk/plugin"
)

// Beside is a plugin that no distribution brings: a git plugin. Its types are claimed beside those of distributions, by the same rules.
type Beside struct {
	ID, Version string
	Where       string // the address it came from
	Dir         string // its files, held by whoever made this; agentenv_plugin.json is one of them
	Argv        []string
	Env         []string
	Extra       []*os.File // what its process holds too: the lock of its packages
	Types       []plugin.Type
	Bundles     []dist.EntryPoint // folders with bundles: name and folder
}

// Distribution is the plugin as claims are settled.
func (b Beside) Distribution() dist.Distribution {
	d := dist.Distribution{Name: b.ID, Version: b.Version, Dir: b.Dir, Git: b.Where, Entries: b.Bundles}
	for _, t := range b.Types {
		d.Types = append(d.Types, dist.EntryPoint{Group: t.Group, Name: t.Name, Value: b.Argv[0]})
	}
	return d
}

// Program is how the plugin is started.
func (b Beside) Program() Program {
	return Program{
		Name: b.ID + " " + b.Version, Distribution: &plugin.Named{Name: b.ID, Version: b.Version}, Git: true, Argv: b.Argv, Env: b.Env, Extra: b.Extra,
		Boxes: slices.ContainsFunc(b.Types, func(t plugin.Type) bool { return t.Group == plugin.GroupProviders }),
	}
}
