package eval

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/runview"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/eval/report"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/term"
)

type runOptions struct {
	which   verb.Which
	resume  string
	explain bool
	*runview.Flags
}

// trialFlags say how trials are: an eval run that is gone on with has its own.
var trialFlags = []string{"id", "version", "k", "sandbox", "isolation", "param", "model", "user-model", "judge-model", "agent", "allow-unknown-fields"}

func newRun(p *verb.Program) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run ID | run --resume EVALRUN",
		Short: "Run every task of an eval k times, and sum up",
		Long: `Runs every task of a stored eval --k times, in isolated sandboxes, and prints what they amount to. The eval run is on record: eval report shows it again, and
--resume goes on with one that was stopped or killed. Then only trials without a result run, and those whose inputs changed since: steps, what they name in the store, models.
Addresses, paths and numbers at once are no inputs. --explain prints what would become of each trial, and why.

At most --concurrency trials run at once, no more than the configured runner has workers, and fewer while the machine has no room.

Exit codes: 0 all ran; 1 refused, or a trial failed, could not be run or was cancelled; 2 the command line can't be meant; 3 the mean score is below --fail-under;
130 Ctrl-C; 143 SIGTERM.`,
		Example:           "  agent-env eval run mail/nightly --k 4 --fail-under 0.8\n  agent-env eval run --resume 3fa9 --explain\n  agent-env eval run --resume 3fa9",
		Args:              cobra.ArbitraryArgs, // ID tells of too many and too few
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.Check(cmd); err != nil {
				return err
			}
			r := bundlerun.EvalRequest{Resume: o.resume, Explain: o.explain}
			if o.resume == "" {
				if o.explain {
					return verb.Usagef("--explain tells of an eval run that is gone on with: it needs --resume EVALRUN")
				}
				id, err := o.which.ID(cmd, args)
				if err != nil {
					return err
				}
				r.Eval, r.Version = id, *o.which.Version
				return run(cmd.Context(), p, &o, r, cmd.Flags().Changed("concurrency"))
			}
			if len(args) > 0 {
				return verb.Usagef("--resume names the eval run; no eval is named beside it")
			}
			for _, name := range trialFlags {
				if cmd.Flags().Changed(name) {
					return verb.Usagef("--%s can't be changed by --resume: the trials would be others; start another eval run", name)
				}
			}
			return run(cmd.Context(), p, &o, r, cmd.Flags().Changed("concurrency"))
		},
	}
	o.which = p.WhichFlags(cmd, "eval", verb.Stored(store.Eval))
	o.Flags = runview.AddFlags(cmd)
	cmd.Flags().StringVar(&o.resume, "resume", "", "go on with this `EVALRUN`, by its id or the beginning of it")
	cmd.Flags().BoolVar(&o.explain, "explain", false, "with --resume, print what would become of each trial and why, and do nothing")
	return cmd
}

func run(ctx context.Context, p *verb.Program, o *runOptions, r bundlerun.EvalRequest, bound bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	if r.Options, err = o.Options(ctx, a); err != nil {
		return err
	}
	r.Options.AllowUnknownFields = a.TaskOptions(o.Unknown).AllowUnknownFields
	r.K, r.DryRun = o.K, o.DryRun
	r.Concurrency = atOnce(a, o.Concurrency, bound)
	engine, err := a.Engine(ctx)
	if err != nil {
		return err
	}
	if !o.DryRun && !o.explain {
		p.Sweep(ctx, a)
	}
	show := o.Show()
	show.Trials = true
	rep := &trials{Reporter: runview.New(ctx, p, show), p: p, json: *o.JSON}
	defer rep.Close()
	if o.explain {
		out, err := engine.RunEval(ctx, r, rep)
		if err != nil {
			rep.Refused(err)
			return err
		}
		rep.show(out.Plan)
		return nil
	}
	quiet := runview.Interruptible(ctx, p, a)
	defer quiet()
	out, err := engine.RunEval(ctx, r, rep)
	if err != nil {
		rep.Refused(err)
		return err
	}
	sum := out.Summary
	if sum.Writes == nil {
		sum.Writes = []ledger.Line{} // nothing is written but the runs' records
	}
	saved := o.Save(ctx, p, sum)
	ended := runview.End(ctx, p, engine, rep, sum, o.Under(), *o.JSON)
	if !o.DryRun {
		p.Streams.Note("Eval run %s: agent-env eval report %s", out.Run.ID, out.Run.ID[:min(8, len(out.Run.ID))])
	}
	if under := o.Under(); under != nil && !o.DryRun {
		if text := report.Judge(&sum.Stats, *under).Text(&sum.Stats); text != "" {
			p.Streams.Problem("%s", text)
		}
	}
	return errors.Join(ended, saved)
}

// atOnce is how many trials run at once: what was asked, within the workers of the configured runner.
func atOnce(a *app.App, asked int, given bool) int {
	workers, set := a.Config().Workers()
	switch {
	case !set:
		return asked
	case !given:
		return workers
	default:
		return min(asked, workers)
	}
}

// trials shows what becomes of the trials of an eval run that is gone on with, beside what a Reporter shows.
type trials struct {
	runview.Reporter
	p    *verb.Program
	json bool
}

// Trials tells of trials that run again: those that stand, and those that never ran, are counted.
func (t *trials) Trials(plan []bundlerun.TrialPlan) {
	if t.json {
		t.show(plan)
		return
	}
	n := map[string]int{}
	for _, x := range plan {
		n[x.Action]++
	}
	t.p.Streams.Note("%d of %d trials stand, %d run again, %d never ran", n[bundlerun.TrialKept], len(plan), n[bundlerun.TrialAgain], n[bundlerun.TrialNew])
}

func (t *trials) show(plan []bundlerun.TrialPlan) {
	if t.json {
		_ = t.p.Streams.JSON(planned{verb.V1(), "trials", plan}) // a lost output is told by Streams.Failed
		return
	}
	what := map[string]string{bundlerun.TrialKept: "stands", bundlerun.TrialAgain: "runs again", bundlerun.TrialNew: "runs"}
	for _, x := range plan {
		t.p.Streams.Printf("%s %s: %s: %s\n", term.Clean(x.Task), fmt.Sprintf("trial %d", x.Trial), what[x.Action], term.Clean(x.Why))
	}
}

// planned is the line of --json.
type planned struct {
	verb.Format
	Type   string                `json:"type"`
	Trials []bundlerun.TrialPlan `json:"trials"`
}
