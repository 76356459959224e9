package plugin

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/term"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

func newList(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var noLoad bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the installed plugins and what they provide",
		Long: `Lists the packages in the plugin environment that declare something for agent-env, and whether that is in effect, and the git plugins of the
workspace here. A plugin that doesn't load, or a configuration that can't be read, is told here and never ends the list.`,
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
	fromGit, warnings, err := a.Git().List(ctx)
	switch {
	case errors.Is(err, git.ErrLock):
		return err
	case err != nil && !errors.Is(err, folder.ErrNone):
		warnings = append(warnings, err.Error())
	}
	if asJSON {
		out := listed{report: encode(a, r), Git: []gitplugins.RowView{}, GitWarnings: all(warnings)}
		for _, g := range fromGit {
			out.Git = append(out.Git, gitplugins.ViewRow(g.Standing, g.Enabled))
		}
		return p.Streams.JSON(out)
	}
	header(p.Streams, a)
	troubles(p.Streams, r)
	for _, w := range warnings {
		p.Streams.Problem("Warning: %s", term.Clean(w))
	}
	if len(r.Plugins)+len(fromGit) == 0 {
		p.Streams.Note("There are no plugins; agent-env plugin add installs some.")
		return nil
	}
	if err := gitTable(p.Streams, fromGit); err != nil || len(r.Plugins) == 0 {
		return err
	}
	p.Streams.Println()
	t := term.NewTable("PACKAGE", "VERSION", "PROVIDES", "STATUS")
	for _, pl := range r.Plugins {
		t.Row(pl.Name, pl.Version, provides(pl), status(pl, r))
	}
	return t.Print(p.Streams)
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// listed is what list --json prints.
type listed struct {
	report
	Git         []gitplugins.RowView `json:"git_plugins"`
	GitWarnings []string             `json:"git_warnings"` // rows of the lock that can't be meant
}

// gitTable prints the workspace's git plugins.
func gitTable(s *term.Streams, rows []gitplugins.Listed) error {
	if len(rows) == 0 {
		return nil
	}
	s.Println()
	t := term.NewTable("GIT PLUGIN", "COMMIT", "STATE", "SOURCE")
	for _, r := range rows {
		state := string(r.State)
		switch {
		case r.State == git.Missing:
			state = "MISSING - run plugin sync"
		case r.Bundle:
			state = "bundle, " + state
		case r.Enabled:
			state = "enabled"
		}
		t.Row(r.ID, short(r.Row.ResolvedSHA), state, term.Clean(git.Shown(r.Row.SourceURL)))
	}
	return t.Print(s)
}
