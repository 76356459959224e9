package config

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/term"
)

func newShow(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "show [SECTION]…",
		Short: "Show the settings that count, secrets masked",
		Long: `Shows the settings that count, each section with the place that sets it: the environment, the file, or the default. Secrets are masked.
It works, and exits 1, when the file is broken.`,
		Example: "  agent-env config show\n  agent-env config show sandbox model --json",
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return show(cmd.Context(), p, args, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func show(ctx context.Context, p *verb.Program, sections []string, asJSON bool) error {
	a, err := p.App()
	if err != nil {
		return err
	}
	r, err := a.Config().Show(sections...)
	if err != nil {
		return err
	}
	for i := range r.Plugins {
		r.Plugins[i].Package = a.InstalledPlugin(ctx, r.Plugins[i].Name)
	}
	if asJSON {
		if err := p.Streams.JSON(r); err != nil {
			return err
		}
	} else {
		printReport(p.Streams, r)
	}
	if r.Error != "" {
		return errors.New(r.Error)
	}
	return nil
}

func printReport(s *term.Streams, r config.Report) {
	file := r.ConfigPath
	if file == "" {
		file = "none found from " + r.SearchRoot + " upward"
	}
	if !r.Trusted {
		file += " (not trusted)"
	}
	s.Printf("file   %s\nstate  %s\n", term.Clean(file), term.Clean(r.StateRoot))
	for _, w := range r.Warnings {
		s.Problem("Warning: %s", w)
	}
	for _, list := range [][]config.Section{r.Sections, r.Plugins} {
		for _, sec := range list {
			printSection(s, sec)
		}
	}
}

func printSection(s *term.Streams, sec config.Section) {
	s.Printf("\n%s", s.OutColors().Bold(term.Clean(sec.Name)))
	if sec.Winner != nil {
		s.Printf("  (%s)", from(*sec.Winner))
	}
	s.Printf("\n")
	if sec.Package != "" {
		s.Printf("  package  %s\n", term.Clean(sec.Package))
	}
	switch {
	case sec.Impl != "":
		s.Printf("  impl    %s\n", term.Clean(sec.Impl))
		if sec.Config != nil {
			s.Printf("  config  %s\n", text(sec.Config))
		}
	case sec.Value != nil:
		s.Printf("  %s\n", text(sec.Value))
	default:
		s.Printf("  not set\n")
	}
	for _, k := range sec.Ignored {
		s.Printf("  ignored: %s\n", term.Clean(k))
	}
}
