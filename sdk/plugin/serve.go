package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"

	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// serveHost serves where the host's variable says.
func (p *Plugin) serveHost(ctx context.Context, where string) error {
	var in io.Reader
	var out io.WriteCloser
	switch fd, isFD := strings.CutPrefix(where, "fd:"); {
	case where == "stdio":
		in, out = os.Stdin, os.Stdout
		os.Stdout = os.Stderr // a stray print must not break a message
	case isFD:
		n, err := strconv.ParseUint(fd, 10, 16)
		if err != nil || n < 3 {
			return fmt.Errorf("%s=%s names no descriptor", Variable, where)
		}
		f := os.NewFile(uintptr(n), "host")
		in, out = f, f
	default:
		return fmt.Errorf("%s=%s is of another version of agent-env", Variable, where)
	}
	if err := os.Unsetenv(Variable); err != nil {
		return err
	}
	return errors.Join(p.Serve(ctx, in, out), out.Close())
}

// Serve speaks the protocol until the input ends. All calls have ended when it returns; who owns the streams closes them.
func (p *Plugin) Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	s := &server{p: p}
	s.peer = rpc.New(in, out, s)
	s.boxes = newBoxServer(p, s.peer)
	err := s.peer.Run(ctx)
	return errors.Join(err, s.boxes.close())
}

// server is the plugin's side of one connection.
type server struct {
	p     *Plugin
	peer  *rpc.Peer
	boxes *boxServer

	mu    sync.Mutex
	temp  string
	known bool // initialize has been answered
}

// Notify takes the bytes of streams: hosts send no other notifications besides cancels.
func (s *server) Notify(method string, params json.RawMessage) {
	s.boxes.streams.Notify(method, params)
}

// Handle answers the host. A panic is a defect of the plugin, and ends no process.
func (s *server) Handle(ctx context.Context, method string, params json.RawMessage) (result any, err error) {
	defer func() {
		if v := recover(); v != nil {
			fmt.Fprintf(os.Stderr, "panic in %s: %v\n%s", method, v, debug.Stack())
			result, err = nil, rpc.Errorf(rpc.CodeInternal, "%s panicked: %v", method, v)
		}
	}()
	if method == MethodInitialize {
		return s.initialize(params)
	}
	if s.mu.Lock(); !s.known {
		s.mu.Unlock()
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "%s comes before initialize", method)
	}
	s.mu.Unlock()
	switch method {
	case MethodTypes:
		types := s.p.Types()
		if types == nil {
			types = []Type{}
		}
		return map[string]any{"types": types}, nil
	case MethodCheck, MethodPreflight:
		return s.check(ctx, method, params)
	case MethodExecute:
		return s.execute(ctx, params)
	case MethodCommand:
		return s.command(ctx, params)
	default:
		return s.others(ctx, method, params)
	}
}

func (s *server) initialize(params json.RawMessage) (any, error) {
	var in Initialize
	if err := decode(params, &in); err != nil {
		return nil, err
	}
	if !slices.Contains(in.Versions, Version) {
		return nil, &rpc.Error{Code: CodeVersion, Message: fmt.Sprintf("speaks version %d of the plugin protocol", Version), Data: json.RawMessage(fmt.Sprintf(`{"supported":[%d]}`, Version))}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.temp, s.known = in.TempDir, true
	return Initialized{Version, Named{s.p.Name, s.p.Version}}, nil
}

func decode(params json.RawMessage, v any) error {
	if err := json.Unmarshal(params, v); err != nil {
		return rpc.Errorf(rpc.CodeParams, "the parameters can't be read: %v", err)
	}
	return nil
}

func (s *server) host(call string) *Host {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Host{call, s.peer, s.temp}
}

func (s *server) step(e Entry) (*Step, error) {
	i := slices.IndexFunc(s.p.Steps, func(t Step) bool { return t.Name == e.Name })
	if e.Group != GroupSteps || i < 0 {
		return nil, rpc.Errorf(rpc.CodeParams, "there is no %s %q here", e.Group, e.Name)
	}
	return &s.p.Steps[i], nil
}

func (s *server) check(ctx context.Context, method string, params json.RawMessage) (any, error) {
	var in Check
	if err := decode(params, &in); err != nil {
		return nil, err
	}
	t, err := s.step(in.Entry)
	if err != nil {
		return nil, err
	}
	f := t.Check
	if method == MethodPreflight {
		f = t.Preflight
	}
	out := Problems{[]Problem{}}
	if f != nil {
		out.Problems = append(out.Problems, f(ctx, Document(in.Step))...)
	}
	return out, nil
}

func (s *server) execute(ctx context.Context, params json.RawMessage) (any, error) {
	var in Execute
	if err := decode(params, &in); err != nil {
		return nil, err
	}
	t, err := s.step(in.Entry)
	if err != nil {
		return nil, err
	}
	var id struct {
		ID string `json:"id"`
	}
	if err := decode(in.Step, &id); err != nil {
		return nil, err
	}
	h := s.host(in.Call)
	c := &Call{
		Run: in.Run, Step: id.ID, Attempt: in.Attempt, Trial: in.Trial, Doc: Document(in.Step), Host: h, Log: slog.New(&logHandler{h: h}),
		Seed: in.Seed, Models: in.Models, Agent: in.Agent, context: in.Context,
	}
	if err := t.Run(ctx, c); err != nil {
		return nil, c.answer(ctx, err)
	}
	return Diffs{c.ops()}, nil
}

func (s *server) command(ctx context.Context, params json.RawMessage) (any, error) {
	var in RunCommand
	if err := decode(params, &in); err != nil {
		return nil, err
	}
	i := slices.IndexFunc(s.p.Commands, func(c Command) bool { return c.Name == in.Entry.Name })
	if i < 0 {
		return nil, rpc.Errorf(rpc.CodeParams, "there is no command %q here", in.Entry.Name)
	}
	return Exit{s.p.Commands[i].Run(ctx, s.host(in.Call), in.Args)}, nil
}
