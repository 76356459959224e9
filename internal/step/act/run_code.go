// Package act executes the steps that act in a task's world: run_code.
//
// A script's code runs in its sandbox and nowhere else; what it prints is its own, and its result comes back as a file.
package act

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

const (
	// maxResult bounds a script's result.
	maxResult = 50 << 20
	// maxFailure bounds what the harness says of a failure.
	maxFailure = 1 << 20
	// workFolder is where scripts start: the folder that verifiers begin from.
	workFolder = "/app"
	// stage is where scripts are put, a folder per step and attempt below it.
	stage = "/tmp/agentenv-run-code"
)

// ResultsPath is where run_code leaves results, by result_id.
const ResultsPath = "metadata/script_results"

//go:embed harness.py
var harness []byte

// Store is what the executors read.
type Store interface {
	store.Docs
	store.Objects
}

// RunCode calls a Python function in a sandbox and keeps its JSON result.
type RunCode struct {
	store Store
	boxes step.Boxes
}

// NewRunCode makes the executor.
func NewRunCode(s Store, b step.Boxes) *RunCode { return &RunCode{s, b} }

var _ step.Preflighter = (*RunCode)(nil)

// Preflight tells which targets and scripts can't be.
func (e *RunCode) Preflight(ctx context.Context, d doc.Node, p step.Plan) diag.List {
	var l diag.List
	if d.Get("sandbox_name").Text() == "" && d.Get("agent_name").Text() == "" {
		l.Add(diag.Problem{
			Pos: d.Get("env_id").Pos(), Where: "env_id", Code: "act.target",
			Summary: "scripts can only run in sandboxes, also of agents, with this version of agent-env", Fix: "name the sandbox in sandbox_name, or the agent in agent_name",
		})
	}
	if p.Type == nil {
		return l
	}
	id := d.Get("script_artifact_id")
	version, _ := d.Get("script_artifact_version").Int()
	if typ := p.Type(ctx, ref.Artifact, id.Text(), int(version)); typ != "" && !artifact.HoldsFiles(typ) {
		l.Add(diag.Problem{
			Pos: id.Pos(), Where: "script_artifact_id", Code: "act.script",
			Summary: fmt.Sprintf("%s is of type %s, which holds no script", diag.Repr(id.Text()), typ),
			Fix:     fmt.Sprintf("use an artifact of type %s or %s", artifact.File, artifact.FileUniverse),
		})
	}
	return l
}

// Run puts the script into the sandbox, calls its function and keeps the result.
func (e *RunCode) Run(ctx context.Context, c *step.Call) error {
	version, _ := c.Doc.Get("script_artifact_version").Int()
	s, err := e.script(ctx, c.Doc.Get("script_artifact_id").Text(), int(version), c.Doc.Get("script_file").Text())
	if err != nil {
		return err
	}
	given, err := input(c)
	if err != nil {
		return err
	}
	box, err := e.boxes.Box(ctx, c.Run, step.Target(c.Doc))
	if err != nil {
		if step.IsInfra(err) {
			return err
		}
		return &step.Error{Type: "SandboxError", Err: err}
	}
	folder := fmt.Sprintf("%s/%s-%d", stage, ref.DigestOf([]byte(c.Step)).Hex()[:12], c.Attempt)
	files := append(e.staged(ctx, s), guest.PutBytes("harness.py", 0o644, harness), guest.PutBytes("input.json", 0o600, given))
	if err := guest.Put(ctx, box, folder, files); err != nil {
		if _, ok := errors.AsType[*guest.SourceError](err); ok {
			return step.Infra(&step.Error{Type: "StoreError", Err: err})
		}
		return fmt.Errorf("put the script into the sandbox: %w", err)
	}
	result, err := e.call(ctx, c, box, folder, s.entry)
	if err != nil {
		return err
	}
	id := c.Doc.Get("result_id").Text()
	if id == "" {
		id = c.Step
	}
	c.Log.Info("the script returned", "result", id, "bytes", len(result))
	return c.Out.Set(step.Child(ResultsPath, id), result)
}

// input is what the function gets: its args and the results of scripts before it.
func input(c *step.Call) ([]byte, error) {
	results := map[string]json.RawMessage{}
	for _, name := range c.State.Under(ResultsPath) {
		id := step.Unchild(name)
		var r json.RawMessage
		if _, err := c.State.Get(step.Child(ResultsPath, id), &r); err != nil {
			return nil, step.Errorf("ValueError", "the result '%s' can't be read: %w", id, err)
		}
		results[id] = r
	}
	args := c.Doc.Get("args").Any()
	if args == nil {
		args = map[string]any{}
	}
	return json.Marshal(map[string]any{"args": args, "results": results})
}

// call runs the harness and answers the result that it wrote.
func (e *RunCode) call(ctx context.Context, c *step.Call, box guest.Box, folder, entry string) (json.RawMessage, error) {
	limit, _ := c.Doc.Get("timeout_seconds").Float()
	cmd := guest.Command{
		Argv:    []string{"python3", "-B", folder + "/harness.py", folder, entry, c.Doc.Get("entrypoint").Text()},
		Env:     []string{"PYTHONUNBUFFERED=1"},
		Dir:     workFolder,
		Timeout: time.Duration(limit * float64(time.Second)),
	}
	streams := [2]printer{{log: c.Log, stream: "stdout"}, {log: c.Log, stream: "stderr"}}
	kept := guest.Keep{Max: maxKept}
	out, err := guest.Output(ctx, box, cmd, guest.Limits{Stdout: maxPrinted, Stderr: maxPrinted, Spill: kept.Spill, Live: func(stderr bool, p []byte) {
		if stderr {
			streams[1].write(p)
		} else {
			streams[0].write(p)
		}
	}})
	streams[0].end(out.Stdout, kept.Stdout)
	streams[1].end(out.Stderr, kept.Stderr)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, fs.ErrNotExist):
		return nil, step.Errorf("RunCodeError", "the sandbox has no python3 (or no folder %s): %w", workFolder, err)
	default:
		return nil, fmt.Errorf("run the script: %w", err)
	}
	switch {
	case out.Exit.TimedOut:
		return nil, step.Errorf("TimeoutError", "the script timed out after %gs (exit %d)", limit, out.Exit.Status())
	case !out.Exit.OK():
		return nil, e.failure(ctx, box, folder, out)
	}
	b, err := box.ReadFile(ctx, folder+"/result.json", maxResult)
	switch {
	case errors.Is(err, guest.ErrTooBig):
		return nil, step.Errorf("ResultError", "the result has more than %d bytes", maxResult)
	case errors.Is(err, fs.ErrNotExist):
		return nil, step.Errorf("ResultError", "the script ended before its function returned")
	case err != nil:
		return nil, fmt.Errorf("read the script's result: %w", err)
	case !json.Valid(b):
		return nil, step.Errorf("ResultError", "the result is not JSON")
	}
	return b, nil
}

// failure is why a script failed: what the harness wrote, else how its process ended.
func (e *RunCode) failure(ctx context.Context, box guest.Box, folder string, out guest.Result) error {
	b, err := box.ReadFile(ctx, folder+"/failure.json", maxFailure)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case step.IsInfra(err):
		return err
	}
	var f struct{ Type, Message string }
	if err == nil && json.Unmarshal(b, &f) == nil && f.Type != "" {
		return step.Errorf("RunCodeError", "the script failed: %s: %s", f.Type, f.Message)
	}
	how := fmt.Sprintf("the script ended with exit %d", out.Exit.Status())
	if out.Exit.OOM {
		how += ", a process was killed for memory"
	}
	if out.Exit.DiskFull {
		how += ", the sandbox's disk is full"
	}
	if out.Exit.PidsFull {
		how += ", the sandbox had as many processes as it may have"
	}
	if last := lastLine(out.Stderr.String()); last != "" {
		how += ": " + last
	}
	return step.Errorf("RunCodeError", "%s", how)
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}
