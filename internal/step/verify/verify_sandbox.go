// Package verify executes the steps that score: verify_sandbox, aggregate_verifiers.
//
// A criterion that does not hold is a row with score 0. What keeps a criterion from being tried, a lost sandbox or a cancelled run, fails the
// step and leaves no score at all.
package verify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
)

const (
	// maxProbe is the largest file that probe_file_contains looks into.
	maxProbe = 64 << 20
	// maxOutput is how much of each stream of a command is kept for the log.
	maxOutput = 32 << 10
	// maxKept is how much of a longer one is kept at all.
	maxKept = 15 << 20
	// maxTold is how much of a command's stderr its row repeats.
	maxTold = 400
)

// VerifySandbox tries criteria against the files and commands of a sandbox.
type VerifySandbox struct{ boxes step.Boxes }

// NewVerifySandbox makes the executor.
func NewVerifySandbox(b step.Boxes) *VerifySandbox { return &VerifySandbox{b} }

// outcome is how one criterion ended.
type outcome struct {
	ok  bool
	why string
}

// Run tries every criterion in order and leaves the verification. A command is one exec in the sandbox; files are looked at without any.
func (e *VerifySandbox) Run(ctx context.Context, c *step.Call) error {
	box, err := e.boxes.Box(ctx, c.Run, step.Target(c.Doc))
	if err != nil {
		if step.IsInfra(err) {
			return err
		}
		return &step.Error{Type: "SandboxError", Err: err}
	}
	limit, _ := c.Doc.Get("shell_timeout_seconds").Float()
	p := &probe{box: box, call: c, base: path.Join("/", c.Doc.Get("base_dir").Text()), limit: time.Duration(limit * float64(time.Second))}
	v := step.Verification{Step: c.Step, Results: []step.Row{}}
	tried, hold := 0, 0
	for i, criterion := range c.Doc.Get("criteria").Items() {
		row, err := p.row(ctx, i, criterion)
		if err != nil {
			return fmt.Errorf("criterion %d: %w", i, err)
		}
		v.Results = append(v.Results, row)
		if row["skipped"] == false {
			tried++
			if passes(row) {
				hold++
			}
		}
	}
	v.Score = Aggregate(v.Results, c.Doc.Get("score_aggregator").Text())
	id := verifierID(c)
	c.Log.Info("verified", "verifier", id, "score", v.Score, "tried", tried, "hold", hold)
	return c.Out.Set(step.Child(step.VerificationsPath, id), v)
}

// verifierID is the name of a verifier's score; a step that names none gives its own.
func verifierID(c *step.Call) string {
	if id := c.Doc.Get("verifier_id").Text(); id != "" {
		return id
	}
	return c.Step
}

// probe tries the criteria of one step.
type probe struct {
	box   guest.Box
	call  *step.Call
	base  string
	limit time.Duration
}

// row is one criterion's outcome beside the criterion's own fields. An error means that it could not be tried.
func (p *probe) row(ctx context.Context, i int, criterion doc.Node) (step.Row, error) {
	row := step.Row{}
	for k, v := range criterion.Members() {
		row[k] = v.Any()
	}
	row["criterion_index"] = i
	var out outcome
	var err error
	switch typ := criterion.Get("type").Text(); typ {
	case step.ProbeFileExists:
		out, err = p.exist(ctx, criterion, false)
	case step.ProbeDirExists:
		out, err = p.exist(ctx, criterion, true)
	case step.ProbeFileContains:
		out, err = p.contains(ctx, criterion)
	case step.BashCmdSucceeds:
		out, err = p.command(ctx, i, criterion.Get("bash_cmd").Text())
	default:
		row["skipped"] = true
		row["justification"] = fmt.Sprintf("criteria of type %s are not for verify_sandbox", diag.Repr(typ))
		return row, nil
	}
	if err != nil {
		return nil, err
	}
	row["skipped"], row["result"], row["justification"] = false, out.ok, out.why
	row["score"] = 0.0
	if out.ok {
		row["score"] = 1.0
	}
	return row, nil
}

func (p *probe) path(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(p.base, name)
}

// lost is err when it says that the criterion could not be tried, and nil when it is what the sandbox had to say about the path or the command.
func lost(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if step.IsInfra(err) {
		return err
	}
	return nil
}

func (p *probe) exist(ctx context.Context, criterion doc.Node, dir bool) (outcome, error) {
	var bad []string
	paths := criterion.Get("paths")
	if paths.Len() == 0 {
		return outcome{false, "no paths are named"}, nil
	}
	for _, n := range paths.Items() {
		info, err := p.box.Stat(ctx, p.path(n.Text()))
		switch {
		case err != nil:
			if err := lost(ctx, err); err != nil {
				return outcome{}, err
			}
			bad = append(bad, fmt.Sprintf("%s: %s", diag.Repr(n.Text()), reason(err)))
		case dir && !info.IsDir():
			bad = append(bad, fmt.Sprintf("%s: not a folder", diag.Repr(n.Text())))
		}
	}
	if len(bad) > 0 {
		return outcome{false, strings.Join(bad, "; ")}, nil
	}
	return outcome{true, "all there"}, nil
}

func (p *probe) contains(ctx context.Context, criterion doc.Node) (outcome, error) {
	name := criterion.Get("paths").At(0).Text()
	want := criterion.Get("expected")
	if want.IsNull() || want.Text() == "" {
		want = criterion.Get("value")
	}
	if name == "" {
		return outcome{false, "no path is named"}, nil
	}
	re, err := step.Pattern(want.Text())
	if err != nil {
		return outcome{false, fmt.Sprintf("the pattern %s can't be read: %v", diag.Repr(want.Text()), err)}, nil
	}
	b, err := p.box.ReadFile(ctx, p.path(name), maxProbe)
	if err != nil {
		if err := lost(ctx, err); err != nil {
			return outcome{}, err
		}
		return outcome{false, fmt.Sprintf("%s: %s", diag.Repr(name), reason(err))}, nil
	}
	if !re.Match(b) {
		return outcome{false, fmt.Sprintf("does not contain %s", diag.Repr(want.Text()))}, nil
	}
	return outcome{true, fmt.Sprintf("contains %s", diag.Repr(want.Text()))}, nil
}

func (p *probe) command(ctx context.Context, i int, cmd string) (outcome, error) {
	if cmd == "" {
		return outcome{false, "no command is named"}, nil
	}
	kept := guest.Keep{Max: maxKept}
	res, err := guest.Output(ctx, p.box, guest.Command{Argv: []string{"bash", "-c", cmd}, Dir: p.base, Timeout: p.limit},
		guest.Limits{Stdout: maxOutput, Stderr: maxOutput, Spill: kept.Spill})
	if err != nil {
		if err := lost(ctx, err); err != nil {
			return outcome{}, err
		}
		return outcome{false, "the command can't be started: " + reason(err)}, nil
	}
	if res.Exit.OK() {
		return outcome{true, "exit 0"}, nil
	}
	p.call.Log.Info("a command did not succeed", "criterion", i, "exit", res.Exit.Status(),
		"stdout", text(res.Stdout, maxOutput), "stderr", text(res.Stderr, maxOutput))
	// What was too long for that is an entry of its own, which the record keeps as an object.
	for j, whole := range [][]byte{kept.Stdout, kept.Stderr} {
		if len(whole) > 0 {
			p.call.Log.Info(strings.ToValidUTF8(string(whole), "\uFFFD"), "criterion", i, "stream", []string{"stdout", "stderr"}[j], "bytes", len(whole))
		}
	}
	return outcome{false, p.ended(res)}, nil
}

// ended says how a command ended, with the end of its stderr.
func (p *probe) ended(res guest.Result) string {
	var s string
	switch {
	case res.Exit.TimedOut:
		s = fmt.Sprintf("timed out after %gs", p.limit.Seconds())
	case res.Exit.OOM:
		s = fmt.Sprintf("exit %d, a process was killed for memory", res.Exit.Status())
	case res.Exit.DiskFull:
		s = fmt.Sprintf("exit %d, the sandbox's disk is full", res.Exit.Status())
	case res.Exit.PidsFull && !res.Exit.OK():
		s = fmt.Sprintf("exit %d, the sandbox had as many processes as it may have", res.Exit.Status())
	default:
		s = fmt.Sprintf("exit %d", res.Exit.Status())
	}
	if e := strings.TrimSpace(text(res.Stderr, maxTold)); e != "" {
		s += ": " + e
	}
	return s
}

// text is the end of a stream, at most n bytes of whole characters.
func text(c guest.Captured, n int) string {
	s := strings.ToValidUTF8(c.String(), "\uFFFD")
	if len(s) <= n {
		if c.Truncated {
			return fmt.Sprintf("[%d bytes in all] %s", c.Total, s)
		}
		return s
	}
	return "…" + strings.ToValidUTF8(s[len(s)-n:], "")
}

// reason is an error about a path without the path.
func reason(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "does not exist"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied"
	case errors.Is(err, guest.ErrTooBig):
		return fmt.Sprintf("larger than %d MiB", maxProbe>>20)
	}
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no.Error()
	}
	return err.Error()
}
