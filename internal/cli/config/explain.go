package config

import (
	"github.com/spf13/cobra"

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
		RunE:    func(_ *cobra.Command, args []string) error { return explain(p, args[0], *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func explain(p *verb.Program, path string, asJSON bool) error {
	c, err := load(p)
	if err != nil {
		return err
	}
	e, err := c.Explain(path)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(e)
	}
	printExplanation(p.Streams, e, "")
	return nil
}

func printExplanation(s *term.Streams, e config.Explanation, indent string) {
	s.Printf("%s%s = %s\n", indent, s.OutColors().Bold(term.Clean(e.Path)), text(e.Value))
	if e.About != "" {
		s.Printf("%s  %s\n", indent, term.Clean(e.About))
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
