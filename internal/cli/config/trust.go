package config

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

func newTrust(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "trust PATH",
		Short: "Let a configuration file that came with a bundle count in full",
		Long: `A configuration file inside a bundle's folder, or one that belongs to another user, may have been written by a stranger: its settings that
run code, lower isolation, or name endpoints or secrets are ignored. This command records that the file, as it is now, is trusted.
PATH is the file, or the folder that holds .agentenv. Read the file first: what it sets is listed.`,
		Example: "  agent-env config trust ./my-bundle",
		Args:    verb.Args("PATH"),
		RunE:    func(cmd *cobra.Command, args []string) error { return trust(cmd.Context(), p, args[0], *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func trust(ctx context.Context, p *verb.Program, path string, asJSON bool) error {
	c, err := load(p)
	if err != nil {
		return err
	}
	t, err := c.Trust(ctx, path)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(t)
	}
	word := "trusted"
	if t.Already {
		word = "was trusted already"
	}
	p.Streams.Printf("%s: %s\n", term.Clean(t.Path), word)
	for _, k := range t.Keys {
		p.Streams.Printf("  line %d: %s = %s\n", k.Line, term.Clean(k.Key), text(k.Value))
	}
	return nil
}
