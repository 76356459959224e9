package workspace

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
)

func newRemove(p *verb.Program) *cobra.Command {
	var purge bool
	var asJSON *bool
	cmd := &cobra.Command{
		Use:               "remove NAME",
		Aliases:           []string{"rm"},
		Short:             "Remove a workspace: its .agentenv, or its whole folder",
		Long:              "Removes the workspace's .agentenv with configuration, soul, secrets and the list of plugins, and its folder where nothing else is in it. Plugins that no other\nworkspace uses go with the next prune.",
		Args:              verb.Args("NAME"),
		ValidArgsFunction: complete(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			return remove(cmd.Context(), p, args[0], purge, *asJSON)
		},
	}
	cmd.Flags().BoolVar(&purge, "purge", false, "remove the whole folder with all files in it")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func remove(ctx context.Context, p *verb.Program, name string, purge, asJSON bool) error {
	a, err := p.App()
	if err != nil {
		return err
	}
	r, err := a.Workspaces()
	if err != nil {
		return err
	}
	w, err := r.Get(ctx, name)
	if err != nil {
		return err
	}
	if err := r.Remove(ctx, name, purge); err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(struct {
			verb.Format
			Name  string `json:"name"`
			Root  string `json:"root"`
			Purge bool   `json:"purged"`
		}{verb.V1(), name, w.Root, purge})
	}
	p.Streams.Printf("Removed the workspace %s\n", name)
	return nil
}
