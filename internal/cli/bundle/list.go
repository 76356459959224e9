package bundle

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

func newList(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the bundles that can be run by name",
		Args:  verb.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return List(cmd.Context(), p, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// listing is what --json prints.
type listing struct {
	verb.Format
	Bundles []app.Description `json:"bundles"`
}

// List prints the installed bundles: `bundle list`, and `run` without a bundle.
func List(ctx context.Context, p *verb.Program, asJSON bool) error {
	a, err := p.App()
	if err != nil {
		return err
	}
	out := listing{Format: verb.V1()}
	if out.Bundles, err = a.Describe(ctx); err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	t := term.NewTable("NAME", "PACKAGE", "CONTENTS", "DESCRIPTION")
	for _, b := range out.Bundles {
		t.Row(b.Name, b.Package+" "+b.Version, contents(b), b.Description)
	}
	if err := t.Print(p.Streams); err != nil {
		return err
	}
	p.Streams.Note("\nRun one with agent-env run NAME.")
	return nil
}

// contents is "1 task, 1 eval".
func contents(b app.Description) string {
	var parts []string
	if b.Tasks > 0 {
		parts = append(parts, diag.Count(b.Tasks, "task"))
	}
	if b.Evals > 0 {
		parts = append(parts, diag.Count(b.Evals, "eval"))
	}
	return strings.Join(parts, ", ")
}
