package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/bundlerun"
	clibundle "agentenv.internal/agentenv/internal/cli/bundle"
	"agentenv.internal/agentenv/internal/cli/runview"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

type runOptions struct {
	tasks, evals []string
	*runview.Flags
}

func newRun(p *verb.Program) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [BUNDLE]",
		Short: "Check, write, run and score a bundle, or list the installed ones",
		Long: `Checks a bundle, writes what is new in it, runs its tasks in isolated sandboxes, and prints how each ended.

BUNDLE is a folder or the name of an installed bundle; what begins with ".", "/" or "~" is always a folder. Without BUNDLE the installed ones are listed.
Without --task and --eval it runs every eval, or every task where there is no eval. Nothing is written while anything is wrong: all problems are told
at once.

The sandboxes of a run go when it ends. Ctrl-C or SIGTERM cancels what runs, takes it down and prints what ran; a second one stops at once and tells what
is left.

Exit codes: 0 all ran; 1 refused, or a run failed, could not be run or was cancelled; 2 the command line can't be meant; 3 the mean score is below
--fail-under; 130 Ctrl-C; 143 SIGTERM.`,
		Example: `  agent-env run hello
  agent-env run ./my-bundle --task first --dry-run
  agent-env run ./my-bundle --k 5 --concurrency 2 --fail-under 0.8 --json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return verb.Usagef("agent-env run takes one BUNDLE, but also got %s", strings.Join(args[1:], " "))
			}
			return nil
		},
		ValidArgsFunction: clibundle.CompleteNames(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listInstead(cmd, p, *o.JSON)
			}
			if err := o.Check(cmd); err != nil {
				return err
			}
			return runBundle(cmd.Context(), p, args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.tasks, "task", nil, "run this `TASK`, by name or id; repeatable")
	f.StringArrayVar(&o.evals, "eval", nil, "run the tasks of this `EVAL`, by name or id; repeatable")
	o.Flags = runview.AddFlags(cmd)
	return cmd
}

// listInstead is `run` without a bundle. Flags that choose what to run need something to choose from.
func listInstead(cmd *cobra.Command, p *verb.Program, asJSON bool) error {
	var given []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name != "json" && cmd.Root().PersistentFlags().Lookup(f.Name) == nil {
			given = append(given, "--"+f.Name)
		}
	})
	if len(given) > 0 {
		return verb.Usagef("%s needs a BUNDLE; agent-env run alone lists the installed ones", strings.Join(given, ", "))
	}
	return clibundle.List(cmd.Context(), p, asJSON)
}

// refusal tells an error that says what is wrong from one that only ends the command.
func refusal(err error) bool {
	_, again := errors.AsType[*verb.Again](err)
	_, killed := errors.AsType[*verb.Killed](err)
	return !again && !killed && !verb.Silent(err)
}

func runBundle(ctx context.Context, p *verb.Program, text string, o runOptions) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	opts, err := o.Options(ctx, a)
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
	if !o.DryRun {
		p.Sweep(ctx, a)
	}
	rep := runview.New(ctx, p, o.Show())
	defer rep.Close()
	quiet := runview.Interruptible(ctx, p, a)
	defer quiet()
	sum, err := engine.Run(ctx, bundlerun.Request{
		Source: src, Selection: bundle.Selection{Tasks: o.tasks, Evals: o.evals}, K: o.K, Concurrency: o.Concurrency, DryRun: o.DryRun,
		Keep: opts.Keep, Sandbox: opts.Sandbox, Isolation: opts.Isolation, AllowUnknownFields: opts.AllowUnknownFields, Parallel: opts.Parallel,
		Params: opts.Params, Models: opts.Models, Agent: opts.Agent, Film: opts.Film,
	}, rep)
	if err != nil {
		quiet()
		rep.Close()
		if err = p.Offer(ctx, err, o.DryRun); refusal(err) {
			rep.Refused(err)
		}
		return err
	}
	saved := o.Save(ctx, p, &sum)
	ended := runview.End(ctx, p, engine, rep, &sum, o.Under(), *o.JSON)
	if !o.DryRun {
		for _, e := range sum.Evals {
			p.Streams.Note("More of %s: agent-env eval report %s", term.Clean(e.Label), e.ID)
		}
	}
	return errors.Join(ended, saved)
}
