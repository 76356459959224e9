package computer

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"
)

// Command is a program to run in the session. Nothing is sent to its standard input.
type Command struct {
	Argv      []string
	Dir       string            // relative to the home; "" is the home
	Env       map[string]string // added to the session's
	Timeout   time.Duration
	MaxOutput int // bytes of each stream that are kept
}

// CommandResult is what became of a command.
type CommandResult struct {
	ExitCode  *int // of a program that a signal ended, the signal's number below zero; nil when it was stopped for its time
	Stdout    []byte
	Stderr    []byte
	Truncated bool // one of the streams had more
	TimedOut  bool
}

// MarshalJSON writes the result as computer-exec answers it, with texts.
func (r CommandResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ExitCode  *int   `json:"exit_code"`
		Stdout    string `json:"stdout"`
		Stderr    string `json:"stderr"`
		Truncated bool   `json:"truncated"`
		TimedOut  bool   `json:"timed_out"`
	}{r.ExitCode, text(r.Stdout), text(r.Stderr), r.Truncated, r.TimedOut})
}

func text(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// keptResults is how many results of commands are answered again.
const keptResults = 256

// execs are the commands that run, and the last that ran, by their callers' ids.
type execs struct {
	mu       sync.Mutex
	running  map[string]*execution
	finished map[string]*execution
	order    []string // of finished, oldest first
}

type execution struct {
	done   chan struct{}
	result CommandResult
	err    error
}

type execInput struct {
	Argv      []string          `json:"argv"`
	RequestID string            `json:"request_id"`
	Cwd       string            `json:"cwd,omitempty"`
	Env       map[string]string `json:"env,omitempty"`
	Timeout   *float64          `json:"timeout_s,omitempty"`
}

// execRun runs a command once for all calls of one request id. It goes on when its caller leaves.
func (c *Computer) execRun(ctx context.Context, in execInput) (CommandResult, error) {
	s := c.chosen()
	cmd, err := in.command(&s)
	if err != nil {
		return CommandResult{}, err
	}
	x := c.execs.join(in.RequestID, func(x *execution) {
		ctx := context.WithoutCancel(ctx)
		c.work.Go(func() {
			x.result, x.err = c.runner.Run(ctx, cmd)
			c.execs.end(in.RequestID, x)
		})
	})
	select {
	case <-x.done:
		return x.result, coded(ctx, Internal, x.err)
	case <-ctx.Done():
		return CommandResult{}, ctx.Err()
	}
}

func (in *execInput) command(s *Settings) (Command, error) {
	seconds := s.ExecTimeout
	if in.Timeout != nil {
		seconds = *in.Timeout
	}
	switch {
	case len(in.Argv) == 0 || in.Argv[0] == "":
		return Command{}, Fail(InvalidArgument, "argv is empty")
	case in.RequestID == "":
		return Command{}, Fail(InvalidArgument, "request_id is empty")
	case !(seconds > 0 && seconds <= maxTimeout):
		return Command{}, Fail(InvalidArgument, "timeout_s is more than 0 and at most %d", maxTimeout)
	}
	for name := range in.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return Command{}, Fail(InvalidArgument, "env: %q can't be the name of a variable", name)
		}
	}
	return Command{in.Argv, in.Cwd, in.Env, time.Duration(seconds * float64(time.Second)), s.ExecOutput}, nil
}

// join is the execution of an id: one that is known, or a new one that start starts.
func (e *execs) join(id string, start func(*execution)) *execution {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.running == nil {
		e.running, e.finished = map[string]*execution{}, map[string]*execution{}
	}
	if x := e.finished[id]; x != nil {
		return x
	}
	if x := e.running[id]; x != nil {
		return x
	}
	x := &execution{done: make(chan struct{})}
	e.running[id] = x
	start(x)
	return x
}

// end keeps a result; what was refused may be asked again.
func (e *execs) end(id string, x *execution) {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(x.done)
	delete(e.running, id)
	if x.err != nil {
		return
	}
	e.finished[id] = x
	if e.order = append(e.order, id); len(e.order) > keptResults {
		delete(e.finished, e.order[0])
		e.order = e.order[1:]
	}
}
