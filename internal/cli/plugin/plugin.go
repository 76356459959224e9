// Package plugin holds the verbs about plugins: what is installed beside the program, and how it gets there.
package plugin

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/plugin/dist"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("plugin", "List, check, add and remove plugins", newList(p), newShow(p), newCheck(p), newAdd(p), newRemove(p))
}

// taken tells which commands and flags of the command line are agent-env's own.
func taken(root *cobra.Command) dist.Names {
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
			return root.PersistentFlags().Lookup(strings.TrimLeft(name, "-")) != nil
		default:
			return false
		}
	}
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
