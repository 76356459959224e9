package runs

import (
	"context"
	"encoding/json"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/runview"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
)

func newWatch(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "watch RUN",
		Short: "Watch a run until its end, from any terminal",
		Long: `Shows a run as agent-env run does, from its first step on, until it has ended. Ctrl-C ends the watching and nothing else.

Exit codes: 0 it ended well; 1 it failed, could not be run or was cancelled, or nobody drives it any more; 130 Ctrl-C.`,
		Example:           "  agent-env runs watch hello-03hyh3l6",
		Args:              verb.Args("RUN"),
		ValidArgsFunction: completeIDs(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return watch(cmd.Context(), p, args[0], *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object per line, the last of them the summary")
	return cmd
}

func watch(ctx context.Context, p *verb.Program, text string, asJSON bool) error {
	log, id, err := find(ctx, p, text)
	if err != nil {
		return err
	}
	sum, err := log.Get(ctx, id)
	if err != nil {
		return err
	}
	rep := runview.New(ctx, p, runview.Options{JSON: asJSON})
	defer rep.Close()
	v := newViewer(rep, sum)
	for e, err := range follow(ctx, log, id) {
		if err != nil {
			return err
		}
		v.see(e)
	}
	rec, err := runlog.Load(ctx, log, id)
	if err != nil {
		return err
	}
	res := v.end(rec)
	out := bundlerun.Sum(rec.Bundle, rec.Group, res)
	code := out.Exit(nil)
	rep.Summary(&out, code)
	if code != verb.Done {
		return verb.Exit(code)
	}
	return nil
}

// viewer shows a run's events as a Reporter of a run under way would be told of them.
type viewer struct {
	rep      runview.Reporter
	ref      bundlerun.RunRef
	steps    map[string]run.StepStarted
	failures map[string]run.Failure
	begun    bool
}

func newViewer(rep runview.Reporter, s runlog.Summary) *viewer {
	return &viewer{rep: rep, steps: map[string]run.StepStarted{}, failures: map[string]run.Failure{}, ref: bundlerun.RunRef{
		Number: 1, Of: 1, ID: s.ID, Task: s.Task, Label: s.Label, Version: s.TaskVersion, Trial: max(s.Trial, 1), Trials: max(s.Trial, 1), Row: s.Labels["seed"],
	}}
}

// see shows one event. What can't be read was written by another version, and shows nothing.
func (v *viewer) see(e runlog.Event) {
	switch e.Kind {
	case runlog.RunStarted:
		var d runlog.RunStart
		if json.Unmarshal(e.Data, &d) != nil {
			return
		}
		for i, st := range d.Steps {
			v.steps[st.ID] = run.StepStarted{Number: i + 1, Of: len(d.Steps), ID: st.ID, Type: st.Type}
		}
		if d.Version > 0 {
			v.ref.Version = d.Version
		}
		if !v.begun {
			v.begun = true
			v.rep.RunStarted(v.ref)
		}
	case runlog.StepStarted:
		st := v.step(e)
		v.steps[e.Step] = st
		v.rep.StepStarted(v.ref, st)
	case runlog.StepEnded:
		var d runlog.StepEnd
		if json.Unmarshal(e.Data, &d) != nil || d.Status == runlog.Skipped {
			return
		}
		st := v.step(e)
		out := run.StepEnded{StepStarted: st, Status: d.Status, Seconds: d.Seconds, Again: d.Again}
		delete(v.failures, e.Step)
		if d.ErrorType != "" {
			out.Failure = &run.Failure{
				Step: e.Step, Type: st.Type, ErrorType: d.ErrorType, Error: d.Error, Fatal: d.Fatal, Infra: d.Infra || d.Status == runlog.InfraFailed,
			}
			v.failures[e.Step] = *out.Failure
		}
		v.rep.StepEnded(v.ref, out)
	}
}

func (v *viewer) step(e runlog.Event) run.StepStarted {
	st := v.steps[e.Step]
	st.ID = e.Step
	if e.Attempt > 0 {
		st.Attempt = e.Attempt
	}
	return st
}

// end shows the run's end and answers it as its owner booked it.
func (v *viewer) end(r runlog.Record) bundlerun.RunResult {
	res := bundlerun.RunResult{
		RunRef: v.ref, Started: !r.Started.IsZero(), Status: r.Status, Scores: r.Scores, Isolation: r.Isolation, Cost: r.Cost, TakenOver: r.TakenOver, Seconds: r.Ended.Sub(r.Started).Seconds(),
	}
	if r.Error != "" {
		f, ok := v.failures[r.FailedAt]
		if !ok || f.Error != r.Error {
			f = run.Failure{Step: r.FailedAt, ErrorType: "Error", Error: r.Error, Fatal: true, Infra: r.Status == runlog.InfraFailed}
		}
		res.Failures = []run.Failure{f}
	}
	v.rep.RunEnded(res)
	return res
}
