// Package plugin holds the verbs about plugins: what is installed beside the program, and how it gets there.
package plugin

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/plugin/dist"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	dists := []*cobra.Command{newList(p), newShow(p), newCheck(p), newAdd(p), newRemove(p)}
	return verb.Group("plugin", "List, check, add and remove plugins", append(dists, gitVerbs(p)...)...)
}

// Taken tells which commands and flags of the command line are agent-env's own.
func Taken(root *cobra.Command) dist.Names {
	return func(group, name string) bool {
		switch group {
		case dist.GroupCommands:
			for _, c := range root.Commands() {
				if c.Name() == name || c.HasAlias(name) {
					return true
				}
			}
			return name == "help"
		case dist.GroupOptions:
			return hasFlag(root, name)
		default:
			return false
		}
	}
}

// hasFlag tells whether a command or one below it has a flag, as people write it: the options of plugins are accepted by every command.
func hasFlag(cmd *cobra.Command, flag string) bool {
	name, long := strings.CutPrefix(flag, "--")
	if flag == "--help" || flag == "-h" {
		return true
	}
	for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
		if long && set.Lookup(name) != nil || len(flag) == 2 && !long && set.ShorthandLookup(flag[1:]) != nil {
			return true
		}
	}
	return slices.ContainsFunc(cmd.Commands(), func(c *cobra.Command) bool { return hasFlag(c, flag) })
}

// complete offers the installed plugins.
func complete(p *verb.Program) cobra.CompletionFunc {
	return p.Complete(func(ctx context.Context, a *app.App, _ string) ([]cobra.Completion, error) {
		e, err := a.PluginEnvironment(ctx)
		if err != nil {
			return nil, err
		}
		all, _ := e.Distributions()
		var out []cobra.Completion
		for _, d := range all {
			if d.Plugin() {
				out = append(out, cobra.CompletionWithDesc(d.Canonical(), d.Version))
			}
		}
		return out, nil
	}, cobra.ShellCompDirectiveNoFileComp)
}
