// Package bundlerun is the walk from a bundle to its summary: parse, resolve, plan, preflight, write, run, sum up, take down. A check, a dry run and
// a run are the same walk, stopped at another stage.
//
// It decides nothing that a stage decides and prints nothing: internal/bundle reads, internal/ledger writes, internal/run runs, and a Reporter
// is told of what happens.
package bundlerun

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"slices"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/run"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
)

// DefaultConcurrency is how many tasks run at once when a Request doesn't say.
const DefaultConcurrency = 4

// Engine walks bundles. A Check needs Bundle alone; a dry run needs Store and Executors beside it.
type Engine struct {
	// Bundle is what reading depends on: the step types, and aliases from configuration.
	Bundle    bundle.Options
	Executors *catalog.Set[step.Executor]
	Store     store.Store
	Runs      runlog.Log
	Deploy    *deploy.Deployments
	Records   Records // where killed runs may have left films; the zero one: nowhere
	Log       *slog.Logger
	// Machine holds runs and steps back while there is no room for them; nil never does.
	Machine *Machine
	// CheckType asks the plugin of a write's type what is wrong with its config, and MakeArtifact what is stored of an artifact; nil: no type is a plugin's.
	CheckType    func(ctx context.Context, w *bundle.Write) diag.List
	MakeArtifact ledger.Maker
	// Pin asks a registry which image a reference names; nil: there is no way to ask.
	Pin ledger.Pinner
	// Settings are what of the configuration can change how a trial of an eval ends, by a name that people understand; nil: nothing.
	Settings func(context.Context) (map[string]string, error)
	// Program is the version of this program, for records.
	Program string
	// Secrets resolves references to secrets in steps; nil knows none.
	Secrets run.Secrets
	// Redact takes the values of secrets out of what is recorded and said; nil knows none, so set it where Secrets is.
	Redact *redact.Redactor
}

// Request is what to do with a bundle.
type Request struct {
	Source    bundle.Source
	Selection bundle.Selection
	// K is how often each task runs; 0 is once.
	K int
	// Concurrency is how many tasks run at once; 0 is DefaultConcurrency.
	Concurrency int
	// DryRun stops before anything is written.
	DryRun bool
	// Keep leaves the sandboxes of finished runs up; Engine.Down takes them down.
	Keep bool
	// Sandbox is the chain of providers to try in place of what steps name; empty leaves it to them.
	Sandbox []string
	// Isolation is the least level that must hold; "" leaves it to the provider.
	Isolation string
	// AllowUnknownFields turns the refusal of unknown step fields into a warning.
	AllowUnknownFields bool
	// Parallel is how many steps of one run may be under way at once; 0 is no limit.
	Parallel int
	// Models are chosen for the whole run, by role: "agent", "user", "judge".
	Models map[string]string
	// Agent takes the place of the agents that deploy steps name; "" leaves it to them.
	Agent string
	// Declare is what is done about types of plugins that bundle.toml doesn't declare.
	Declare Declaring
	// Film records the screens of the computers that runs deploy.
	Film bool
	// Params are fields of steps in place of the tasks' own, by step and field, for all tasks that have such a step.
	Params map[string]map[string]json.RawMessage
}

func (r *Request) options() runlog.Options {
	return runlog.Options{
		Sandbox: r.Sandbox, Isolation: r.Isolation, Keep: r.Keep, Parallel: r.Parallel, Models: r.Models, Agent: r.Agent, Film: r.Film, AllowUnknownFields: r.AllowUnknownFields,
	}
}

// RunRef is one run of a command's runs.
type RunRef struct {
	Number  int    `json:"number"` // 1..Of, in the order of their start
	Of      int    `json:"of"`
	ID      string `json:"run_id"`
	Task    string `json:"task_id"`
	Label   string `json:"label"` // "tasks/hello.json"
	Version int    `json:"version"`
	Trial   int    `json:"trial"` // 1..Trials
	Trials  int    `json:"trials"`
	Row     string `json:"row,omitempty"` // of the seeds, by its name
}

// WriteReporter is told of what happens until a bundle is written.
type WriteReporter interface {
	// Problems are warnings and hints; what stops the walk is its error.
	Problems(diag.List)
	// Wrote tells of each entity of the bundle, written, unchanged, or in a dry run what would be.
	Wrote(ledger.Line)
	// Declared tells of a bundle.toml that was written, or in a dry run would be.
	Declared(Declared)
	// Waiting tells that another writer got in between and the write is planned again.
	Waiting()
}

// Reporter is told of what happens, from several goroutines at once, but of one run's steps in order. It must not block for long.
type Reporter interface {
	WriteReporter
	RunStarted(RunRef)
	StepStarted(RunRef, run.StepStarted)
	StepEnded(RunRef, run.StepEnded)
	RunEnded(RunResult)
}

// Worker is a Reporter that is told of work that a run waits for and that can take long, from the goroutines that do it.
type Worker interface {
	Working(RunRef, deploy.Work)
}

// Holder is a Reporter that is told when the next run waits for room on this machine, and why.
type Holder interface {
	Holding(why string)
}

// Check reads a bundle and tells everything that is wrong with it, as far as neither a store nor a sandbox is needed.
func (e *Engine) Check(ctx context.Context, src bundle.Source, allowUnknown bool) (diag.List, error) {
	w, err := e.plan(ctx, Request{Source: src, AllowUnknownFields: allowUnknown}, nil)
	return w.problems, err
}

// walked is how far a walk came.
type walked struct {
	bundle   *bundle.Bundle
	plan     *bundle.Plan // nil where problems has errors
	problems diag.List
	unmet    bundle.Unmet // told among the problems
}

// plan reads, resolves and plans; problems of one stage stop the later ones, save that what isn't installed and what the store lacks is told with what
// can't be resolved.
func (e *Engine) plan(ctx context.Context, r Request, v bundle.View) (walked, error) {
	o := e.Bundle
	o.AllowUnknownFields = o.AllowUnknownFields || r.AllowUnknownFields
	b, l := bundle.Parse(r.Source, o)
	w := walked{bundle: b}
	faulty := l.HasErrors()
	var err error
	if w.unmet, err = b.Unmet(ctx); err != nil {
		return w, err
	}
	if l = append(l, w.unmet.Problems()...); faulty {
		w.problems = l
		return w, nil
	}
	found := b.Resolve()
	if len(w.unmet.Install()) > 0 { // which may bring the types that nobody knows yet
		found = slices.DeleteFunc(found, bundle.HeldBack)
	}
	l = append(l, found...)
	var more diag.List
	if l.HasErrors() {
		more, err = b.Missing(ctx, v, r.Selection)
	} else {
		w.plan, more, err = b.Plan(ctx, v, r.Selection)
	}
	w.problems = append(l, more...)
	return w, err
}

// preflight tells what of the tasks to run can't run here.
func (e *Engine) preflight(ctx context.Context, p *bundle.Plan, r Request) diag.List {
	runner := e.runner()
	plan := step.Plan{Sandbox: r.Sandbox, Isolation: r.Isolation, Models: scripts(p, r.Models), Fixed: fixed(r.Params), Agent: r.Agent, Type: e.types(p), Written: e.written(p)}
	var l diag.List
	var tasks []*task.Task
	for _, w := range p.Run {
		tasks = append(tasks, w.Task)
		t, more := e.withParams(w.Task, w.Label, r.Params)
		l = append(l, more...)
		if t != nil {
			l = append(l, runner.Preflight(ctx, t, w.Label, plan)...)
		}
	}
	return append(l, strangers(tasks, r.Params)...)
}

func (e *Engine) runner() *run.Runner {
	r := &run.Runner{Executors: e.Executors, World: e.Deploy, Log: e.Log, Objects: objects{e.Store}, Secrets: e.Secrets, Redact: e.Redact}
	if e.Machine != nil {
		r.Room = e.Machine
	}
	return r
}

// types answers the type of what the plan, which may be nil, writes, and of what the store has.
func (e *Engine) types(p *bundle.Plan) func(context.Context, ref.Kind, string, int) string {
	type key struct {
		kind ref.Kind
		id   string
	}
	planned := map[key]string{}
	if p != nil {
		for _, w := range p.Writes {
			planned[key{w.Kind, w.ID}] = w.Type
		}
	}
	return func(ctx context.Context, k ref.Kind, id string, version int) string {
		if typ, ok := planned[key{k, id}]; ok && version == 0 {
			return typ
		}
		d, err := e.Store.Get(ctx, store.Kind(k), id, version)
		if err != nil {
			return "" // the run itself tells what it can't read
		}
		return d.Type
	}
}

// written answers what a plan is about to write.
func (e *Engine) written(p *bundle.Plan) func(ref.Kind, string) (step.Written, bool) {
	return func(k ref.Kind, id string) (step.Written, bool) {
		i := slices.IndexFunc(p.Writes, func(w *bundle.Write) bool { return w.Kind == k && w.ID == id })
		if i < 0 {
			return step.Written{}, false
		}
		w := p.Writes[i]
		body, err := ledger.Sketch(w)
		if err != nil { // it can't be written either, which says more
			e.Log.Debug("sketch a document", "error", err)
			return step.Written{}, false
		}
		out := step.Written{Type: w.Type, Body: body}
		for _, f := range w.Files {
			out.Paths = append(out.Paths, f.Path)
		}
		out.Open = func(path string) (io.ReadCloser, error) {
			at := slices.IndexFunc(w.Files, func(f bundle.File) bool { return f.Path == path })
			if at < 0 {
				return nil, fs.ErrNotExist
			}
			return w.Files[at].Open()
		}
		return out, true
	}
}

// Down takes down what a Run with Keep left up, and books it in the summary.
func (e *Engine) Down(ctx context.Context, s *Summary) error {
	var ids []string
	for _, k := range s.Kept {
		if len(ids) == 0 || ids[len(ids)-1] != k.Run {
			ids = append(ids, k.Run)
		}
	}
	s.Kept = nil
	return e.down(ctx, s, ids)
}

// Sweep removes what dead sandboxes of earlier processes left behind, and tells what it removed.
func (e *Engine) Sweep(ctx context.Context) ([]deploy.Swept, error) { return e.Deploy.Sweep(ctx) }

// newID is the id of a run of a task: the task's, and eight characters.
func newID(task string) string {
	const chars = "abcdefghijklmnopqrstuvwxyz0123456789"
	b := make([]byte, 8)
	for i := range b {
		for {
			var one [1]byte
			_, _ = rand.Read(one[:]) // never fails
			if int(one[0]) < 256-256%len(chars) {
				b[i] = chars[int(one[0])%len(chars)]
				break
			}
		}
	}
	return task + "-" + string(b)
}

// newGroup is what all runs of one command share.
func newGroup() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
