package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/term"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

func newShow(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var noLoad bool
	cmd := &cobra.Command{
		Use:               "show NAME",
		Short:             "Show what one plugin provides and what became of it",
		Example:           "  agent-env plugin show agentenv-acme\n  agent-env plugin show agentenv-acme --json",
		Args:              verb.Args("NAME"),
		ValidArgsFunction: complete(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			return show(cmd.Context(), p, cmd, args[0], !noLoad, *asJSON)
		},
	}
	loadFlag(cmd, &noLoad)
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// shown is what --json prints.
type shown struct {
	report
	Effect *string `json:"config_effect"` // what loading the plugin does to the configuration; null where nothing was loaded
}

// noEffect: plugins run in processes of their own, so that they can't change this one's configuration.
const noEffect = "none: plugins run in processes of their own"

func show(ctx context.Context, p *verb.Program, cmd *cobra.Command, name string, load, asJSON bool) error {
	if a, err := p.App(); err == nil {
		g, err := a.Git().Show(ctx, name)
		if err != nil && !errors.Is(err, folder.ErrNone) {
			return err
		}
		if g != nil {
			return showGit(p, g, asJSON)
		}
	}
	a, r, err := look(ctx, p, cmd, load)
	if err != nil {
		return err
	}
	pl, ok := r.Find(name)
	if !ok {
		var names []string
		for _, have := range r.Plugins {
			names = append(names, have.Name)
		}
		if len(names) == 0 {
			return fmt.Errorf("there is no plugin %s: none is installed", diag.Repr(name))
		}
		return fmt.Errorf("there is no plugin %s; installed: %s", diag.Repr(name), strings.Join(names, ", "))
	}
	if asJSON {
		all := r.Plugins
		r.Plugins = []dist.Plugin{pl}
		out := shown{report: encode(a, r)}
		r.Plugins = all
		if r.Loaded {
			out.Effect = text(noEffect)
		}
		return p.Streams.JSON(out)
	}
	troubles(p.Streams, r)
	p.Streams.Printf("%s %s\n", term.Clean(pl.Name), term.Clean(pl.Version))
	requires, err := core(ctx, a, pl)
	if err != nil {
		return err
	}
	p.Streams.Printf("  requires: %s\n", term.Clean(requires))
	p.Streams.Printf("  location: %s\n", term.Clean(filepath.Dir(pl.Dir)))
	if r.Loaded {
		p.Streams.Printf("  config:   %s\n", noEffect)
	}
	p.Streams.Println()
	width := [3]int{}
	row := func(c dist.Contribution) [3]string {
		return [3]string{dist.GroupWord(c.Group), term.Clean(c.Name), term.Clean(c.Value)}
	}
	for _, c := range pl.Contributions {
		for i, cell := range row(c) {
			width[i] = max(width[i], len(cell))
		}
	}
	for _, c := range pl.Contributions {
		cells := row(c)
		p.Streams.Printf("  %-*s  %-*s  %-*s  %s\n", width[0], cells[0], width[1], cells[1], width[2], cells[2], state(c))
	}
	return nil
}

// core is what a plugin requires of agent-env itself.
func core(ctx context.Context, a *app.App, pl dist.Plugin) (string, error) {
	e, err := a.PluginEnvironment(ctx)
	if err != nil {
		return "", err
	}
	m, _ := e.Markers(ctx) // without a Python: the newest one known
	var out []string
	for _, r := range pl.Core(m) {
		out = append(out, r.Name+r.Specifiers.String())
	}
	if len(out) == 0 {
		return fmt.Sprintf("nothing of agent-env itself (which counts as %s)", app.FrameworkVersion), nil
	}
	return fmt.Sprintf("%s (agent-env counts as %s, its protocol as %s)", strings.Join(out, ", "), app.FrameworkVersion, app.ProtocolVersion), nil
}

// shownGit is what --json prints of a git plugin.
type shownGit struct {
	verb.Format
	Row      gitplugins.RowView     `json:"row"`
	Plugin   *gitplugins.PluginView `json:"plugin"` // null where its files are missing, or its manifest can't be used
	Problems []string               `json:"problems"`
}

// showGit shows a git plugin.
func showGit(p *verb.Program, g *gitplugins.Shown, asJSON bool) error {
	out := shownGit{verb.V1(), gitplugins.ViewRow(g.Standing, g.Enabled), nil, []string{}}
	for _, pr := range g.Problems {
		out.Problems = append(out.Problems, pr.String())
	}
	if g.Manifest != nil {
		src, err := git.ParseSource(git.Shown(g.Row.SourceURL))
		if err != nil {
			return err
		}
		pl := gitplugins.ViewPlugin(git.Fetched{Source: src, Commit: g.Row.ResolvedSHA, Tree: g.Row.TreeSHA256, By: g.Row.Fetch}, g.Row.RequestedRef, g.Manifest)
		out.Plugin = &pl
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	s := p.Streams
	line := liner(s)
	for _, problem := range out.Problems {
		s.Problem("Warning: %s", term.Clean(problem))
	}
	version := ""
	if out.Plugin != nil {
		version = " " + out.Plugin.Version
	}
	s.Printf("%s%s\n", g.ID, term.Clean(version))
	line("state", string(g.State))
	line("enabled", fmt.Sprint(g.Enabled))
	line("source", git.Shown(g.Row.SourceURL))
	line("ref", g.Row.RequestedRef)
	line("commit", g.Row.ResolvedSHA)
	line("files", "sha256:"+g.Row.TreeSHA256)
	line("installed by", g.Row.By, g.Row.InstalledAt)
	if pl := out.Plugin; pl != nil {
		line("about", pl.Description)
		gitParts(line, pl.Contributes)
		line("needs variables", pl.RequiresEnv...)
		line("needs packages", pl.Packages...)
		line("can use packages", pl.Optional...)
	}
	return nil
}
