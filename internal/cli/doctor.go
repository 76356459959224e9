package cli

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

func newDoctor(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Tell what works on this machine, what is missing, and how to mend it",
		Long: `Looks at the configuration, the state folder, the store, and a sandbox that is started and removed again. Exits 1 when something
that the program can't do without is broken.`,
		Args: verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return doctor(cmd.Context(), p, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// diagnosis is what --json prints.
type diagnosis struct {
	verb.Format
	OK       bool          `json:"ok"`
	Findings []app.Finding `json:"findings"`
}

func doctor(ctx context.Context, p *verb.Program, asJSON bool) error {
	a, err := p.App()
	if err != nil {
		return err
	}
	p.Sweep(ctx, a)
	out := diagnosis{verb.V1(), true, a.Doctor(ctx)}
	for _, f := range out.Findings {
		out.OK = out.OK && f.State != app.Broken
	}
	if asJSON {
		if err := p.Streams.JSON(out); err != nil {
			return err
		}
	} else {
		printDiagnosis(p.Streams, out)
	}
	if !out.OK {
		return verb.Exit(verb.Refused)
	}
	return nil
}

func printDiagnosis(s *term.Streams, d diagnosis) {
	c := s.OutColors()
	marks := map[string]string{app.Works: c.Green("works "), app.Lacks: c.Yellow("lacks "), app.Broken: c.Red("BROKEN")}
	for _, f := range d.Findings {
		s.Printf("%s  %-16s %s\n", marks[f.State], f.Name, term.Clean(f.Detail))
		if f.Fix != "" {
			s.Printf("        %-16s %s\n", "", term.Clean(f.Fix))
		}
	}
}
