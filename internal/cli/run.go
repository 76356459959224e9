package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/bundlerun"
	clibundle "agentenv.internal/agentenv/internal/cli/bundle"
	"agentenv.internal/agentenv/internal/cli/runview"
	"agentenv.internal/agentenv/internal/cli/verb"
)

type runOptions struct {
	tasks, evals          []string
	k, concurrency        int
	failUnder             float64
	scored                bool // --fail-under was given
	sandbox, isolation    string
	keep, dryRun, unknown bool
	json                  *bool
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
			o.scored = cmd.Flags().Changed("fail-under")
			if len(args) == 0 {
				return listInstead(cmd, p, *o.json)
			}
			return runBundle(cmd.Context(), p, args[0], o)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.tasks, "task", nil, "run this `TASK`, by name or id; repeatable")
	f.StringArrayVar(&o.evals, "eval", nil, "run the tasks of this `EVAL`, by name or id; repeatable")
	f.IntVar(&o.k, "k", 1, "run every task `N` times")
	f.IntVar(&o.concurrency, "concurrency", bundlerun.DefaultConcurrency, "run at most `N` tasks at once")
	f.Float64Var(&o.failUnder, "fail-under", 0, "exit with 3 when the mean score is below `F`")
	f.StringVar(&o.sandbox, "sandbox", "", "the `PROVIDER`s to try, comma-separated, in place of what steps name")
	f.StringVar(&o.isolation, "isolation", "", "refuse sandboxes that hold less than this `LEVEL`: "+strings.Join(verb.Levels(), ", "))
	f.BoolVar(&o.keep, "keep", false, "keep the sandboxes up after the runs, until Ctrl-C")
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything and tell what would be written and run; write and run nothing")
	f.BoolVar(&o.unknown, "allow-unknown-fields", false, "warn of step fields that this version doesn't know, in place of refusing them")
	o.json = verb.JSONFlag(cmd, "print one JSON object per line, the last of them the summary")
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
	return clibundle.List(p, asJSON)
}

func (o *runOptions) check() error {
	switch {
	case o.k < 1:
		return verb.Usagef("--k is at least 1, not %d", o.k)
	case o.concurrency < 1:
		return verb.Usagef("--concurrency is at least 1, not %d", o.concurrency)
	case o.scored && !(o.failUnder >= 0 && o.failUnder <= 1):
		return verb.Usagef("--fail-under takes a score from 0 to 1, not %g", o.failUnder)
	case o.isolation != "" && !slices.Contains(verb.Levels(), o.isolation):
		return verb.Usagef("--isolation takes %s, not %q", strings.Join(verb.Levels(), ", "), o.isolation)
	case o.keep && o.dryRun:
		return verb.Usagef("--keep and --dry-run exclude each other: a dry run starts no sandbox")
	}
	return nil
}

func runBundle(ctx context.Context, p *verb.Program, text string, o runOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	a, err := p.Ready()
	if err != nil {
		return err
	}
	chain, err := a.Chain(ctx, o.sandbox)
	if err != nil {
		return err
	}
	src, err := a.Bundle(text)
	if err != nil {
		return err
	}
	defer src.Close()
	engine, err := a.Engine(ctx)
	if err != nil {
		return err
	}
	if !o.dryRun {
		p.Sweep(ctx, a)
	}
	rep := runview.New(ctx, p, runview.Options{DryRun: o.dryRun, Trials: o.k > 1, JSON: *o.json})
	defer rep.Close()
	quiet := runview.Interruptible(ctx, p, a)
	defer quiet()
	sum, err := engine.Run(ctx, bundlerun.Request{
		Source: src, Selection: bundle.Selection{Tasks: o.tasks, Evals: o.evals}, K: o.k, Concurrency: o.concurrency, DryRun: o.dryRun,
		Keep: o.keep, Sandbox: chain, Isolation: o.isolation, AllowUnknownFields: o.unknown,
	}, rep)
	if err != nil {
		rep.Refused(err)
		return err
	}
	var under *float64
	if o.scored {
		under = &o.failUnder
	}
	return runview.End(ctx, p, engine, rep, &sum, under, *o.json)
}
