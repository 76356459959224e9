package runs

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/runview"
	"agentenv.internal/agentenv/internal/cli/verb"
)

type resumeOptions struct {
	explain bool
	version *int
	json    *bool
}

func newResume(p *verb.Program) *cobra.Command {
	var o resumeOptions
	cmd := &cobra.Command{
		Use:   "resume RUN",
		Short: "Go on with a run that nobody drives any more",
		Long: `Goes on with a run whose process was killed or lost: what has ended stays, unless it made a sandbox that is gone and that a step still needs; the rest runs.
What becomes of each step, and why, is printed first; --explain prints that and does nothing.

The run keeps its id, its options and the version of its task. With --version it goes on with another version, and steps that differ run again.

Exit codes are those of agent-env run.`,
		Example:           "  agent-env runs resume hello-03hyh3l6 --explain\n  agent-env runs resume 03hyh3l6",
		Args:              verb.Args("RUN"),
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := verb.CheckVersion(cmd, *o.version); err != nil {
				return err
			}
			return resume(cmd.Context(), p, args[0], o)
		},
	}
	cmd.Flags().BoolVar(&o.explain, "explain", false, "tell what would be done with each step, and why; do nothing")
	o.version = cmd.Flags().Int("version", 0, "go on with this version of the task")
	o.json = verb.JSONFlag(cmd, "print one JSON object per line, the last of them the summary; with --explain one object")
	return cmd
}

// explained is what --explain --json prints.
type explained struct {
	verb.Format
	bundlerun.Resumed
}

func resume(ctx context.Context, p *verb.Program, text string, o resumeOptions) error {
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
	opts := bundlerun.ResumeOptions{Explain: o.explain, Version: *o.version}
	if o.explain {
		found, err := engine.Resume(ctx, id, opts, nil)
		if err != nil {
			return err
		}
		if *o.json {
			return p.Streams.JSON(explained{verb.V1(), found})
		}
		for _, st := range found.Steps {
			p.Streams.Printf("%s\n", runview.PlanText(st))
		}
		return nil
	}
	rep := runview.New(ctx, p, runview.Options{JSON: *o.json})
	defer rep.Close()
	quiet := runview.Interruptible(ctx, p, a)
	defer quiet()
	found, err := engine.Resume(ctx, id, opts, rep)
	if err != nil {
		rep.Refused(err)
		return err
	}
	return runview.End(ctx, p, engine, rep, found.Summary, nil, *o.json)
}
