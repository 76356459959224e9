package runs

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/term"
)

func newCancel(p *verb.Program) *cobra.Command {
	var wait bool
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "cancel RUN…",
		Short: "Stop runs, from any terminal",
		Long: `Asks the process that drives each run to stop it: its steps are stopped, its sandboxes are taken down, and it ends as cancelled. A run that nobody drives any
more is ended at once.

Exit codes: 0 asked, or ended; 1 there is no such run, or it had ended; 2 the command line can't be meant.`,
		Example:           "  agent-env runs cancel hello-03hyh3l6 --wait",
		Args:              verb.Args("RUN…"),
		ValidArgsFunction: completeIDs(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return cancel(cmd.Context(), p, args, wait, *asJSON) },
	}
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the runs have ended")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// cancelled is what --json prints.
type cancelled struct {
	verb.Format
	Runs []cancelledRun `json:"runs"`
}

type cancelledRun struct {
	ID      string                  `json:"run_id"`
	Outcome bundlerun.CancelOutcome `json:"outcome"`
	Status  runlog.Status           `json:"status"`
}

func cancel(ctx context.Context, p *verb.Program, texts []string, wait, asJSON bool) error {
	log, err := open(ctx, p)
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
	out := cancelled{Format: verb.V1(), Runs: []cancelledRun{}}
	var errs []error
	for _, text := range texts {
		id, err := log.Resolve(ctx, text)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		outcome, err := engine.Cancel(ctx, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Runs = append(out.Runs, cancelledRun{ID: id, Outcome: outcome})
	}
	for i := range out.Runs {
		r := &out.Runs[i]
		if r.Status, err = ending(ctx, log, r.ID, wait); err != nil {
			errs = append(errs, err)
		}
		if asJSON {
			continue
		}
		what := "asked to stop"
		if r.Status.Ended() {
			what = string(r.Status)
		}
		p.Streams.Printf("%s: %s\n", term.Clean(r.ID), what)
	}
	if asJSON {
		errs = append(errs, p.Streams.JSON(out))
	}
	return errors.Join(errs...)
}

// ending is a run's status, once it has ended with wait.
func ending(ctx context.Context, log runlog.Log, id string, wait bool) (runlog.Status, error) {
	if wait {
		for _, err := range follow(ctx, log, id) {
			if err != nil {
				return "", err
			}
		}
	}
	sum, err := log.Get(ctx, id)
	return sum.Status, err
}
