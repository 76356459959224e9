package runs

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/runview"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/term"
)

type regradeOptions struct {
	steps   []string
	version *int
	judge   string
	json    *bool
}

func newRegrade(p *verb.Program) *cobra.Command {
	var o regradeOptions
	cmd := &cobra.Command{
		Use:   "regrade RUN",
		Short: "Run the verifiers of a run again, without its agent",
		Long: `Runs the verifiers of a run that has ended once more, on the context, replies and files that it left: after a verifier that could not be run, or with other criteria
(--version takes the verifiers of another version of the task) or another judge (--judge-model; a step whose judge --param chose for the run keeps that one). The new scores are the run's from then on; the old ones stay on record.

A verifier that needs a sandbox or an environment that is gone is refused by name; --step picks others.

Exit codes: 0 graded; 1 refused, or a verifier failed or could not be run; 2 the command line can't be meant.`,
		Example:           "  agent-env runs regrade 03hyh3l6\n  agent-env runs regrade 03hyh3l6 --step style --judge-model big-model",
		Args:              verb.Args("RUN"),
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := verb.CheckVersion(cmd, *o.version); err != nil {
				return err
			}
			return regrade(cmd.Context(), p, args[0], o)
		},
	}
	cmd.Flags().StringArrayVar(&o.steps, "step", nil, "run this verifier, by its step's `ID`; repeatable")
	o.version = cmd.Flags().Int("version", 0, "take the verifiers of this version of the task")
	cmd.Flags().StringVar(&o.judge, "judge-model", "", "the `MODEL` of every judge")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// regraded is what --json prints.
type regraded struct {
	verb.Format
	Run string `json:"run_id"`
	run.Regraded
}

func regrade(ctx context.Context, p *verb.Program, text string, o regradeOptions) error {
	_, id, err := find(ctx, p, text)
	if err != nil {
		return err
	}
	a, err := p.App()
	if err != nil {
		return err
	}
	engine, err := a.Engine(ctx)
	if err != nil {
		return err
	}
	if o.judge, err = runview.Model(ctx, a, "judge-model", o.judge, false); err != nil {
		return err
	}
	out, err := engine.Regrade(ctx, id, bundlerun.RegradeOptions{Steps: o.steps, Version: *o.version, Judge: o.judge})
	if err != nil {
		return err
	}
	if *o.json {
		if err := p.Streams.JSON(regraded{verb.V1(), id, out}); err != nil {
			return err
		}
	} else {
		p.Streams.Printf("%s: %s, before %s\n", id, standing(out.Status, out.Scores), standing(out.OldStatus, out.OldScores))
		for _, l := range out.Left {
			p.Streams.Note("%s was not run: %s", term.Clean(l.ID), term.Clean(l.Why))
		}
	}
	if out.Status == runlog.Failed || out.Status == runlog.InfraFailed {
		if !*o.json {
			p.Streams.Problem("%s", term.Clean(out.Error))
		}
		return verb.Exit(verb.Refused)
	}
	return nil
}

// standing is a status with its scores: "scored (style: 0.5)".
func standing(s runlog.Status, scores map[string]float64) string {
	text := string(s)
	if t := verb.Scores(scores); t != "" {
		text += " (" + term.Clean(t) + ")"
	}
	return text
}
