package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory"
	"agentenv.internal/agentenv/sdk/wire"
)

// Question is what a person is asked who plays an agent of a run.
type Question struct {
	Run, Step string
	Agent     string // by which the run knows the person
	Text      string // what the run says to them
	Hint      string // how they may answer beside a text; ""
}

// Person tells whether the agent is a person who is asked by this program.
func (a *Agent) Person() bool { return a.req.Person }

// personMaker lets a person play an agent.
type personMaker struct{}

func (personMaker) Check(context.Context, []string, string, AgentRequest) error { return nil }

func (personMaker) Start(_ context.Context, a *Agent, _ AgentRequest) (Runner, error) {
	return &personRunner{agent: a}, nil
}

// personRunner asks a person: at this process's terminal where it has one, and whoever replies from another.
type personRunner struct{ agent *Agent }

// Configure takes a name, a description and a role, of which a person need not know.
func (r *personRunner) Configure(_ context.Context, s Settings) error {
	if s.SystemPrompt != "" {
		return &NotTaken{"system prompt"}
	}
	return nil
}

func (r *personRunner) AddMCP(context.Context, MCP) error {
	return fmt.Errorf("an MCP server %w, a person", ErrNotServed)
}

func (r *personRunner) AddSkill(context.Context, Skill) error {
	return fmt.Errorf("a skill %w, a person", ErrNotServed)
}

func (r *personRunner) Close() error { return nil }

// Prompt asks, and takes the first reply.
func (r *personRunner) Prompt(ctx context.Context, p Prompt) (Reply, error) {
	text := personText(p.Parts)
	note := func(e trajectory.Event) error {
		e.At = time.Now()
		if err := p.Record.Record(e); err != nil {
			return step.Infra(&step.Error{Type: "RecordError", Err: err})
		}
		return nil
	}
	if err := note(trajectory.Event{Kind: trajectory.Said, Source: trajectory.User, Text: text}); err != nil {
		return Reply{}, err
	}
	said, err := r.ask(ctx, Question{Run: r.agent.Run, Step: p.Step, Agent: r.agent.Name, Text: text, Hint: p.Hint}, p.Replies)
	if err != nil {
		return Reply{}, err
	}
	if err := note(trajectory.Event{Kind: trajectory.Answered, Text: said}); err != nil {
		return Reply{}, err
	}
	out := Reply{Text: said}
	if b := []byte(strings.TrimSpace(said)); p.Settings.OutputFormat != nil && json.Valid(b) && b[0] == '{' {
		out.Structured = b
	}
	return out, nil
}

// ask waits for a reply from the terminal, or for one that was given otherwise.
func (r *personRunner) ask(ctx context.Context, q Question, replies <-chan step.Decision) (string, error) {
	asking, cancel := context.WithCancel(ctx)
	typed := make(chan string, 1)
	var wg sync.WaitGroup
	if ask := r.agent.all.o.Ask; ask != nil {
		wg.Go(func() {
			if text, err := ask(asking, q); err == nil {
				typed <- text
			}
		})
	}
	defer wg.Wait()
	defer cancel()
	for {
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case text := <-typed:
			return text, nil
		case d := <-replies:
			if d.Choice == step.Reply {
				return d.Comment, nil
			}
		}
	}
}

// personText is a message as a person reads it.
func personText(parts []wire.Part) string {
	var out []string
	for _, p := range parts {
		switch {
		case p.Kind == wire.KindText:
			out = append(out, p.Text)
		case p.Kind == wire.KindData:
			out = append(out, string(p.Data))
		case p.File != nil && p.File.URI != "":
			out = append(out, fmt.Sprintf("[file %s at %s]", p.File.Name, p.File.URI))
		case p.File != nil:
			out = append(out, fmt.Sprintf("[file %s, which can't be shown here]", p.File.Name))
		}
	}
	return strings.Join(out, "\n")
}

var _ Runner = (*personRunner)(nil)
