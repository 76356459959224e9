package verify

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

const (
	// verifierLimit is how long a verifier may take; a step's own timeout_seconds ends it earlier.
	verifierLimit = 10 * time.Minute
	// maxRows bounds what a verifier answers, in bytes.
	maxRows = 16 << 20
	// verifierFolder is where a verifier and what it needs are put.
	verifierFolder = "/tmp/agentenv-verifier"
	// doorAddress is where the environment's gateway is reached in the verifier's sandbox.
	doorAddress = "127.0.0.1:18765"
)

//go:embed all:python
var python embed.FS

// Store is what the executors read.
type Store interface {
	store.Docs
	store.Objects
}

// Sandboxes is what the executors need of sandboxes.
type Sandboxes interface {
	Create(ctx context.Context, r deploy.Request) (sandbox.Info, error)
	Box(ctx context.Context, run, name string) (guest.Box, error)
	Remove(ctx context.Context, run, name string) (id string, err error)
}

// Environments is what the executors need of deployed environments.
type Environments interface {
	Env(run, id, step string) (*deploy.Env, error)
}

// EnvOutcomeVerifier runs a verifier, a Python file with verify(mcp_url[, run]) or a program, in a sandbox of its own that reaches the environment's
// gateway and nothing else.
type EnvOutcomeVerifier struct {
	store Store
	boxes Sandboxes
	envs  Environments
}

// NewEnvOutcomeVerifier makes the executor.
func NewEnvOutcomeVerifier(s Store, b Sandboxes, e Environments) *EnvOutcomeVerifier {
	return &EnvOutcomeVerifier{s, b, e}
}

// Run runs the verifier and leaves the verification.
func (e *EnvOutcomeVerifier) Run(ctx context.Context, c *step.Call) error {
	v, err := e.envs.Env(c.Run, c.Doc.Get("env_id").Text(), "")
	if err != nil {
		return &step.Error{Type: "NotFoundError", Err: err}
	}
	file, err := e.file(ctx, c)
	if err != nil {
		return err
	}
	given, err := verifierInput(c)
	if err != nil {
		return err
	}
	raw, err := e.inBox(ctx, c, v, file, given)
	if err != nil {
		return err
	}
	rows, err := readRows(raw)
	if err != nil {
		return &step.Error{Type: "ResultError", Err: err}
	}
	result := step.Verification{Step: c.Step, Results: rows, Score: Aggregate(rows, c.Doc.Get("score_aggregator").Text())}
	id := verifierID(c)
	c.Log.Info("verified", "verifier", id, "score", result.Score, "rows", len(rows))
	return c.Out.Set(step.Child(step.VerificationsPath, id), result)
}

// file is the verifier's.
func (e *EnvOutcomeVerifier) file(ctx context.Context, c *step.Call) (artifact.Bytes, error) {
	version, _ := c.Doc.Get("file_artifact_version").Int()
	d, err := e.store.Get(ctx, store.Artifact, c.Doc.Get("file_artifact_id").Text(), int(version))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return artifact.Bytes{}, &step.Error{Type: "NotFoundError", Err: err}
	case err != nil:
		return artifact.Bytes{}, step.Infra(err)
	case d.Type != artifact.File:
		return artifact.Bytes{}, step.Errorf("ValueError", "file_artifact_id: %s is of type %s; a verifier is one file", diag.Repr(d.ID), d.Type)
	}
	files, err := artifact.Files(d.Type, d.Body)
	if err != nil {
		return artifact.Bytes{}, step.Infra(fmt.Errorf("artifact %s version %d: %w", d.ID, d.Version, err))
	}
	return files[0], nil
}

// promptsPath is where steps that prompt agents append their answers.
const promptsPath = "prompt_responses"

// verifierInput is what the verifier is told: where the environment is, and the run's conversation.
func verifierInput(c *step.Call) ([]byte, error) {
	type said struct {
		Text   string `json:"text"`
		Author string `json:"author,omitempty"`
	}
	type turn struct {
		Message said `json:"message"`
		Reply   said `json:"reply"`
	}
	turns := []turn{}
	wanted := c.Doc.Get("prompt_id").Text()
	for _, raw := range c.State.List(promptsPath) {
		var p struct {
			ID     string `json:"prompt_id"`
			Prompt string `json:"prompt_text"`
			Answer string `json:"response"`
			Agent  string `json:"agent_name"`
		}
		if err := json.Unmarshal(raw, &p); err != nil {
			return nil, step.Errorf("ValueError", "a prompt's answer can't be read: %w", err)
		}
		if wanted == "" || p.ID == wanted {
			turns = append(turns, turn{said{p.Prompt, ""}, said{p.Answer, p.Agent}})
		}
	}
	if wanted != "" && len(turns) == 0 {
		return nil, step.Errorf("NotFoundError", "no prompt %s was answered before this step", diag.Repr(wanted))
	}
	if wanted == "" && len(turns) > 1 {
		turns = turns[len(turns)-1:] // the last prompt is the one that is graded
	}
	return json.Marshal(map[string]any{"mcp_url": "http://" + doorAddress + "/mcp", "run": map[string]any{"turns": turns}})
}

// inBox runs the verifier in a box of its own, which is gone afterwards, and answers what it wrote.
func (e *EnvOutcomeVerifier) inBox(ctx context.Context, c *step.Call, v *deploy.Env, file artifact.Bytes, given []byte) ([]byte, error) {
	name := "verifier of " + c.Step
	_, err := e.boxes.Create(ctx, deploy.Request{Run: c.Run, Step: c.Step, Attempt: c.Attempt, Name: name, Spec: sandbox.Spec{Self: true}})
	if err != nil {
		return nil, step.Infra(&step.Error{Type: "SandboxError", Err: err})
	}
	defer func() {
		if _, err := e.boxes.Remove(context.WithoutCancel(ctx), c.Run, name); err != nil {
			c.Log.Warn("could not be removed; the run's end tries again", "sandbox", name, "error", err)
		}
	}()
	box, err := e.boxes.Box(ctx, c.Run, name)
	if err != nil {
		return nil, step.Infra(err)
	}
	files, err := e.staged(ctx, file, given)
	if err != nil {
		return nil, err
	}
	if err := guest.Put(ctx, box, verifierFolder, files); err != nil {
		if _, ok := errors.AsType[*guest.SourceError](err); ok {
			return nil, step.Infra(&step.Error{Type: "StoreError", Err: err})
		}
		return nil, step.Infra(fmt.Errorf("put the verifier into its sandbox: %w", err))
	}
	shut, err := openDoor(ctx, box, v)
	if err != nil {
		return nil, step.Infra(err)
	}
	defer shut()
	if isPython(file.Path) {
		return runPython(ctx, c, box, path.Base(file.Path))
	}
	return runProgram(ctx, c, box, path.Base(file.Path), given)
}

func isPython(name string) bool { return strings.HasSuffix(name, ".py") }

// staged are the verifier and what runs it.
func (e *EnvOutcomeVerifier) staged(ctx context.Context, file artifact.Bytes, given []byte) ([]guest.PutFile, error) {
	out := []guest.PutFile{
		guest.PutBytes("input.json", 0o644, given),
		{Path: "src/" + path.Base(file.Path), Mode: 0o755, Size: file.Size, Open: func() (io.ReadCloser, error) {
			r, _, err := store.OpenVerified(ctx, e.store, file.Digest)
			return r, err
		}},
	}
	if !isPython(file.Path) {
		return out, nil
	}
	err := fs.WalkDir(python, "python", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := python.ReadFile(name)
		out = append(out, guest.PutBytes(strings.TrimPrefix(name, "python/"), 0o644, b))
		return err
	})
	return out, err
}

// openDoor lets the box reach the environment's gateway as its owner, until shut is called.
func openDoor(ctx context.Context, box guest.Box, v *deploy.Env) (shut func(), err error) {
	l, err := box.Listen(ctx, "tcp", doorAddress)
	if err != nil {
		return nil, fmt.Errorf("open a door to the environment in the verifier's sandbox: %w", err)
	}
	srv := &http.Server{Handler: v.Gateway.Door(access.Principal{Owner: true, Deployment: v.Instance}), ReadHeaderTimeout: time.Minute}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(l) // ends with the box or with shut
	}()
	return func() {
		_ = srv.Close()
		<-served
	}, nil
}

// runPython calls verify() of a Python file and answers the rows that it returned, as JSON.
func runPython(ctx context.Context, c *step.Call, box guest.Box, script string) ([]byte, error) {
	out, err := runVerifier(ctx, c, box, guest.Command{
		Argv: []string{"python3", "-B", verifierFolder + "/verify_harness.py", verifierFolder, script}, Env: []string{"PYTHONUNBUFFERED=1"},
	}, nil)
	if err != nil {
		return nil, err
	}
	if !out.Exit.OK() {
		var f struct{ Type, Message string }
		b, err := box.ReadFile(ctx, verifierFolder+"/failure.json", 1<<20)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case step.IsInfra(err):
			return nil, err
		case err == nil && json.Unmarshal(b, &f) == nil && f.Type != "":
			return nil, step.Errorf("VerifierError", "the verifier failed: %s: %s", f.Type, f.Message)
		}
		return nil, ended(out)
	}
	b, err := box.ReadFile(ctx, verifierFolder+"/result.json", maxRows)
	switch {
	case errors.Is(err, guest.ErrTooBig):
		return nil, step.Errorf("ResultError", "the verifier's rows have more than %d bytes", maxRows)
	case errors.Is(err, fs.ErrNotExist):
		return nil, step.Errorf("ResultError", "the verifier ended before verify returned")
	case err != nil:
		return nil, fmt.Errorf("read the verifier's rows: %w", err)
	}
	return b, nil
}

// runProgram runs a program that is told everything on stdin and writes its rows, as JSON, to stdout.
func runProgram(ctx context.Context, c *step.Call, box guest.Box, name string, given []byte) ([]byte, error) {
	out, err := runVerifier(ctx, c, box, guest.Command{
		Argv: []string{verifierFolder + "/src/" + name}, Env: []string{"AGENTENV_MCP_URL=http://" + doorAddress + "/mcp"},
	}, given)
	switch {
	case err != nil:
		return nil, err
	case !out.Exit.OK():
		return nil, ended(out)
	case out.Stdout.Truncated:
		return nil, step.Errorf("ResultError", "the verifier's rows have more than %d bytes", maxRows)
	}
	return out.Stdout.Bytes(), nil
}

func runVerifier(ctx context.Context, c *step.Call, box guest.Box, cmd guest.Command, stdin []byte) (guest.Result, error) {
	cmd.Dir, cmd.Timeout, cmd.KillTree = verifierFolder+"/src", verifierLimit, true
	out, err := guest.Output(ctx, box, cmd, guest.Limits{Stdout: maxRows, Stderr: maxOutput, Stdin: stdin})
	if text := strings.TrimSpace(out.Stderr.String()); text != "" {
		c.Log.Info("the verifier wrote", "stderr", text)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return out, ctx.Err()
	case errors.Is(err, fs.ErrNotExist):
		return out, step.Errorf("VerifierError", "the sandbox has no %s: %w", path.Base(cmd.Argv[0]), err)
	case step.IsInfra(err):
		return out, err
	default:
		return out, step.Errorf("VerifierError", "run the verifier: %w", err)
	}
	if out.Exit.TimedOut {
		return out, step.Errorf("TimeoutError", "the verifier took more than %s", verifierLimit)
	}
	return out, nil
}

// ended is the error of a verifier that ended by itself and not well.
func ended(out guest.Result) error {
	how := fmt.Sprintf("the verifier ended with exit %d", out.Exit.Status())
	if out.Exit.OOM {
		how += ", a process was killed for memory"
	}
	text := strings.TrimSpace(out.Stderr.String())
	if last := text[strings.LastIndexByte(text, '\n')+1:]; last != "" {
		how += ": " + last
	}
	return step.Errorf("VerifierError", "%s", how)
}

// readRows reads what a verifier answered: a list of tables, or a table that has one at "results". A row tells by result, true or false, whether its
// criterion holds.
func readRows(raw []byte) ([]step.Row, error) {
	var rows []step.Row
	if err := json.Unmarshal(raw, &rows); err != nil {
		var held struct {
			Results []step.Row `json:"results"`
		}
		if json.Unmarshal(raw, &held) != nil || held.Results == nil {
			return nil, errors.New("a verifier answers a list of rows, each a table with result true or false; this one answered something else")
		}
		rows = held.Results
	}
	if len(rows) == 0 {
		return nil, errors.New("the verifier answered no row, so there is nothing to score")
	}
	for i, r := range rows {
		_, scored := float(r["score"])
		if _, ok := r["result"].(bool); !ok && !scored {
			return nil, fmt.Errorf("row %d of the verifier has neither result, true or false, nor a number score", i+1)
		}
		r["criterion_index"] = i
	}
	return rows, nil
}
