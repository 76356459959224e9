package bundle

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/term"
)

type registerOptions struct {
	dryRun, unknown bool
	json            *bool
}

func newRegister(p *verb.Program) *cobra.Command {
	var o registerOptions
	cmd := &cobra.Command{
		Use:   "register BUNDLE",
		Short: "Write a bundle into the store, running nothing",
		Long: `Checks a bundle and writes everything in it that is new or has changed into the store: what agent-env run BUNDLE would write, and what no task needs too. All of
it is written or, when anything is wrong, nothing. What could not run on this machine is a warning.`,
		Example:           "  agent-env bundle register ./my-bundle\n  agent-env bundle register ./my-bundle --dry-run --json",
		Args:              verb.Args("BUNDLE"),
		ValidArgsFunction: CompleteNames(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return register(cmd.Context(), p, args[0], o) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything and tell what would be written; write nothing")
	f.BoolVar(&o.unknown, "allow-unknown-fields", false, "warn of step fields that this version doesn't know, in place of refusing them")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// registered is what --json prints.
type registered struct {
	verb.Format
	Bundle string `json:"bundle"`
	IDRoot string `json:"id_root"`
	DryRun bool   `json:"dry_run,omitempty"`
	// Declared is the bundle.toml that was written, or in a dry run would be.
	Declared *bundlerun.Declared `json:"bundle_toml,omitempty"`
	Writes   []ledger.Line       `json:"writes"`
	Problems []verb.Problem      `json:"problems"` // warnings and hints
}

func register(ctx context.Context, p *verb.Program, text string, o registerOptions) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	src, err := a.Bundle(ctx, text)
	if err != nil {
		return err
	}
	defer src.Close()
	engine, err := a.Engine(ctx)
	if err != nil {
		return err
	}
	rep := &registerReporter{s: p.Streams}
	sum, err := engine.Register(ctx, bundlerun.Request{Source: src, DryRun: o.dryRun, AllowUnknownFields: o.unknown}, rep)
	if err != nil {
		return p.Offer(ctx, err, o.dryRun)
	}
	if *o.json {
		return p.Streams.JSON(registered{verb.V1(), sum.Bundle, sum.IDRoot, sum.DryRun, sum.Declared, sum.Writes, verb.Problems(rep.problems)})
	}
	for _, l := range sum.Writes {
		p.Streams.Printf("%s\n", term.Clean(l.String()))
	}
	if o.dryRun {
		p.Streams.Println("Dry run: nothing is written.")
	}
	return nil
}

// registerReporter tells people what a walk says before it ends; what it wrote is in its summary.
type registerReporter struct {
	s        *term.Streams
	problems diag.List
}

func (r *registerReporter) Problems(l diag.List) {
	r.problems = append(r.problems, l...)
	for _, w := range l.Of(diag.Warning) {
		r.s.Problem("Warning: %s", w)
	}
	for _, h := range l.Of(diag.Hint) {
		r.s.Note("Hint: %s", h)
	}
}

func (r *registerReporter) Wrote(ledger.Line) {}

func (r *registerReporter) Declared(d bundlerun.Declared) { r.s.Note("%s", d) }

func (r *registerReporter) Waiting() {
	r.s.Note("waiting for another agent-env run to finish writing this bundle's ids")
}

var _ bundlerun.WriteReporter = (*registerReporter)(nil)
