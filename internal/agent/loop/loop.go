// Package loop is the built-in agent: it asks a model, makes the tool calls that the model wants, and asks again until it is done.
//
// Words: a conversation is the messages so far; a turn is from one message of the user to the agent's reply. Everything that happens is
// recorded before it has consequences: the record, not the agent's memory, is what a trajectory is made of. It knows no sandboxes: its
// tools come through an interface, and its model through another.
package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/trajectory"
)

// Tools are what the agent may call.
type Tools interface {
	// List is asked once a turn.
	List(ctx context.Context) ([]model.Tool, error)
	// Call makes one call; calls of one answer are made side by side. What a tool refuses is a Result with Error; an error ends the turn.
	Call(ctx context.Context, name string, args json.RawMessage) (Result, error)
}

// Result is what a tool answered.
type Result struct {
	Parts []model.Part
	Error bool
	Spill *trajectory.Spill // where the whole lies of which Parts hold head and tail
}

// Recorder keeps events. Record returns when the event would survive the process.
type Recorder interface {
	Record(e trajectory.Event) error
	// Image keeps a picture beside the record and answers its relative path.
	Image(media string, data []byte) (path string, err error)
}

// Config is an agent.
type Config struct {
	Model model.Model
	// Request is what every request to the model begins with: its name, system prompt, limits, variant. Messages and Tools are the loop's.
	Request model.Request
	Tools   Tools
	Record  Recorder
	// MaxTurns bounds the model's answers in one turn of the conversation; 0 is DefaultMaxTurns.
	MaxTurns int
	// Ends masks what may be parts of secrets at the ends of the two pieces that are kept of a long result. It may be nil.
	Ends func(head, tail string) (string, string)
	// Now is the clock of the record.
	Now func() time.Time
	// Spent is told what each answer cost. It may be nil.
	Spent func(model.Usage)
}

// Bounds.
const (
	DefaultMaxTurns = 100
	maxParallel     = 8        // calls of one answer at once
	maxResult       = 64 << 10 // bytes of a tool's text that the model is shown
	maxRepairs      = 2        // of answers that are not of the schema
)

// Reply is how a turn ended.
type Reply struct {
	Text       string
	Structured json.RawMessage // of an answer with a schema
	Stop       string          // of model, or StopTurns
	Usage      model.Usage
	ToolCalls  int
	Answers    int
}

// StopTurns: the bound on answers was reached.
const StopTurns = "max_turns"

// Failure is why a turn came to nothing through the agent's own doing. Everything else that fails is the machinery's.
type Failure struct {
	Code string // length, refusal, schema, context, request
	Err  error
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Agent is one agent with one conversation. Its turns are made one at a time.
type Agent struct {
	c        Config
	messages []model.Message
	answers  int // so far, for names
}

// New begins a conversation, or goes on with one.
func New(c Config, history []model.Message) *Agent {
	if c.MaxTurns <= 0 {
		c.MaxTurns = DefaultMaxTurns
	}
	return &Agent{c: c, messages: slices.Clone(history)}
}

// Messages are the conversation so far.
func (a *Agent) Messages() []model.Message { return a.messages }

// Turn answers what the user said. What failed is a *Failure, ctx's error, or the machinery's. The conversation keeps what was said until then.
func (a *Agent) Turn(ctx context.Context, parts []model.Part) (Reply, error) {
	var r Reply
	tools, err := a.c.Tools.List(ctx)
	if err != nil {
		return r, fmt.Errorf("list the tools: %w", err)
	}
	if err := a.begin(parts); err != nil {
		return r, err
	}
	repairs := 0
	for r.Answers < a.c.MaxTurns {
		res, err := a.ask(ctx, tools)
		if err != nil {
			return r, err
		}
		r.Answers++
		r.Usage = r.Usage.Add(res.Usage)
		r.Text, r.Stop = res.Message.Text(), res.Stop
		if calls := res.Message.Calls; len(calls) > 0 {
			r.ToolCalls += len(calls)
			if err := a.call(ctx, calls, tools, res.Stop == model.StopLength); err != nil {
				return r, err
			}
			continue
		}
		if done, err := a.done(&r, &repairs); done || err != nil {
			return r, err
		}
	}
	r.Stop = StopTurns
	return r, nil
}

func (a *Agent) begin(parts []model.Part) error {
	if len(a.messages) == 0 && a.c.Request.System != "" {
		if err := a.c.Record.Record(trajectory.Event{At: a.c.Now(), Kind: trajectory.Said, Source: trajectory.System, Text: a.c.Request.System}); err != nil {
			return err
		}
	}
	m := model.Message{Role: model.User, Parts: parts}
	e := trajectory.Event{At: a.c.Now(), Kind: trajectory.Said, Source: trajectory.User, Text: m.Text()}
	if err := a.images(&e, parts); err != nil {
		return err
	}
	a.messages = append(a.messages, m)
	return a.c.Record.Record(e)
}

func (a *Agent) images(e *trajectory.Event, parts []model.Part) error {
	for _, p := range parts {
		if p.Media == "" {
			continue
		}
		path, err := a.c.Record.Image(p.Media, p.Data)
		if err != nil {
			return err
		}
		e.Images = append(e.Images, trajectory.Image{Media: p.Media, Path: path})
	}
	return nil
}

// ask makes one request, with less of the past when all of it is too long.
func (a *Agent) ask(ctx context.Context, tools []model.Tool) (*model.Response, error) {
	for {
		q := a.c.Request
		q.Messages, q.Tools = a.messages, tools
		res, err := a.c.Model.Generate(ctx, &q)
		var e *model.Error
		switch {
		case err == nil:
			return res, a.answered(res)
		case errors.As(err, &e) && e.Kind == model.TooLong:
			if !a.shorten() {
				return nil, &Failure{"context", err}
			}
		case errors.As(err, &e) && !model.Infra(err):
			return nil, &Failure{"request", err}
		default:
			return nil, err
		}
	}
}

func (a *Agent) answered(res *model.Response) error {
	e := trajectory.Event{
		At: a.c.Now(), Kind: trajectory.Answered, Model: res.Model, Text: res.Message.Text(), Reasoning: res.Message.Reasoning,
		Tries: 1, Seconds: res.Took.Seconds(), Usage: &trajectory.Usage{Input: res.Usage.Input, Cached: res.Usage.Cached, Output: res.Usage.Output},
	}
	if res.Usage.Priced {
		e.Usage.USD = &res.Usage.USD
	}
	a.unique(res.Message.Calls)
	for _, c := range res.Message.Calls {
		e.Calls = append(e.Calls, trajectory.Call{ID: c.ID, Name: c.Name, Arguments: c.Args, Malformed: c.Malformed})
	}
	a.answers++
	a.messages = append(a.messages, res.Message)
	if a.c.Spent != nil {
		a.c.Spent(res.Usage)
	}
	return a.c.Record.Record(e)
}

// unique gives calls of one answer ids that differ: results are told apart by nothing else.
func (a *Agent) unique(calls []model.ToolCall) {
	seen := map[string]bool{}
	for i := range calls {
		if calls[i].ID == "" || seen[calls[i].ID] {
			calls[i].ID = fmt.Sprintf("call_%d_%d", a.answers+1, i+1)
		}
		seen[calls[i].ID] = true
	}
}

// leftOut stands in for a tool's result that no longer fits.
const leftOut = "[this result was left out to make room]"

// shorten leaves out the older half of the tool results that are still there, pictures first. It answers false when nothing is left to leave out.
func (a *Agent) shorten() bool {
	var at []int
	for i := range a.messages {
		m := &a.messages[i]
		if m.Role == model.ToolRole && m.Text() != leftOut {
			at = append(at, i)
		}
	}
	if len(at) < 2 { // the last one is what the model has just asked for
		return false
	}
	for _, i := range at[:(len(at)+1)/2] {
		m := a.messages[i]
		m.Parts = []model.Part{{Text: leftOut}}
		a.messages[i] = m
	}
	return true
}

// call makes the calls of one answer, side by side; what comes back is said in the order of the calls. cut says that the answer ended at its
// limit, so that its last call may lack its end.
func (a *Agent) call(ctx context.Context, calls []model.ToolCall, tools []model.Tool, cut bool) error {
	results := make([]Result, len(calls))
	errs := make([]error, len(calls))
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	var record sync.Mutex
	for i := range calls {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			results[i], errs[i] = a.one(ctx, &calls[i], tools, cut && i == len(calls)-1)
			if errs[i] == nil {
				record.Lock()
				defer record.Unlock()
				errs[i] = a.returned(&calls[i], &results[i])
			}
		})
	}
	wg.Wait()
	for i := range calls {
		if errs[i] != nil {
			continue
		}
		a.messages = append(a.messages, model.Message{Role: model.ToolRole, CallID: calls[i].ID, Error: results[i].Error, Parts: results[i].Parts})
	}
	return errors.Join(errs...)
}

func (a *Agent) one(ctx context.Context, c *model.ToolCall, tools []model.Tool, cut bool) (Result, error) {
	switch {
	case !slices.ContainsFunc(tools, func(t model.Tool) bool { return t.Name == c.Name }):
		return refuse("There is no tool %q. There are: %s.", c.Name, names(tools)), nil
	case c.Malformed != "" && cut:
		return refuse("The answer reached its limit inside this call, which was not made. Make it again, shorter."), nil
	case c.Malformed != "":
		return refuse("The arguments are not a JSON object, so the call was not made. They were: %s", clip(c.Malformed, 2000, a.c.Ends)), nil
	}
	r, err := a.c.Tools.Call(ctx, c.Name, c.Args)
	if err != nil {
		return r, fmt.Errorf("call %s: %w", c.Name, err)
	}
	if len(r.Parts) == 0 {
		r.Parts = []model.Part{{Text: "(nothing)"}}
	}
	for i, p := range r.Parts {
		if p.Media == "" {
			r.Parts[i].Text = clip(p.Text, maxResult, a.c.Ends)
		}
	}
	return r, nil
}

func refuse(format string, args ...any) Result {
	return Result{Error: true, Parts: []model.Part{{Text: fmt.Sprintf(format, args...)}}}
}

func names(tools []model.Tool) string {
	var out []string
	for _, t := range tools {
		out = append(out, t.Name)
	}
	return strings.Join(out, ", ")
}

// clip keeps head and tail of a text that is too long, and says how much is left out.
func clip(s string, limit int, ends func(head, tail string) (string, string)) string {
	if len(s) <= limit {
		return s
	}
	half := limit / 2
	head, tail := strings.ToValidUTF8(s[:half], ""), strings.ToValidUTF8(s[len(s)-half:], "")
	if ends != nil {
		head, tail = ends(head, tail)
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", head, len(s)-2*half, tail)
}

func (a *Agent) returned(c *model.ToolCall, r *Result) error {
	m := model.Message{Parts: r.Parts}
	e := trajectory.Event{At: a.c.Now(), Kind: trajectory.Returned, Call: c.ID, Text: m.Text(), Error: r.Error, Spill: r.Spill}
	if err := a.images(&e, r.Parts); err != nil {
		return err
	}
	return a.c.Record.Record(e)
}

// done tells whether an answer without calls ends the turn. One that is not of the schema is asked for again, a few times.
func (a *Agent) done(r *Reply, repairs *int) (bool, error) {
	switch r.Stop {
	case model.StopRefusal:
		return true, &Failure{"refusal", errors.New("the model would not answer: " + clip(r.Text, 300, a.c.Ends))}
	case model.StopLength:
		return true, &Failure{"length", errors.New("the model's answer reached its limit of tokens before it was complete")}
	}
	if a.c.Request.Schema == nil {
		return true, nil
	}
	if s, ok := object(r.Text); ok {
		r.Structured = s
		return true, nil
	}
	if *repairs++; *repairs > maxRepairs {
		return true, &Failure{"schema", errors.New("the model's answer is no JSON, as it was asked for: " + clip(r.Text, 300, a.c.Ends))}
	}
	return false, a.begin([]model.Part{{Text: "Your answer is no JSON value of the schema you were given. Answer with that JSON alone."}})
}

// object finds the JSON value that a text is, also inside a fence.
func object(s string) (json.RawMessage, bool) {
	s = strings.TrimSpace(s)
	if in, ok := strings.CutPrefix(s, "```"); ok {
		in = strings.TrimPrefix(in, "json")
		s = strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(in), "```"))
	}
	if s == "" || !json.Valid([]byte(s)) {
		return nil, false
	}
	return json.RawMessage(s), true
}
