package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/subprocess"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// Program is a server that is started here and speaks on its standard streams.
type Program struct {
	Name string
	Argv []string
	Dir  string            // its working folder; "" is ours
	Env  map[string]string // beside what every program gets
	// Lookup is our environment, of which a program gets PATH, HOME and what tells of language, proxies and certificates.
	Lookup func(string) (string, bool)
	Log    *slog.Logger
	Limit  time.Duration // for the handshake; 0 is half a minute
	Max    int           // bytes of one message; a longer one fails its call. 0 is 256 MiB
}

const (
	leaveTime = 2 * time.Second // from the end of its input to SIGTERM
	termTime  = 2 * time.Second // from there to SIGKILL
	tailSize  = 2 << 10

	maxMessage = 256 << 20
)

type program struct {
	p      Program
	cmd    *exec.Cmd
	stdin  io.Closer
	peer   *rpc.Peer
	tail   *tail
	done   chan struct{} // closed when the process has ended
	how    error         // set before
	closed sync.Once
}

// Start starts a program and shakes hands with it, within its limit.
func Start(ctx context.Context, p Program) (_ Server, err error) {
	if len(p.Argv) == 0 {
		return nil, fmt.Errorf("the MCP server %s has no command", p.Name)
	}
	s := &program{p: p, tail: &tail{subprocess.Tail{Max: tailSize}}, done: make(chan struct{})}
	if err := s.spawn(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("the MCP server %s can't be started: %w", p.Name, err)
	}
	within := limit(p.Limit)
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("it didn't answer within %s", within))
	defer cancel()
	var got struct {
		Version string `json:"protocolVersion"`
	}
	err = s.peer.Call(ctx, "initialize", map[string]any{
		"protocolVersion": version, "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "agent-env", "version": "1"},
	}, &got, nil)
	if err == nil && got.Version == "" {
		err = errors.New("it answered initialize without a protocolVersion")
	}
	if err == nil {
		err = s.peer.Notify("notifications/initialized", map[string]any{})
	}
	if err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("the MCP server %s can't be used: %w%s", p.Name, s.fault(err), s.tail)
	}
	return s, nil
}

func (s *program) spawn(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, s.p.Argv[0], s.p.Argv[1:]...)
	cmd.Dir = s.p.Dir
	subprocess.Own(cmd)
	cmd.Env = s.environment()
	cmd.Stderr = s.tail
	cmd.WaitDelay = time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return errors.Join(err, in.Close())
	}
	cmd.Stdout = outW
	err = cmd.Start()
	if cerr := outW.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return errors.Join(err, outR.Close()) // its input was closed by Start
	}
	s.cmd, s.stdin = cmd, in
	s.peer = rpc.New(outR, in, nil)
	s.peer.Long(cmp.Or(s.p.Max, maxMessage))
	var reading sync.WaitGroup
	reading.Go(func() {
		if err := s.peer.Run(ctx); err != nil && s.p.Log != nil {
			s.p.Log.Debug("an MCP server broke the protocol", "server", s.p.Name, "error", err)
		}
	})
	go func() {
		defer close(s.done)
		s.how = subprocess.Wait(cmd)
		_ = outR.Close()
		reading.Wait()
	}()
	return nil
}

// environment is what a program gets: nothing that could hold a secret of ours, and what was set for it.
func (s *program) environment() []string {
	var out []string
	if s.p.Lookup != nil {
		out = subprocess.Environment(s.p.Lookup)
		if v, ok := s.p.Lookup("TMPDIR"); ok {
			out = append(out, "TMPDIR="+v)
		}
	}
	for k, v := range s.p.Env { // the last of a name counts
		out = append(out, k+"="+v)
	}
	return out
}

// fault tells a server that is gone from one that answers with errors.
func (s *program) fault(err error) error {
	if rpc.CodeOf(err) != 0 {
		return &ToolError{err.Error()}
	}
	if errors.Is(err, rpc.ErrClosed) || errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) {
		select {
		case <-s.done:
			return errors.Join(ErrGone, s.how)
		case <-time.After(time.Second): // its end is not known yet
			return ErrGone
		}
	}
	return err
}

func (s *program) Tools(ctx context.Context) ([]json.RawMessage, error) {
	var out []json.RawMessage
	cursor := ""
	for range maxPages {
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		var page struct {
			Tools []json.RawMessage `json:"tools"`
			Next  string            `json:"nextCursor"`
		}
		if err := s.peer.Call(ctx, "tools/list", params, &page, nil); err != nil {
			return nil, s.fault(err)
		}
		out = append(out, page.Tools...)
		if len(out) > maxTools {
			return nil, fmt.Errorf("the MCP server %s has more than %d tools", s.p.Name, maxTools)
		}
		if cursor = page.Next; cursor == "" {
			return out, nil
		}
	}
	return nil, fmt.Errorf("the MCP server %s lists its tools on more than %d pages", s.p.Name, maxPages)
}

func (s *program) Call(ctx context.Context, tool string, args json.RawMessage) (json.RawMessage, error) {
	params, err := callParams(tool, args)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, fmt.Errorf("the tool %s had not answered after %s", tool, callTime))
	defer cancel()
	var out json.RawMessage
	if err := s.peer.Call(ctx, "tools/call", params, &out, nil); err != nil {
		return nil, s.fault(err)
	}
	return out, nil
}

// Close ends the program: it may leave by itself for a moment.
func (s *program) Close() error {
	s.closed.Do(func() {
		_ = s.stdin.Close()
		subprocess.Stop(s.cmd, s.done, leaveTime, termTime)
	})
	return nil
}

// tail keeps the end of what a program wrote to its stderr.
type tail struct{ subprocess.Tail }

// String is the last line, behind what it belongs to; "" where nothing was said.
func (t *tail) String() string {
	text := strings.TrimSpace(strings.ToValidUTF8(t.Text(), ""))
	if text == "" {
		return ""
	}
	return "; it said: " + diag.Clean(text[strings.LastIndexByte(text, '\n')+1:])
}
