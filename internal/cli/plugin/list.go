package plugin

import (
	"context"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

func newList(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var noLoad bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the installed plugins and what they provide",
		Long: `Lists the packages in the plugin environment that declare something for agent-env, and whether that is in effect. A plugin that doesn't
load, or a configuration that can't be read, is told here and never ends the list.`,
		Example: "  agent-env plugin list\n  agent-env plugin list --no-load --json",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), p, cmd, !noLoad, *asJSON) },
	}
	loadFlag(cmd, &noLoad)
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func loadFlag(cmd *cobra.Command, noLoad *bool) {
	cmd.Flags().BoolVar(noLoad, "no-load", false, "start nothing: say what the packages' metadata tells")
}

func list(ctx context.Context, p *verb.Program, cmd *cobra.Command, load, asJSON bool) error {
	a, r, err := look(ctx, p, cmd, load)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(encode(a, r))
	}
	header(p.Streams, a)
	troubles(p.Streams, r)
	if len(r.Plugins) == 0 {
		p.Streams.Note("There are no plugins; agent-env plugin add installs some.")
		return nil
	}
	p.Streams.Println()
	t := term.NewTable("PACKAGE", "VERSION", "PROVIDES", "STATUS")
	for _, pl := range r.Plugins {
		t.Row(pl.Name, pl.Version, provides(pl), status(pl, r))
	}
	return t.Print(p.Streams)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
