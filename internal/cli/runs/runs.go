// Package runs holds the verbs about runs, however they were started.
package runs

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/runlog"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("runs", "List, show, watch, stop, resume and forget runs", newList(p), newShow(p), newLogs(p), newWatch(p), newCancel(p), newResume(p), newRegrade(p),
		newDecide(p), newReply(p), newExport(p), newPrune(p))
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

// find is the log of all runs and the run that a person names: by its id, or by a part that no other id has.
func find(ctx context.Context, p *verb.Program, text string) (runlog.Log, string, error) {
	log, err := open(ctx, p)
	if err != nil {
		return nil, "", err
	}
	id, err := log.Resolve(ctx, text)
	return log, id, err
}

// completeIDs offers the newest runs to the shell.
func completeIDs(p *verb.Program) cobra.CompletionFunc {
	return p.CompleteFirst(newest, cobra.ShellCompDirectiveNoFileComp)
}

func newest(ctx context.Context, a *app.App, _ string) ([]cobra.Completion, error) {
	log, err := a.RunLog(ctx)
	if err != nil {
		return nil, err
	}
	page, err := log.List(ctx, runlog.Query{Limit: 50})
	var out []cobra.Completion
	for _, r := range page.Runs {
		out = append(out, cobra.CompletionWithDesc(r.ID, string(r.Status)))
	}
	return out, err
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
