package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/trajectory"
)

// Options are where and how an agent's command runs.
type Options struct {
	Box     guest.Box
	Command string // its path in the box, as Find or Package.Path answer it; "" for a profile that brings its program along
	Runtime string // the path of node or python3 in the box; "" leaves it to the box
	Version string // of the command
	State   string // the agent's own folder in the box; "" is StateFolder. Each conversation has one of its own in it
	Work    string // the folder that it works in; "" is the box's home
	Model   string // the model's base URL in the box; "" is ModelURL
	Env     []string
}

// Agent is a command that is an agent, with any number of conversations. Those have folders of their own for what the command keeps, so that their turns are
// made side by side; the turns of one are made one at a time. It holds nothing that has to be closed; the box is the caller's.
type Agent struct {
	p *Profile
	o Options

	mu      sync.Mutex
	servers []Server
	skills  []Skill
	talks   map[string]*talk
}

// talk is one conversation. It is held during a turn.
type talk struct {
	sync.Mutex
	state   string // its folder
	session string
	spent   trajectory.Usage // by the command's count of the session, where it counts so

	model   string // of the turn
	servers []Server
	skills  []Skill
}

// talk is the conversation of a name, new when nobody knows it.
func (a *Agent) talk(name string) *talk {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.talks[name]
	if k == nil {
		k = &talk{state: a.o.State + "/" + strconv.Itoa(len(a.talks)+1)}
		a.talks[name] = k
	}
	return k
}

// begin gives a conversation what holds for its next turn.
func (a *Agent) begin(k *talk, p Prompt) {
	a.mu.Lock()
	defer a.mu.Unlock()
	k.model, k.servers, k.skills = cmp.Or(p.Model, a.o.Model), slices.Concat(a.servers, p.Servers), slices.Clone(a.skills)
}

// Session is what has to be known of a conversation, beside the files of its folder, to go on with it.
type Session struct {
	ID    string           `json:"id"` // the command's; "" while it has begun none
	Spent trajectory.Usage `json:"spent"`
}

// Session is that of a conversation, with the conversation's folder, as they are between two turns: it waits for the one under way. ok is false for one that
// nobody knows.
func (a *Agent) Session(conversation string) (s Session, folder string, ok bool) {
	a.mu.Lock()
	k := a.talks[conversation]
	a.mu.Unlock()
	if k == nil {
		return s, "", false
	}
	k.Lock()
	defer k.Unlock()
	return Session{k.session, k.spent}, k.state, true
}

// Resume makes a conversation go on with a session, once put has put the files into the conversation's folder. One that has begun is ErrTaken.
func (a *Agent) Resume(conversation string, s Session, put func(folder string) error) error {
	k := a.talk(conversation)
	k.Lock()
	defer k.Unlock()
	if k.session != "" {
		return ErrTaken
	}
	if err := put(k.state); err != nil {
		return err
	}
	k.session, k.spent = s.ID, s.Spent
	return nil
}

// New makes an agent of a profile.
func New(p *Profile, o Options) *Agent {
	o.State, o.Model = cmp.Or(o.State, StateFolder), cmp.Or(o.Model, ModelURL)
	return &Agent{p: p, o: o, talks: map[string]*talk{}}
}

// Profile is what the agent is.
func (a *Agent) Profile() *Profile { return a.p }

// ErrTaken: the agent has a server or a skill of this name already.
var ErrTaken = errors.New("the agent has one of this name already")

// AddServer gives the agent an MCP server from its next turn on.
func (a *Agent) AddServer(s Server) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.ContainsFunc(a.servers, func(o Server) bool { return o.Name == s.Name || o.URL == s.URL }) {
		return ErrTaken
	}
	a.servers = append(a.servers, s)
	return nil
}

// AddSkill gives the agent a skill from its next turn on. Its files are read at each turn.
func (a *Agent) AddSkill(s Skill) error {
	if s.Name == "" || s.Name == "." || s.Name == ".." || strings.ContainsAny(s.Name, "/\\\x00") {
		return errors.New("a skill's name is to be a folder's")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if slices.ContainsFunc(a.skills, func(o Skill) bool { return o.Name == s.Name }) {
		return ErrTaken
	}
	a.skills = append(a.skills, s)
	return nil
}

// Left names the settings that the command takes no notice of.
func (a *Agent) Left(s Settings) []string {
	return slices.DeleteFunc(s.set(), func(f string) bool { return a.p.Takes(f) })
}

// Prompt is what the user says.
type Prompt struct {
	Conversation string // the caller's name for it; a new one begins a conversation
	Text         string
	Files        []Attachment // put into the box, and named after the text
	Settings     Settings
	Model        string   // the model's base URL in the box for this turn; "" is the Options'
	Servers      []Server // beside the agent's
	// Heard is given the Reply's Events one by one, each when nothing more will be heard of it, so that a record is there when the agent or this
	// process is killed. Its error ends the turn. nil: nobody listens.
	Heard func(trajectory.Event) error
}

// Attachment is a file that the user shows.
type Attachment struct {
	Name string // of a file
	Data []byte
}

// How a turn goes on after a fault.
const (
	maxTries    = 3
	betweenRuns = 2 * time.Second
)

// Prompt makes one turn. What fails of the agent, its command or its model is the Reply's Fault; an error is the box's (guest.ErrGone), or ctx's.
func (a *Agent) Prompt(ctx context.Context, p Prompt) (Reply, error) {
	k := a.talk(p.Conversation)
	k.Lock()
	defer k.Unlock()
	a.begin(k, p)
	s := p.Settings
	out := Reply{Format: a.p.Format, Version: a.o.Version}
	if left := a.Left(s); left != nil {
		out.Notes = append(out.Notes, fmt.Sprintf("%s takes no %s: left out", a.p.Name, strings.Join(left, ", ")))
	}
	text, err := a.attach(ctx, k, p)
	if err != nil {
		return out, err
	}
	sys := s.SystemPrompt
	if a.p.Takes(FieldAppend) {
		sys = join(sys, s.AppendSystemPrompt)
	}
	if sys != "" && k.session == "" {
		out.Events = append(out.Events, trajectory.Event{At: time.Now(), Kind: trajectory.Said, Source: trajectory.System, Text: sys})
	}
	out.Events = append(out.Events, trajectory.Event{At: time.Now(), Kind: trajectory.Said, Source: trajectory.User, Text: text})
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(s.Timeout, a.p.Timeout), errTimeout)
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	tell := &teller{heard: p.Heard, stop: stop}
	tell.upTo(out.Events, len(out.Events))
	err = a.turn(ctx, k, s, text, &out, tell)
	tell.upTo(out.Events, len(out.Events))
	if tell.err != nil {
		return out, tell.err
	}
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), errTimeout) && (err != nil || out.Fault != nil) {
		err = nil
		out.Fault = &Fault{Type: AgentError, Code: CodeTimeout, Message: fmt.Sprintf("the turn took more than %s", cmp.Or(s.Timeout, a.p.Timeout))}
	}
	return out, err
}

var errTimeout = errors.New("the turn took too long")

// teller tells of events once.
type teller struct {
	heard func(trajectory.Event) error
	stop  context.CancelCauseFunc
	told  int
	err   error
}

func (t *teller) upTo(events []trajectory.Event, n int) {
	for ; t.heard != nil && t.err == nil && t.told < n; t.told++ {
		if t.err = t.heard(events[t.told]); t.err != nil {
			t.stop(t.err)
		}
	}
}

// settled is the number of events of which nothing more will be heard while a command runs: those before the model's last message.
func settled(events []trajectory.Event) int {
	for i := len(events) - 1; i >= 0; i-- {
		if events[i].Kind == trajectory.Answered {
			return i
		}
	}
	return 0
}

// turn runs the command until there is a reply, or a fault that stays.
func (a *Agent) turn(ctx context.Context, k *talk, s Settings, text string, out *Reply, tell *teller) error {
	if f, err := a.reachable(ctx, k); f != nil || err != nil {
		out.Fault, out.Native = f, json.RawMessage("[]")
		return err
	}
	var kept native
	var spent *trajectory.Usage
	defer func() {
		out.Session, out.Usage = k.session, spent
		out.Native = jsonOf(slices.Concat([]json.RawMessage{}, kept.kept))
		if kept.left > 0 {
			out.Notes = append(out.Notes, fmt.Sprintf("%d native events were too big to be kept", kept.left))
		}
		countOnce(out.Events, spent)
	}()
	for {
		out.Tries++
		before := slices.Clip(out.Events)
		h, err := a.run(ctx, k, s, text, &kept, func(events []trajectory.Event) {
			if n := len(before) + settled(events); n > tell.told {
				tell.upTo(append(before, events...), n)
			}
		})
		if h != nil {
			a.learn(k, h, &spent)
			out.Events = append(out.Events, h.events...)
			out.ToolCalls += h.calls
			out.Text, out.Structured, out.Fault = h.text, h.structured, h.fault
		}
		if err != nil {
			return err
		}
		next := a.again(s, k, text, out)
		if next == "" || out.Tries >= maxTries {
			return nil
		}
		if out.Fault.Passing {
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(betweenRuns):
			}
		}
		if next != text {
			out.Events = append(out.Events, trajectory.Event{At: time.Now(), Kind: trajectory.Said, Source: trajectory.User, Text: next})
		}
		text = next
	}
}

// again is what the command is to be told in one more run; "" when there is to be none.
func (a *Agent) again(s Settings, k *talk, text string, out *Reply) string {
	switch f := out.Fault; {
	case f == nil:
	case f.Code == CodeSchema && k.session != "" && out.Text != "":
		return "Your last message could not be read: " + f.Message + "." + asked(s.OutputFormat)
	case f.Passing && k.session != "" && out.ToolCalls > 0:
		return "Go on."
	case f.Passing:
		return text
	}
	return ""
}

// learn keeps what a run told of its session.
func (a *Agent) learn(k *talk, h *heard, spent **trajectory.Usage) {
	if h.session != "" {
		if h.session != k.session {
			k.spent = trajectory.Usage{}
		}
		k.session = h.session
	}
	u := h.usage
	if u == nil {
		return
	}
	now := *u
	if _, sums := a.p.adapter.(interface{ countsSessions() }); sums {
		now = trajectory.Usage{Input: max(0, u.Input-k.spent.Input), Cached: max(0, u.Cached-k.spent.Cached), Output: max(0, u.Output-k.spent.Output)}
		k.spent = *u
	}
	if *spent == nil {
		*spent = &trajectory.Usage{}
	}
	(*spent).Input, (*spent).Cached, (*spent).Output = (*spent).Input+now.Input, (*spent).Cached+now.Cached, (*spent).Output+now.Output
}

// countOnce gives the last of the model's messages what all of them cost where the command tells no more than that.
func countOnce(events []trajectory.Event, spent *trajectory.Usage) {
	last := -1
	for i := range events {
		if events[i].Kind != trajectory.Answered {
			continue
		}
		if last = i; events[i].Usage != nil {
			return
		}
	}
	if last >= 0 && spent != nil {
		events[last].Usage = new(*spent)
	}
}

// reachable tells which of the servers that the agent needs can't be connected to from inside the box.
func (a *Agent) reachable(ctx context.Context, k *talk) (*Fault, error) {
	check := func(what, code, raw string) (*Fault, error) {
		u, err := url.Parse(raw)
		if err != nil || u.Host == "" {
			return &Fault{Type: InfraError, Code: code, Message: what + " has no address that can be used"}, nil
		}
		port := cmp.Or(u.Port(), map[string]string{"https": "443"}[u.Scheme], "80")
		c, err := a.o.Box.Dial(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
		if err == nil {
			return nil, c.Close()
		}
		if errors.Is(err, guest.ErrGone) || ctx.Err() != nil {
			return nil, err
		}
		return &Fault{Type: InfraError, Code: code, Message: fmt.Sprintf("%s does not answer at %s in the sandbox", what, u.Host)}, nil
	}
	f, err := check("the model's endpoint", CodeModel, k.model)
	for i := 0; f == nil && err == nil && i < len(k.servers); i++ {
		f, err = check("the MCP server "+k.servers[i].Name, CodeTools, k.servers[i].URL)
	}
	return f, err
}

// run runs the command once.
func (a *Agent) run(ctx context.Context, k *talk, s Settings, text string, kept *native, after func([]trajectory.Event)) (*heard, error) {
	t := &turn{
		Settings: s, model: a.p.modelName(s.Model), prompt: text, session: k.session, servers: k.servers, skills: k.skills,
		state: k.state, work: a.o.Work, api: k.model, command: a.o.Command, node: cmp.Or(a.o.Runtime, a.p.Runtime.Name),
	}
	r, err := a.p.adapter.prepare(t)
	if err != nil {
		return nil, err
	}
	if err := guest.Put(ctx, a.o.Box, k.state, r.files); err != nil {
		return nil, fmt.Errorf("write the agent's configuration: %w", err)
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	l := lines{reader: a.p.adapter.reader(t), native: kept, flood: stop}
	var errs tail
	res, err := guest.Output(running, a.o.Box, guest.Command{Argv: r.argv, Env: slices.Concat(a.o.Env, r.env), Dir: a.o.Work}, guest.Limits{
		Stdout: 1, Stderr: 1, Stdin: []byte(r.stdin), Live: func(stderr bool, p []byte) {
			if stderr {
				errs.add(p)
			} else {
				l.add(p)
				after(l.reader.sofar())
			}
		},
	})
	l.line()
	var h heard
	l.reader.end(&h)
	switch {
	case l.flooded:
		h.fault = &Fault{Type: AgentError, Code: CodeFlood, Message: fmt.Sprintf("the command wrote more than %d MiB", maxOutput>>20)}
		return &h, nil
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission):
		h.fault = &Fault{Type: InfraError, Code: CodeCommand, Message: fmt.Sprintf("the command %s can't be run in the sandbox: %s", r.argv[0], err)}
		return &h, nil
	case err != nil:
		return &h, err
	}
	h.judge(res.Exit, s, cmp.Or(errs.String(), l.other.String()))
	return &h, nil
}

// judge tells by how a command ended, and by what it said, whether there is a reply. said is the end of what it wrote beside its events.
func (h *heard) judge(e guest.Exit, s Settings, said string) {
	if h.fault != nil {
		return
	}
	switch {
	case !h.done:
		why := fmt.Sprintf("the command ended with status %d before it had a reply", e.Status())
		if e.OOM {
			why += "; the sandbox ran out of memory"
		}
		h.fault = &Fault{Type: InfraError, Code: CodeNoReply, Message: join(why, said)}
	case !e.OK():
		h.fault = &Fault{Type: AgentError, Code: CodeCommand, Message: join(fmt.Sprintf("the command ended with status %d", e.Status()), said)}
	case len(s.OutputFormat) > 0 && h.structured == nil:
		h.fault = &Fault{Type: AgentError, Code: CodeSchema, Message: "the answer is not JSON alone"}
	case len(s.OutputFormat) > 0:
		if err := fits(s.OutputFormat, h.structured); err != nil {
			h.structured = nil
			h.fault = &Fault{Type: AgentError, Code: CodeSchema, Message: "the answer is not of the wanted form: " + err.Error()}
		}
	case h.text == "":
		h.fault = &Fault{Type: AgentError, Code: CodeNoReply, Message: "the agent ended its turn without a message"}
	}
}

// attach puts the user's files into the box, and says where they are.
func (a *Agent) attach(ctx context.Context, k *talk, p Prompt) (string, error) {
	if len(p.Files) == 0 {
		return p.Text, nil
	}
	folder := k.state + "/files"
	var files []guest.PutFile
	text := p.Text
	for i, f := range p.Files {
		name := fmt.Sprintf("%d-%s", i+1, strings.Map(func(r rune) rune {
			if r == '/' || r == '\\' || r < ' ' {
				return '_'
			}
			return r
		}, f.Name))
		files = append(files, file(name, f.Data))
		text = join(text, "Attached file: "+folder+"/"+name)
	}
	if err := guest.Put(ctx, a.o.Box, folder, files); err != nil {
		return "", fmt.Errorf("put the user's files into the sandbox: %w", err)
	}
	return text, nil
}
