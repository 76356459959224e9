package workspace

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
	"agentenv.internal/agentenv/internal/workspace"
)

func newList(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List workspaces, newest first",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), p, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// listed is a workspace as lists show it.
type listed struct {
	workspace.Workspace
	Root    string `json:"root"`
	Problem string `json:"problem,omitempty"`
}

func list(ctx context.Context, p *verb.Program, asJSON bool) error {
	a, err := p.App()
	if err != nil {
		return err
	}
	r, err := a.Workspaces()
	if err != nil {
		return err
	}
	all, err := r.List(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		out := struct {
			verb.Format
			Workspaces []listed `json:"workspaces"`
		}{verb.V1(), []listed{}}
		for _, w := range all {
			out.Workspaces = append(out.Workspaces, listed{w, w.Root, w.Problem})
		}
		return p.Streams.JSON(out)
	}
	if len(all) == 0 {
		p.Streams.Note("There are no workspaces; agent-env workspace create NAME makes one.")
		return nil
	}
	for _, w := range all {
		text := w.Root
		if w.Bundle != "" {
			text += "  (bundle " + w.Bundle + ")"
		}
		if w.Problem != "" {
			text += "  (" + w.Problem + ")"
		}
		p.Streams.Printf("%-20s  %s\n", w.Name, term.Clean(text))
	}
	return nil
}
