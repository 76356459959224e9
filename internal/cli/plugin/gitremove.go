package plugin

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/term"
)

// gitVerbs are the verbs about what is installed from git.
func gitVerbs(p *verb.Program) []*cobra.Command {
	return []*cobra.Command{
		newInstall(p), newSync(p), newVerify(p), newSwitch(p, true), newSwitch(p, false), newUninstall(p), newUninstallBundle(p),
		newOutdated(p), newUpdate(p), newUpdateBundle(p), newPeek(p), newNew(p), newNewBundle(p), newBumpPins(p), newVerifyBundle(p), newInstallDeps(p), newVendor(p),
	}
}

// completeGit offers what is installed from git: plugins, or plugin bundles.
func completeGit(p *verb.Program, bundles bool) cobra.CompletionFunc {
	return p.Complete(func(ctx context.Context, a *app.App, _ string) ([]cobra.Completion, error) {
		all, _, err := a.Git().List(ctx)
		if err != nil {
			return nil, err
		}
		var out []cobra.Completion
		for _, g := range all {
			if g.Bundle == bundles {
				out = append(out, cobra.CompletionWithDesc(g.ID, term.Clean(git.Shown(g.Row.SourceURL))))
			}
		}
		return out, nil
	}, cobra.ShellCompDirectiveNoFileComp)
}

func newSwitch(p *verb.Program, on bool) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "enable ID",
		Short: "Turn a git plugin on",
		Long: `Names the plugin in enabled of [git_plugins] in the workspace's configuration, and takes it out of disabled. Comments and order of the file stay. What runs
already takes notice when it starts again.`,
		Example:           "  agent-env plugin enable board",
		Args:              verb.Args("ID"),
		ValidArgsFunction: completeGit(p, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			return turn(cmd.Context(), p, args[0], on, *asJSON)
		},
	}
	if !on {
		cmd.Use, cmd.Short, cmd.Example = "disable ID", "Turn a git plugin off", "  agent-env plugin disable board"
		cmd.Long = `Names the plugin in disabled of [git_plugins] in the workspace's configuration, so that no plugin bundle turns it on again, and takes it out of enabled.
Comments and order of the file stay. What runs already takes notice when it starts again.`
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func turn(ctx context.Context, p *verb.Program, id string, on, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	changed, err := a.Git().Switch(ctx, id, on)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(struct {
			verb.Format
			ID      string `json:"id"`
			Enabled bool   `json:"enabled"`
			Changed bool   `json:"changed"`
		}{verb.V1(), id, on, changed})
	}
	word := map[bool]string{true: "enabled", false: "disabled"}[on]
	if !changed {
		word = "already " + word
	}
	p.Streams.Printf("%s: %s\n", id, word)
	return nil
}

func newUninstall(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var purge bool
	cmd := &cobra.Command{
		Use:   "uninstall ID",
		Short: "Remove a git plugin from the workspace",
		Long: `Removes the plugin from plugins.lock and from what is enabled. Its settings and secrets stay, for the day it comes back, unless --purge is said. Files that no
other workspace uses are removed.`,
		Example:           "  agent-env plugin uninstall board\n  agent-env plugin uninstall board --purge",
		Args:              verb.Args("ID"),
		ValidArgsFunction: completeGit(p, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := p.Ready()
			if err != nil {
				return err
			}
			out, err := a.Git().Uninstall(cmd.Context(), args[0], purge)
			if err != nil {
				return err
			}
			return tellRemoval(p, out, false, purge, *asJSON)
		},
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "remove its settings and secrets too")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func newUninstallBundle(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var purge bool
	cmd := &cobra.Command{
		Use:   "uninstall-bundle ID",
		Short: "Remove a plugin bundle and the plugins that are its own",
		Long: `Removes a plugin bundle with the plugins that it has installed and no other bundle names; all of it or nothing. Plugins that somebody installed by themselves stay.
Settings and secrets stay unless --purge is said; then the MCP servers that the bundle added go too, where nobody has edited them.`,
		Example:           "  agent-env plugin uninstall-bundle desk --purge",
		Args:              verb.Args("ID"),
		ValidArgsFunction: completeGit(p, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := p.Ready()
			if err != nil {
				return err
			}
			out, err := a.Git().UninstallBundle(cmd.Context(), args[0], purge)
			if err != nil {
				return err
			}
			return tellRemoval(p, out, true, purge, *asJSON)
		},
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "remove settings, secrets and MCP servers too")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// removed is what uninstall --json prints, and uninstall-bundle with more behind it.
type removed struct {
	verb.Format
	ID       string   `json:"id"`
	Removed  []string `json:"removed"`
	Purged   bool     `json:"purged"`
	DepsLeft []string `json:"deps_left"` // plugins whose packages stay
	Warnings []string `json:"warnings"`
}

// tellRemoval prints what uninstalling did.
func tellRemoval(p *verb.Program, r *gitplugins.Removal, bundle, purge, asJSON bool) error {
	if asJSON {
		one := removed{verb.V1(), r.ID, all(r.Removed), purge, all(r.DepsLeft), all(r.Warnings)}
		if !bundle {
			return p.Streams.JSON(one)
		}
		return p.Streams.JSON(struct {
			removed
			Members []string `json:"removed_members"`
			Kept    []string `json:"kept"`
			Missing []string `json:"skipped_missing"`
			Servers []string `json:"mcp_removed"`
		}{one, all(r.Members), all(r.Kept), all(r.Missing), all(r.Servers)})
	}
	s := p.Streams
	s.Printf("Removed %s: %s\n", r.ID, strings.Join(r.Removed, ", "))
	for _, x := range []struct {
		what string
		ids  []string
	}{
		{"plugins that went with it", r.Members},
		{"plugins that stay, since others have installed them", r.Kept},
		{"plugins that were gone already", r.Missing},
		{"MCP servers that were removed", r.Servers},
		{"plugins whose packages stay for when they come back", r.DepsLeft},
	} {
		if len(x.ids) > 0 {
			s.Printf("  %s: %s\n", x.what, term.Clean(strings.Join(x.ids, ", ")))
		}
	}
	if !purge {
		s.Println("  Settings and secrets stay; --purge removes them.")
	}
	for _, w := range r.Warnings {
		s.Problem("Warning: %s", term.Clean(w))
	}
	return nil
}
