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

func newShow(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "show BUNDLE",
		Short: "Show what a bundle holds, with ids, types and aliases",
		Long: `Shows a bundle's description, what it requires, and every entry with its type, id and aliases. It writes nothing and opens no store. What is wrong with the
bundle is told as agent-env bundle check tells it; what could be read is shown all the same.`,
		Example:           "  agent-env bundle show hello\n  agent-env bundle show ./my-bundle --json",
		Args:              verb.Args("BUNDLE"),
		ValidArgsFunction: CompleteNames(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return show(cmd.Context(), p, args[0], *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// shown is what --json prints.
type shown struct {
	verb.Format
	OK bool `json:"ok"`
	app.Shown
	Problems []verb.Problem `json:"problems"`
}

func show(ctx context.Context, p *verb.Program, text string, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	s, err := a.Show(ctx, text)
	if err != nil {
		return err
	}
	if asJSON {
		err = p.Streams.JSON(shown{verb.V1(), !s.Problems.HasErrors(), s, verb.Problems(s.Problems)})
	} else {
		err = showText(p.Streams, s)
	}
	if err != nil {
		return err
	}
	if err := s.Problems.Err(); err != nil {
		return err
	}
	for _, w := range s.Problems.Of(diag.Warning) {
		p.Streams.Problem("Warning: %s", w)
	}
	return nil
}

func showText(s *term.Streams, b app.Shown) error {
	from := b.Bundle
	if b.Package != "" {
		from = b.Package + " " + b.Version
	}
	s.Printf("%s (%s)\n", term.Clean(b.Name), term.Clean(from))
	if b.Description != "" {
		s.Printf("%s\n", term.Clean(b.Description))
	}
	s.Printf("\nIds begin with %s/\n", term.Clean(b.IDRoot))
	if len(b.Requires) > 0 {
		s.Printf("Requires %s\n", term.Clean(strings.Join(b.Requires, ", ")))
	}
	if len(b.Entries) > 0 {
		s.Println("")
		t := term.NewTable("ENTRY", "TYPE", "ID", "ALIASES")
		for _, e := range b.Entries {
			t.Row(e.Label, e.Type, e.ID, strings.Join(e.Aliases, ", "))
		}
		if err := t.Print(s); err != nil {
			return err
		}
	}
	if len(b.Ignored) > 0 {
		s.Printf("\nIgnored: %s\n", term.Clean(strings.Join(b.Ignored, ", ")))
	}
	return nil
}
