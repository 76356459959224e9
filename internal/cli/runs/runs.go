// Package runs holds the verbs about runs, however they were started.
package runs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/runlog"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("runs", "List, show, watch, stop, resume and forget runs", newList(p), newShow(p), newLogs(p), newWatch(p), newCancel(p), newResume(p),
		newDecide(p), newExport(p), newPrune(p))
}

// open is the log of all runs, after what dead sandboxes left has been swept.
func open(ctx context.Context, p *verb.Program) (runlog.Log, error) {
	a, err := p.Ready()
	if err != nil {
		return nil, err
	}
	p.Sweep(ctx, a)
	return a.RunLog(ctx)
}

// completeIDs offers the newest runs to the shell. It only reads, for a short time.
func completeIDs(p *verb.Program) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), verb.CompletionTime)
		defer cancel()
		a, err := p.App()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		log, err := a.RunLog(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		page, err := log.List(ctx, runlog.Query{Limit: 50})
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		var out []cobra.Completion
		for _, r := range page.Runs {
			out = append(out, cobra.CompletionWithDesc(r.ID, string(r.Status)))
		}
		return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	}
}

// took is how long a run lasted, or has lasted; 0 when it never started.
func took(r runlog.Summary, now time.Time) time.Duration {
	switch {
	case r.Started.IsZero():
		return 0
	case r.Ended.IsZero():
		if r.Owner == nil {
			return 0
		}
		return now.Sub(r.Started)
	default:
		return r.Ended.Sub(r.Started)
	}
}
