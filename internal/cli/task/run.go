package task

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/runview"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/taskstore"
)

const exits = `The sandboxes of a run go when it ends. Ctrl-C or SIGTERM cancels what runs, takes it down and prints what ran.

Exit codes: 0 all ran; 1 refused, or a run failed, could not be run or was cancelled; 2 the command line can't be meant; 3 the mean score is below
--fail-under; 130 Ctrl-C; 143 SIGTERM.`

type runOptions struct {
	which verb.Which
	*runview.Flags
}

func newRun(p *verb.Program) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run ID",
		Short: "Run a stored task",
		Long: `Checks a stored task and whether it can run here, runs it in isolated sandboxes, and prints how it ended. All problems are told at once, and nothing runs
while there is one.

` + exits,
		Example:           "  agent-env task run mail/smoke\n  agent-env task run mail/smoke --k 5 --concurrency 2 --fail-under 0.8 --json",
		Args:              cobra.ArbitraryArgs, // ID tells of too many and too few
		ValidArgsFunction: completeIDs(p, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := o.which.ID(cmd, args)
			if err != nil {
				return err
			}
			if err := o.Check(cmd); err != nil {
				return err
			}
			return runStored(cmd.Context(), p, o.Flags, bundlerun.StoredRequest{Tasks: []taskstore.TaskRef{{ID: id, Version: *o.which.Version}}})
		},
	}
	o.which = p.WhichFlags(cmd, "task", verb.Stored(store.Task))
	o.Flags = runview.AddFlags(cmd)
	return cmd
}

// runStored runs stored tasks and shows it.
func runStored(ctx context.Context, p *verb.Program, o *runview.Flags, r bundlerun.StoredRequest) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	if r.Options, err = o.Options(ctx, a); err != nil {
		return err
	}
	r.Options.AllowUnknownFields = a.TaskOptions(o.Unknown).AllowUnknownFields
	r.K, r.Concurrency, r.DryRun = o.K, o.Concurrency, o.DryRun
	engine, err := a.Engine(ctx)
	if err != nil {
		return err
	}
	if !o.DryRun {
		p.Sweep(ctx, a)
	}
	rep := runview.New(ctx, p, o.Show())
	defer rep.Close()
	quiet := runview.Interruptible(ctx, p, a)
	defer quiet()
	sum, err := engine.RunStored(ctx, r, rep)
	if err != nil {
		rep.Refused(err)
		return err
	}
	if sum.Writes == nil {
		sum.Writes = []ledger.Line{} // nothing is written but the runs' records
	}
	saved := o.Save(ctx, p, &sum)
	return errors.Join(runview.End(ctx, p, engine, rep, &sum, o.Under(), *o.JSON), saved)
}
