package env_test

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// notes is an environment with everything that the protocol knows.
type notes struct {
	mu    sync.Mutex
	rows  []note
	mode  string
	calls []env.Call
}

type note struct {
	Text string `json:"text"`
	Pri  string `json:"pri,omitempty"`
}

type addNote struct {
	Text string `json:"text" jsonschema:"Note text."`
	Pri  string `json:"pri" enum:"lo,hi" default:"lo"`
}

func (s *notes) add(ctx context.Context, in addNote) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, env.CallFrom(ctx))
	switch in.Text {
	case "coded":
		return "", env.Fail("bad_note", "no such note").WithHint("try another")
	case "crash":
		panic("the cat is on the keyboard")
	case "broken":
		return "", fmt.Errorf("kaboom")
	}
	s.rows = append(s.rows, note(in))
	return "ok " + in.Text, nil
}

func (s *notes) whoami(ctx context.Context, _ struct{}) (map[string]string, error) {
	c := env.CallFrom(ctx)
	return map[string]string{"role": c.Role, "session": c.Session, "tool": c.Tool, "call": c.ID}, nil
}

func (s *notes) reset(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rows = nil
	return nil
}

func (s *notes) load(ctx context.Context, inputs []*env.Input) error {
	for _, in := range inputs {
		if in.Part.Kind == wire.KindText {
			s.mu.Lock()
			s.rows = append(s.rows, note{Text: in.Part.Text})
			s.mu.Unlock()
			continue
		}
		var seed struct {
			Notes []note `json:"notes"`
			Fail  string `json:"fail"`
		}
		if err := in.Decode(ctx, &seed); err != nil {
			return err
		}
		if seed.Fail != "" {
			return fmt.Errorf("%s", seed.Fail)
		}
		s.mu.Lock()
		s.rows = append(s.rows, seed.Notes...)
		s.mu.Unlock()
	}
	return nil
}

func (s *notes) export(ctx context.Context, to *env.Namespace) ([]wire.Part, error) {
	s.mu.Lock()
	rows := append([]note{}, s.rows...)
	s.mu.Unlock()
	p, err := wire.DataPart(map[string]any{"notes": rows})
	if err != nil || to == nil {
		return []wire.Part{p}, err
	}
	p, err = to.Upload(ctx, "notes.json", "application/json", "notes.json", strings.NewReader(string(p.Data)))
	return []wire.Part{p}, err
}

type setFault struct {
	Mode string  `json:"mode" enum:"live,fixed"`
	Rate float64 `json:"rate" default:"0.0"`
}

type readFault struct {
	N int `json:"n"`
}

func (s *notes) setFault(_ context.Context, in setFault) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in.Mode == "fixed" && s.mode == "fixed" {
		return nil, env.Fail("conflict", "already fixed").Retry().WithStatus(409).WithHint("set it live first")
	}
	if in.Rate > 1 {
		return nil, fmt.Errorf("rate out of range")
	}
	s.mode = in.Mode
	return nil, nil
}

func (s *notes) readFault(_ context.Context, in readFault) (map[string]any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return map[string]any{"mode": s.mode, "n": in.N}, nil
}

// newNotes puts the environment together.
func newNotes(opts ...env.Option) (*notes, *env.Env) {
	s := &notes{}
	e := env.New("notes", append([]env.Option{env.WithLookup(func(string) (string, bool) { return "", false })}, opts...)...)
	env.AddTool(e, "{environment_name}_add", "Add a note.", s.add)
	env.AddTool(e, "whoami", "Tell who calls.", s.whoami)
	env.AddTool(e, "admin", "Only for tasks.", s.whoami, env.Hidden())
	e.OnReset(s.reset)
	e.OnAdd(s.load)
	e.OnExport(s.export)
	env.AddExtension(e, "urn:example:fault/v1", "set", s.setFault, env.Op(), env.ExtensionDescription("Makes faults."), env.ExtensionParam("features", []string{"x"}))
	env.AddExtension(e, "urn:example:fault/v1", "read", s.readFault, env.Op(), env.Verb("GET"))
	return s, e
}
