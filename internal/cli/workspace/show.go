package workspace

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

func newShow(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:               "show [NAME]",
		Short:             "Show a workspace: its plugins, servers, delegates and projects",
		Long:              "Shows a workspace by its name, or without one the nearest upward from here. Secrets are named, never shown.",
		Args:              atMostOne,
		ValidArgsFunction: complete(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return show(cmd.Context(), p, args, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func show(ctx context.Context, p *verb.Program, args []string, asJSON bool) error {
	a, err := p.App()
	if err != nil {
		return err
	}
	w, err := named(ctx, a, args)
	if err != nil {
		return err
	}
	v, err := a.ShowWorkspace(ctx, w)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(struct {
			verb.Format
			app.WorkspaceView
		}{verb.V1(), v})
	}
	line := func(what, text string) {
		if text != "" {
			p.Streams.Printf("%s: %s\n", what, term.Clean(text))
		}
	}
	line("Workspace", w.Name)
	line("Folder", w.Root)
	line("Bundle", w.Bundle)
	for _, g := range v.Plugins {
		state := "off"
		switch {
		case g.Problem != "":
			state = "not used: " + g.Problem
		case g.Enabled:
			state = "on"
		}
		line("Plugin", g.ID+" "+g.Commit+" "+state)
	}
	for _, s := range v.Servers {
		line("MCP server", s.Name+" "+s.Where)
	}
	line("Delegates", strings.Join(v.Delegates, ", "))
	for _, pr := range v.Projects {
		line("Project", pr.Name+" "+pr.Path)
	}
	line("Secrets", strings.Join(v.Secrets, ", "))
	line("Wants the tools", strings.Join(w.RequiresTools, ", "))
	return nil
}
