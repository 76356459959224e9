// Package runview shows what running tasks does, as text or as JSON lines, for every command that runs some: the walk's writes, the steps of runs as
// they happen, and the summary.
package runview

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
)

// Reporter shows one command's runs.
type Reporter interface {
	bundlerun.Reporter
	bundlerun.Holder
	bundlerun.Worker
	bundlerun.Explainer
	// Refused tells of a walk that stopped at problems; they themselves are the command's error.
	Refused(error)
	// Summary tells how all of it ended, with the exit code.
	Summary(*bundlerun.Summary, int)
	// Close ends what is drawn on a terminal. It may be called again.
	Close()
}

// Options are how to show it.
type Options struct {
	DryRun bool
	Trials bool // tasks run more than once
	JSON   bool
}

// New makes a Reporter. The caller closes it.
func New(ctx context.Context, p *verb.Program, o Options) Reporter {
	if o.JSON {
		return &jsonReporter{s: p.Streams}
	}
	return newText(ctx, p, o)
}

// End prints how all ended, holds up what is kept, and answers the command's exit code as an error. failUnder is the mean score that is asked for;
// nil asks for none.
func End(ctx context.Context, p *verb.Program, engine *bundlerun.Engine, rep Reporter, sum *bundlerun.Summary, failUnder *float64, asJSON bool) error {
	code := sum.Exit(failUnder)
	rep.Summary(sum, code)
	if len(sum.Kept) > 0 {
		if err := Hold(ctx, p, engine, sum, asJSON); err != nil {
			return err
		}
		return verb.Final(code)
	}
	if code != verb.Done {
		return verb.Exit(code)
	}
	return nil
}

// problems is what an error holds of them.
func problems(err error) diag.List {
	if l, ok := diag.From(err); ok {
		return l
	}
	return diag.List{{Code: "error", Summary: err.Error()}}
}

// Interruptible says that a first signal was seen, and what a second one leaves. The function that it answers ends that.
func Interruptible(ctx context.Context, p *verb.Program, a *app.App) (stop func()) {
	p.OnAbort(func() []string {
		var lines []string
		for _, l := range a.Standing() {
			lines = append(lines, fmt.Sprintf("  %s  %s  sandbox %s of %s", l.Box.ID, l.Box.Provider, l.Name, l.Run))
		}
		if len(lines) == 0 {
			return nil
		}
		return append([]string{"Still up, until this process has ended or their lease has (agent-env sandbox list):"}, lines...)
	})
	var standing atomic.Int64 // when the signal came: what it takes down may be gone before that is told
	p.OnCancel(func() { standing.Store(int64(len(a.Standing()))) })
	told := context.AfterFunc(ctx, func() {
		p.Streams.Note("%s", cancelling(int(standing.Load())))
	})
	return func() { told() }
}

// cancelling says what a first signal does to so many sandboxes.
func cancelling(sandboxes int) string {
	text := "Cancelling"
	if sandboxes > 0 {
		text += ": taking down " + diag.Count(sandboxes, "sandbox")
	}
	return text + " (Ctrl-C again to stop now)"
}

// Hold keeps sandboxes up until a signal comes or the last lease has ended, then takes them down.
func Hold(ctx context.Context, p *verb.Program, engine *bundlerun.Engine, sum *bundlerun.Summary, asJSON bool) error {
	n := len(sum.Kept)
	var last time.Time
	for _, k := range sum.Kept {
		if k.Box.Expires.After(last) {
			last = k.Box.Expires
		}
	}
	p.Streams.Note("\nHolding %s up until %s; Ctrl-C takes them down.", diag.Count(n, "sandbox"), verb.Time(p.Streams, last))
	select {
	case <-ctx.Done():
	case <-time.After(time.Until(last)):
	}
	before := sum.TornDown
	err := engine.Down(ctx, sum)
	if !asJSON {
		p.Streams.Printf("\nTore down %s.\n", diag.Count(sum.TornDown-before, "sandbox"))
	}
	return err
}
