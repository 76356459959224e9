package config

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/term"
)

func newExplain(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:     "explain PATH",
		Short:   "Tell what a setting is for, its value, and every place that sets it",
		Example: "  agent-env config explain sandbox.providers\n  agent-env config explain stores --json",
		Args:    verb.Args("PATH"),
		RunE:    func(cmd *cobra.Command, args []string) error { return explain(cmd.Context(), p, args[0], *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func explain(ctx context.Context, p *verb.Program, path string, asJSON bool) error {
	a, err := p.App()
	if err != nil {
		return err
	}
	e, err := a.Config().Explain(path)
	if err != nil {
		return err
	}
	label(ctx, a, &e)
	if asJSON {
		return p.Streams.JSON(e)
	}
	printExplanation(p.Streams, e, "")
	return nil
}

// label says what is installed of the distributions that are explained.
func label(ctx context.Context, a *app.App, e *config.Explanation) {
	if name := e.Distribution(); name != "" {
		e.Package = a.InstalledPlugin(ctx, name)
	}
	for i := range e.Inside {
		label(ctx, a, &e.Inside[i])
	}
}

func printExplanation(s *term.Streams, e config.Explanation, indent string) {
	s.Printf("%s%s = %s\n", indent, s.OutColors().Bold(term.Clean(e.Path)), text(e.Value))
	if e.About != "" {
		s.Printf("%s  %s\n", indent, term.Clean(e.About))
	}
	if e.Package != "" {
		s.Printf("%s  package: %s\n", indent, term.Clean(e.Package))
	}
	for i, l := range e.Layers {
		note := ""
		if i > 0 {
			note = " (does not count)"
		}
		s.Printf("%s  %s: %s%s\n", indent, from(l), text(l.Value), note)
	}
	for _, k := range e.Ignored {
		s.Printf("%s  ignored: %s\n", indent, term.Clean(k))
	}
	if e.Error != "" {
		s.Printf("%s  wrong: %s\n", indent, e.Error)
	}
	for _, in := range e.Inside {
		printExplanation(s, in, indent+"  ")
	}
}
