package bundlerun

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/taskstore"
)

// EvalRun is what is stored of one run of an eval: what was asked, so that it can be gone on with and told of. Its trials are the runs of its group.
type EvalRun struct {
	ID      string              `json:"eval_run_id"` // the group of its runs
	Eval    string              `json:"eval_id"`
	Version int                 `json:"eval_version"`
	Tasks   []taskstore.TaskRef `json:"tasks"` // as the eval lists them; version 0 is the latest, whenever it is asked for
	K       int                 `json:"k"`
	Options runlog.Options      `json:"options,omitzero"`
	Created time.Time           `json:"created"`
	Program string              `json:"agent_env_version,omitempty"`
	// Inputs are those of its trials, by digest: see runlog.Options.Inputs.
	Inputs map[string]map[string]string `json:"inputs"`
}

const (
	// evalRunType is the type of the documents (of kind store.Blob) that hold an EvalRun.
	evalRunType = "eval_run"
	// evalRunPrefix begins their ids.
	evalRunPrefix = "eval run "
)

// Actions of a TrialPlan.
const (
	TrialKept  = "kept"   // its result stands
	TrialAgain = "again"  // it runs once more
	TrialNew   = "starts" // it never ran
)

// TrialPlan is what becomes of one trial when an eval run is gone on with, and why.
type TrialPlan struct {
	Task   string `json:"task_id"`
	Trial  int    `json:"trial"`
	Action string `json:"action"`
	Why    string `json:"why"`
	Run    string `json:"run_id,omitempty"` // of the result that stands, or that is replaced
}

// EvalRequest is which eval to run, or which eval run to go on with.
type EvalRequest struct {
	Eval    string
	Version int // 0: the latest
	K       int // 0 is once
	Options runlog.Options
	// Resume is the id of an eval run: everything above but Options.Keep and Options.Parallel is its own then.
	Resume string
	// Explain tells what would become of each trial, and does nothing.
	Explain bool
	// Concurrency is how many runs are under way at once; 0 is DefaultConcurrency.
	Concurrency int
	DryRun      bool
}

// EvalOutcome is what RunEval found and did.
type EvalOutcome struct {
	Run     EvalRun
	Plan    []TrialPlan // of an eval run that is gone on with
	Summary *Summary    // nil of an explanation
}

// EvalReporter is a Reporter that is told what becomes of the trials of an eval run that is gone on with.
type EvalReporter interface {
	Trials([]TrialPlan)
}

// RunEval runs an eval, or goes on with an eval run: only trials without a result, and those whose inputs are others now. What is wrong is a
// diag.Refusal, and nothing was written then.
func (e *Engine) RunEval(ctx context.Context, r EvalRequest, rep Reporter) (EvalOutcome, error) {
	x, before, err := e.evalRun(ctx, r)
	out := EvalOutcome{Run: x}
	if err != nil {
		return out, err
	}
	s := Summary{DryRun: r.DryRun, Runs: []RunResult{}, Group: x.ID, Evals: []EvalResult{{ID: x.Eval, Label: x.Eval, Version: x.Version}}}
	for _, t := range x.Tasks {
		s.Evals[0].Tasks = append(s.Evals[0].Tasks, t.ID)
	}
	jobs, err := e.storedJobs(ctx, StoredRequest{Eval: x.Eval, K: x.K, Options: x.Options}, x.Tasks, rep)
	if err != nil {
		return out, err
	}
	if err := e.identify(ctx, &x, jobs); err != nil {
		return out, err
	}
	out.Run = x
	var kept []RunResult
	todo := jobs
	if before > 0 {
		if todo, kept, out.Plan, err = e.sift(ctx, &x, jobs); err != nil || r.Explain {
			return out, err
		}
		if t, ok := rep.(EvalReporter); ok && !r.DryRun {
			t.Trials(out.Plan)
		}
	}
	out.Summary = &s
	if r.DryRun {
		for _, j := range todo {
			s.WouldRun = append(s.WouldRun, j.ref)
		}
		return out, nil
	}
	if err := e.putEvalRun(ctx, &x, before); err != nil {
		return out, err
	}
	e.settle(ctx, out.Plan)
	e.runAll(ctx, r.Concurrency, rep, &s, todo)
	s.Runs = append(s.Runs, kept...)
	slices.SortStableFunc(s.Runs, func(a, b RunResult) int { return a.Number - b.Number })
	s.sum()
	return out, nil
}

// evalRun is the eval run that a request means, and the version of its document; 0 for a new one.
func (e *Engine) evalRun(ctx context.Context, r EvalRequest) (EvalRun, int, error) {
	if r.Resume != "" {
		x, v, err := e.storedRun(ctx, r.Resume) // an eval's id means the latest that can be gone on with
		if err == nil && v == 0 {
			x, v, err = e.EvalRun(ctx, r.Resume)
		}
		if err == nil && v == 0 {
			err = diag.List{{Code: "eval.resume", Summary: diag.Repr(r.Resume) + " was not started by eval run, so what it lacks isn't known", Fix: "agent-env runs resume goes on with single runs"}}.Err()
		}
		x.Options.Keep, x.Options.Parallel = r.Options.Keep, r.Options.Parallel
		return x, v, err
	}
	st, err := taskstore.New(e.Store, e.Bundle.Kinds).Get(ctx, store.Eval, r.Eval, r.Version)
	if err != nil {
		return EvalRun{}, 0, err
	}
	return EvalRun{
		ID: newGroup(), Eval: r.Eval, Version: st.Version, Tasks: st.Tasks(), K: max(1, r.K), Options: r.Options, Program: e.Program,
		Created: time.Now().UTC().Truncate(time.Microsecond), Inputs: map[string]map[string]string{},
	}, 0, nil
}

// identify gives every job the digest of its inputs.
func (e *Engine) identify(ctx context.Context, x *EvalRun, jobs []job) error {
	byTask := map[string]string{}
	x.Inputs = maps.Clone(x.Inputs)
	if x.Inputs == nil {
		x.Inputs = map[string]map[string]string{}
	}
	for i := range jobs {
		j := &jobs[i]
		d, known := byTask[j.ref.Task]
		if !known {
			in, err := e.inputs(ctx, *j)
			if err != nil {
				return err
			}
			d = digestOf(in)
			byTask[j.ref.Task], x.Inputs[d] = d, in
		}
		j.options.Inputs = d
	}
	return nil
}

type trialKey struct {
	task  string
	trial int
}

// sift tells which jobs are still to do. It refuses while somebody runs trials of the eval run.
func (e *Engine) sift(ctx context.Context, x *EvalRun, jobs []job) (todo []job, kept []RunResult, plan []TrialPlan, err error) {
	runs, err := e.newest(ctx, x.ID, "")
	if err != nil {
		return nil, nil, nil, err
	}
	var driven []string
	for _, j := range jobs {
		sum, ran := runs[trialKey{j.ref.Task, j.ref.Trial}]
		p := TrialPlan{Task: j.ref.Task, Trial: j.ref.Trial, Action: TrialNew, Why: "it never ran"}
		if ran {
			p.Run = sum.ID
			if !sum.Status.Ended() && sum.Status != runlog.Interrupted {
				driven = append(driven, sum.ID)
			}
			p.Action, p.Why = again(sum, x.Inputs, j.options.Inputs)
		}
		if p.Action == TrialKept {
			res, err := e.result(ctx, j.ref, sum)
			if err != nil {
				return nil, nil, nil, err
			}
			kept = append(kept, res)
		} else {
			todo = append(todo, j)
		}
		plan = append(plan, p)
	}
	if len(driven) > 0 {
		return nil, nil, nil, diag.List{{
			Code: "eval.driven", Summary: fmt.Sprintf("the eval run is under way: %s of its runs are driven, such as %s", count(len(driven)), driven[0]),
			Fix: "wait for it, or cancel its runs",
		}}.Err()
	}
	return todo, kept, plan, nil
}

func count(n int) string { return fmt.Sprint(n) }

// again tells whether the result of a trial's newest run stands.
func again(sum runlog.Summary, inputs map[string]map[string]string, now string) (action, why string) {
	switch {
	case sum.Status == runlog.Interrupted:
		return TrialAgain, "its end is not on record"
	case sum.Status == runlog.InfraFailed:
		return TrialAgain, "it could not be run: " + sum.Error
	case sum.Status == runlog.Cancelled:
		return TrialAgain, "it was cancelled"
	case sum.Options.Inputs != now:
		why := strings.Join(differences(inputs[sum.Options.Inputs], inputs[now]), "; ")
		if inputs[sum.Options.Inputs] == nil {
			why = "what it ran with is not on record"
		}
		return TrialAgain, why
	default:
		return TrialKept, fmt.Sprintf("it ended %s, and nothing that it depends on changed", sum.Status)
	}
}

// newest are the newest runs of a group by their trial; eval restricts them to those that were made for one.
func (e *Engine) newest(ctx context.Context, group, eval string) (map[trialKey]runlog.Summary, error) {
	out := map[trialKey]runlog.Summary{}
	for q := (runlog.Query{Group: group, Eval: eval, Limit: 1000}); ; {
		page, err := e.Runs.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, s := range page.Runs { // newest first
			k := trialKey{s.Task, max(s.Trial, 1)}
			if _, seen := out[k]; !seen {
				out[k] = s
			}
		}
		if q.After = page.Next; q.After == "" {
			return out, nil
		}
	}
}

// result is a run that has ended as a summary counts it.
func (e *Engine) result(ctx context.Context, at RunRef, sum runlog.Summary) (RunResult, error) {
	rec, err := runlog.Load(ctx, e.Runs, sum.ID)
	if err != nil {
		return RunResult{}, err
	}
	at.ID, at.Version = sum.ID, rec.TaskVersion
	res := RunResult{RunRef: at, Started: true, Status: rec.Status, Scores: rec.Scores, Isolation: rec.Isolation, Cost: rec.Cost, TakenOver: rec.TakenOver}
	if !rec.Started.IsZero() && !rec.Ended.IsZero() {
		res.Seconds = rec.Ended.Sub(rec.Started).Seconds()
	}
	return res, nil
}

// settle ends interrupted runs that other runs take the place of, so that lists don't offer to resume them.
func (e *Engine) settle(ctx context.Context, plan []TrialPlan) {
	for _, p := range plan {
		if p.Action != TrialAgain || p.Run == "" {
			continue
		}
		if sum, err := e.Runs.Get(ctx, p.Run); err != nil || sum.Status != runlog.Interrupted {
			continue
		}
		if _, err := e.Cancel(ctx, p.Run); err != nil {
			e.Log.Warn("end a run that another one replaces", "run", p.Run, "error", err)
		}
	}
}

// putEvalRun stores x as the version after before.
func (e *Engine) putEvalRun(ctx context.Context, x *EvalRun, before int) error {
	body, err := json.Marshal(x)
	if err != nil {
		return err
	}
	stage, err := e.Store.Begin(ctx)
	if err != nil {
		return err
	}
	stage.Doc(store.Doc{Kind: store.Blob, ID: evalRunPrefix + x.ID, Version: before + 1, Type: evalRunType, Body: body}, store.LatestIs(before))
	if err := stage.Commit(ctx); err != nil {
		return fmt.Errorf("store the eval run: %w", errors.Join(err, stage.Discard()))
	}
	return nil
}

// EvalRun is the eval run that a text means, and its document's version: its id or the beginning of one, or an eval's id, whose latest run is meant. Runs
// of an eval that another command made, such as run of its bundle, are an eval run without a document: version 0.
func (e *Engine) EvalRun(ctx context.Context, text string) (EvalRun, int, error) {
	x, v, err := e.storedRun(ctx, text)
	if err != nil || v > 0 && x.Eval != text {
		return x, v, err
	}
	latest, err := e.latestGroup(ctx, text)
	switch {
	case err != nil:
		return EvalRun{}, 0, err
	case v == 0 && latest.Group == "":
		return e.groupOf(ctx, text, "")
	case v == 0, latest.Group != x.ID && latest.Created.After(x.Created):
		return e.groupOf(ctx, latest.Group, text)
	default:
		return x, v, nil
	}
}

// storedRun is EvalRun of those with a document alone; version 0 where a text means none of them.
func (e *Engine) storedRun(ctx context.Context, text string) (EvalRun, int, error) {
	all, err := e.EvalRuns(ctx, "")
	if err != nil {
		return EvalRun{}, 0, err
	}
	var found []string
	for _, x := range all { // newest first
		switch {
		case x.ID == text, x.Eval == text:
			return e.readEvalRun(ctx, x.ID)
		case text != "" && strings.HasPrefix(x.ID, text):
			found = append(found, x.ID)
		}
	}
	switch len(found) {
	case 0:
		return EvalRun{}, 0, nil
	case 1:
		return e.readEvalRun(ctx, found[0])
	default:
		return EvalRun{}, 0, diag.List{{
			Code: "eval.ambiguous", Summary: fmt.Sprintf("%s is several eval runs: %s", diag.Repr(text), strings.Join(found, ", ")), Fix: "give more of the id",
		}}.Err()
	}
}

func (e *Engine) readEvalRun(ctx context.Context, id string) (EvalRun, int, error) {
	d, err := e.Store.Get(ctx, store.Blob, evalRunPrefix+id, 0)
	if err != nil {
		return EvalRun{}, 0, err
	}
	var x EvalRun
	if err := json.Unmarshal(d.Body, &x); err != nil {
		return x, 0, fmt.Errorf("the eval run %s can't be read: %w", id, err)
	}
	return x, d.Version, nil
}

// latestGroup is the latest run that was made for an eval; none has no group.
func (e *Engine) latestGroup(ctx context.Context, eval string) (runlog.Summary, error) {
	if eval == "" {
		return runlog.Summary{}, nil
	}
	page, err := e.Runs.List(ctx, runlog.Query{Eval: eval, Limit: 1})
	if err != nil || len(page.Runs) == 0 {
		return runlog.Summary{}, err
	}
	return page.Runs[0], nil
}

// groupOf makes an eval run of the runs of another command, such as run --eval: of all of them, or of those that were made for one eval.
func (e *Engine) groupOf(ctx context.Context, group, eval string) (EvalRun, int, error) {
	x := EvalRun{ID: group}
	runs, err := e.newest(ctx, group, eval)
	if err != nil {
		return x, 0, err
	}
	if len(runs) == 0 || group == "" {
		return x, 0, diag.List{{
			Code: "eval.unknown", Summary: "there is no eval run " + diag.Repr(group), Fix: "agent-env eval list --runs shows those that there are",
		}}.Err()
	}
	seen, evals := map[string]bool{}, map[string]bool{}
	for _, k := range slices.SortedFunc(maps.Keys(runs), func(a, b trialKey) int { return strings.Compare(a.task, b.task) }) {
		s := runs[k]
		x.K = max(x.K, k.trial)
		x.Options = s.Options
		if evals[s.Eval] = true; len(evals) == 1 {
			x.Eval = s.Eval
		} else {
			x.Eval = "" // of several
		}
		if x.Created.IsZero() || s.Created.Before(x.Created) {
			x.Created = s.Created
		}
		if !seen[k.task] {
			seen[k.task] = true
			x.Tasks = append(x.Tasks, taskstore.TaskRef{ID: k.task, Version: s.TaskVersion})
		}
	}
	return x, 0, nil
}

// EvalRuns are the stored eval runs, newest first; eval restricts them to those of one.
func (e *Engine) EvalRuns(ctx context.Context, eval string) ([]EvalRun, error) {
	var out []EvalRun
	for q := (store.Query{Kind: store.Blob, Type: evalRunType, Prefix: evalRunPrefix, Limit: 1000}); ; {
		page, err := e.Store.List(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, d := range page.Docs {
			var x EvalRun
			if json.Unmarshal(d.Body, &x) == nil && (eval == "" || x.Eval == eval) {
				out = append(out, x)
			}
		}
		if q.After = page.Next; q.After == "" {
			slices.SortStableFunc(out, func(a, b EvalRun) int { return b.Created.Compare(a.Created) })
			return out, nil
		}
	}
}
