package runs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

func newPrune(p *verb.Program) *cobra.Command {
	var older verb.Duration
	var o app.RunPrune
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Forget old runs",
		Long: `Forgets runs with all that their records hold: events, logs, long outputs. What steps stored as artifacts stays. A run that is under way always stays, and
so does the newest of all. An interrupted run that is forgotten can't be resumed any more.`,
		Example: "  agent-env runs prune --older-than 720h --dry-run\n  agent-env runs prune --keep 1000",
		Args:    verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := cmd.Flags()
			switch {
			case !f.Changed("older-than") && !f.Changed("keep"):
				return verb.Usagef("say which runs may go: --older-than DURATION, --keep N, or both")
			case f.Changed("keep") && o.Keep < 1:
				return verb.Usagef("--keep is at least 1: the newest run always stays")
			}
			o.OlderThan = time.Duration(older)
			return prune(cmd.Context(), p, o, *asJSON)
		},
	}
	f := cmd.Flags()
	f.Var(&older, "older-than", "only runs that ended at least this long ago (90s, 15m, 720h)")
	f.IntVar(&o.Keep, "keep", 0, "keep the newest `N` runs")
	f.BoolVar(&o.Dry, "dry-run", false, "tell what would be forgotten; forget nothing")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// pruned is what --json prints.
type pruned struct {
	verb.Format
	DryRun  bool     `json:"dry_run"`
	Runs    []string `json:"runs"`
	Kept    int      `json:"kept"`
	Objects int      `json:"objects"`
	Bytes   int64    `json:"bytes"`
}

func prune(ctx context.Context, p *verb.Program, o app.RunPrune, asJSON bool) error {
	if _, err := open(ctx, p); err != nil {
		return err
	}
	a, err := p.App()
	if err != nil {
		return err
	}
	found, err := a.PruneRuns(ctx, o)
	if err != nil {
		return err
	}
	out := pruned{Format: verb.V1(), DryRun: o.Dry, Runs: []string{}, Kept: found.Kept, Objects: found.Objects, Bytes: found.Bytes}
	for _, r := range found.Runs {
		out.Runs = append(out.Runs, r.ID)
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	for _, r := range found.Runs {
		p.Streams.Printf("%s: %s\n", term.Clean(r.ID), r.Status)
	}
	switch {
	case o.Dry:
		p.Streams.Note("Would forget %s; %d would stay.", diag.Count(len(out.Runs), "run"), out.Kept)
	case out.Bytes > 0:
		p.Streams.Note("Forgot %s; %d stay. Freed %s.", diag.Count(len(out.Runs), "run"), out.Kept, term.Size(out.Bytes))
	default:
		p.Streams.Note("Forgot %s; %d stay.", diag.Count(len(out.Runs), "run"), out.Kept)
	}
	return nil
}
