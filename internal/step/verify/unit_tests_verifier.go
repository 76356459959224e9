package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
)

const (
	// maxReward and maxResult bound what is read of the files that tests leave.
	maxReward = 64 << 10
	maxResult = 4 << 20
	// outputHead is how many characters of each stream the verification shows; the log has all of it.
	outputHead = 500
	// setupLimit is how long each setup command may take: it isn't the tests' time.
	setupLimit = 10 * time.Minute
)

// Forks is what UnitTestsVerifier needs of sandboxes.
type Forks interface {
	Fork(ctx context.Context, r deploy.Request, of string) (sandbox.Info, error)
	Box(ctx context.Context, run, name string) (guest.Box, error)
	Remove(ctx context.Context, run, name string) (id string, err error)
}

// UnitTestsVerifier runs a task's tests on what its container holds, in a fork of it: what the agent left running there can't touch them. A provider
// that can't fork has them run in the container itself, which the verification says.
type UnitTestsVerifier struct{ boxes Forks }

// NewUnitTestsVerifier makes the executor.
func NewUnitTestsVerifier(b Forks) *UnitTestsVerifier { return &UnitTestsVerifier{b} }

// tested is what it leaves beside what every verification has.
type tested struct {
	step.Verification
	Forked   bool                       `json:"in_a_fork"`
	Exit     int                        `json:"exit_code"`
	Seconds  float64                    `json:"seconds"`
	Stdout   string                     `json:"stdout_head"`
	Stderr   string                     `json:"stderr_head"`
	Files    map[string]json.RawMessage `json:"result_files,omitempty"` // by path: JSON as it is, other text as a string
	Missing  []string                   `json:"result_files_missing,omitempty"`
	RewardAt string                     `json:"reward_path,omitempty"`
}

// Run runs the tests.
func (e *UnitTestsVerifier) Run(ctx context.Context, c *step.Call) error {
	of, dir, err := e.container(c)
	if err != nil {
		return err
	}
	out := tested{Verification: step.Verification{Step: c.Step, Results: []step.Row{}}, RewardAt: c.Doc.Get("reward_path").Text()}
	box, done, err := e.fork(ctx, c, of, &out)
	if err != nil {
		return err
	}
	defer done()
	t := tests{c: c, box: box, dir: dir, env: environment(c)}
	if err := t.setup(ctx); err != nil {
		return err
	}
	if out.RewardAt != "" { // what stands there now is no result of the tests
		if _, err := t.run(ctx, "rm -f -- "+quote(out.RewardAt), setupLimit); err != nil {
			return err
		}
	}
	began := time.Now()
	limit, _ := c.Doc.Get("timeout_sec").Float()
	res, err := t.run(ctx, c.Doc.Get("command").Text(), time.Duration(limit*float64(time.Second)))
	if err != nil {
		return err
	}
	out.Seconds, out.Exit = time.Since(began).Seconds(), res.Exit.Status()
	out.Stdout, out.Stderr = head(res.Stdout), head(res.Stderr)
	if res.Exit.TimedOut {
		return step.Errorf("TimeoutError", "the tests took more than %gs", limit)
	}
	if err := t.results(ctx, &out); err != nil {
		return err
	}
	return e.score(ctx, &t, &out, res)
}

// container is the run's sandbox that the step means, and the folder to run in.
func (e *UnitTestsVerifier) container(c *step.Call) (name, dir string, err error) {
	box, want := c.Doc.Get("sandbox_name").Text(), c.Doc.Get("container_name").Text()
	k, have, ok := step.FindContainer(c.State, box, want)
	if ok {
		return k.Box, k.Workdir, nil
	}
	for _, raw := range c.State.List(step.SandboxesPath) { // a sandbox made of an image is a container too
		var s step.Sandbox
		if json.Unmarshal(raw, &s) == nil && s.Name == box && s.Mode == "container" && want == box {
			return s.Name, "", nil
		}
	}
	if len(have) > 0 {
		return "", "", step.Errorf("NotFoundError", "sandbox %s has no container %s; its containers are %s", diag.Repr(box), diag.Repr(want), strings.Join(have, ", "))
	}
	return "", "", step.Errorf("NotFoundError",
		"no step before this one has started container %s in sandbox %s; a sandbox of mode container is meant by its own name as container_name", diag.Repr(want), diag.Repr(box))
}

// fork makes the box that the tests run in; done removes it.
func (e *UnitTestsVerifier) fork(ctx context.Context, c *step.Call, of string, out *tested) (box guest.Box, done func(), err error) {
	name := "tests of " + c.Step
	done = func() {}
	_, err = e.boxes.Fork(ctx, deploy.Request{Run: c.Run, Step: c.Step, Attempt: c.Attempt, Name: name}, of)
	switch {
	case errors.Is(err, sandbox.ErrUnsupported):
		c.Log.Warn("the tests run in the container itself: what the agent left running there can reach them", "container", of, "error", err)
		name = of
	case errors.Is(err, deploy.ErrNoBox):
		return nil, nil, &step.Error{Type: "NotFoundError", Err: err}
	case err != nil:
		return nil, nil, step.Infra(&step.Error{Type: "SandboxError", Err: err})
	default:
		out.Forked = true
		done = func() {
			if _, err := e.boxes.Remove(context.WithoutCancel(ctx), c.Run, name); err != nil {
				c.Log.Warn("could not be removed; the run's end tries again", "sandbox", name, "error", err)
			}
		}
	}
	if box, err = e.boxes.Box(ctx, c.Run, name); err != nil {
		done()
		return nil, nil, step.Infra(err)
	}
	return box, done, nil
}

// score reads what the tests say. What they don't say is no score, and never 0.
func (e *UnitTestsVerifier) score(ctx context.Context, t *tests, out *tested, res guest.Result) error {
	row := step.Row{"criterion_index": 0, "command": t.c.Doc.Get("command").Text()}
	switch {
	case out.RewardAt != "":
		b, err := t.box.ReadFile(ctx, t.path(out.RewardAt), maxReward)
		if err != nil {
			if err := lost(ctx, err); err != nil {
				return err
			}
			return unscored(t.c, fmt.Sprintf("the tests left no reward at %s: %s", diag.Repr(out.RewardAt), reason(err)), out.Stderr)
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(string(b)), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return unscored(t.c, fmt.Sprintf("what the tests left at %s is no number", diag.Repr(out.RewardAt)), string(b))
		}
		out.Score = math.Max(0, math.Min(1, v))
		row["justification"] = fmt.Sprintf("the reward is %g, exit %d", v, out.Exit)
	case res.Exit.OOM || res.Exit.Signal != 0 || out.Exit == 137:
		return unscored(t.c, fmt.Sprintf("the tests were killed: exit %d", out.Exit), out.Stderr)
	case out.Exit == 126 || out.Exit == 127:
		return unscored(t.c, fmt.Sprintf("the tests could not be started: exit %d", out.Exit), out.Stderr)
	default:
		if out.Exit == 0 {
			out.Score = 1
		}
		row["justification"] = fmt.Sprintf("exit %d", out.Exit)
	}
	row["score"], row["result"] = out.Score, out.Score >= 1
	out.Results = append(out.Results, row)
	id := verifierID(t.c)
	t.c.Log.Info("verified", "verifier", id, "score", out.Score, "exit", out.Exit)
	return t.c.Out.Set(step.Child(step.VerificationsPath, id), out)
}

// tests runs the commands of one step.
type tests struct {
	c   *step.Call
	box guest.Box
	dir string
	env []string
}

// reserved are variables that a row of seeds can't set.
var reserved = []string{"PATH", "HOME", "USER", "SHELL", "ENV", "BASH_ENV", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "IFS"}

// environment is what the commands see: the run's seed in upper case, then the step's own variables.
func environment(c *step.Call) []string {
	var out []string
	for k, v := range c.Seed {
		name := strings.Map(func(r rune) rune {
			if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' {
				return r
			}
			return '_'
		}, strings.ToUpper(k))
		if name != "" && (name[0] < '0' || name[0] > '9') && !slices.Contains(reserved, name) && !strings.ContainsRune(v, 0) {
			out = append(out, name+"="+v)
		}
	}
	slices.Sort(out)
	for k, v := range c.Doc.Get("env_vars").Members() {
		out = append(out, k+"="+v.Text())
	}
	return out
}

func (t *tests) path(name string) string {
	if strings.HasPrefix(name, "/") || t.dir == "" {
		return name
	}
	return t.dir + "/" + name
}

// quote makes a text one word of a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// run runs a command; an error means that it could not be tried.
func (t *tests) run(ctx context.Context, cmd string, limit time.Duration) (guest.Result, error) {
	kept := guest.Keep{Max: maxKept}
	res, err := guest.Output(ctx, t.box, guest.Command{
		Argv: []string{"bash", "-c", cmd}, Env: t.env, Dir: t.dir, User: t.c.Doc.Get("user").Text(), Timeout: limit, KillTree: true,
	}, guest.Limits{Stdout: maxOutput, Stderr: maxOutput, Spill: kept.Spill})
	if err != nil {
		if err := lost(ctx, err); err != nil {
			return res, err
		}
		return res, step.Errorf("VerifierError", "%s can't be started as %s: %w", diag.Repr(cmd), t.c.Doc.Get("user").Text(), err)
	}
	t.c.Log.Info("ran", "command", cmd, "exit", res.Exit.Status(), "stdout", text(res.Stdout, maxOutput), "stderr", text(res.Stderr, maxOutput))
	for i, whole := range [][]byte{kept.Stdout, kept.Stderr} { // what is too long for that is an object of the record
		if len(whole) > 0 {
			t.c.Log.Info(strings.ToValidUTF8(string(whole), "\uFFFD"), "stream", []string{"stdout", "stderr"}[i], "bytes", len(whole))
		}
	}
	return res, nil
}

func (t *tests) setup(ctx context.Context) error {
	for i, n := range t.c.Doc.Get("setup_commands").Items() {
		res, err := t.run(ctx, n.Text(), setupLimit)
		if err != nil {
			return err
		}
		if !res.Exit.OK() {
			return step.Errorf("VerifierError", "setup_commands[%d] ended with exit %d: %s", i, res.Exit.Status(), strings.TrimSpace(text(res.Stderr, maxTold)))
		}
	}
	return nil
}

// results copies out what the step wants to keep.
func (t *tests) results(ctx context.Context, out *tested) error {
	for _, n := range t.c.Doc.Get("result_paths").Items() {
		b, err := t.box.ReadFile(ctx, t.path(n.Text()), maxResult)
		if errors.Is(err, fs.ErrNotExist) {
			out.Missing = append(out.Missing, n.Text())
			continue
		}
		if err != nil {
			if err := lost(ctx, err); err != nil {
				return err
			}
			return step.Errorf("ResultError", "%s: %s", diag.Repr(n.Text()), reason(err))
		}
		if !json.Valid(b) {
			b, _ = json.Marshal(strings.ToValidUTF8(string(b), "\uFFFD")) // a string: it can't fail
		}
		if out.Files == nil {
			out.Files = map[string]json.RawMessage{}
		}
		out.Files[n.Text()] = b
	}
	return nil
}

// head is the beginning of a stream.
func head(c guest.Captured) string {
	s := strings.ToValidUTF8(c.String(), "\uFFFD")
	if r := []rune(s); len(r) > outputHead {
		return string(r[:outputHead]) + "…"
	}
	return s
}
