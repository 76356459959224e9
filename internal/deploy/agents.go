package deploy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
)

// Errors that callers branch on.
var (
	// ErrNoAgent: the run has no agent of this name.
	ErrNoAgent = errors.New("is not deployed in this run")
	// ErrUnknownAgent: nothing is known by that id.
	ErrUnknownAgent = errors.New("no such agent")
)

// AgentOptions are what deployments of agents use.
type AgentOptions struct {
	Models *source.Models
	Store  envstore.Reader
	// Default is the agent of a request that names none.
	Default func(ctx context.Context) (string, error)
	// Release is the version of the agents that are part of the program.
	Release string
	// Records is the folder of what agents are doing; "" keeps that in memory alone.
	Records string
	// Redact takes the values of secrets out of what is recorded; nil knows none.
	Redact *redact.Redactor
	// Makers start the agents that come with the program, by id; those that have none can't be deployed.
	Makers map[string]Maker
	// Ask asks a person at this process's terminal and answers what they typed; an error is that nobody there replies. nil: there is none.
	Ask func(ctx context.Context, q Question) (string, error)
	// Waits are how long agents that speak A2A are waited for.
	Waits AgentWaits
}

// AgentWaits are limits of an agent that speaks A2A. Each is a default of its own where it is 0.
type AgentWaits struct {
	// Card is until its card is there; 180 s. Malformed is how long it may answer something that is no card: another program may be about to take its
	// place; 10 s.
	Card, Malformed time.Duration
	// Operation is one operation of an extension; 180 s.
	Operation time.Duration
	// End is how long the end of a program may follow that of its connections: only one that breaks them and lives on makes anybody wait; 10 s.
	End time.Duration
}

func (w AgentWaits) or() AgentWaits {
	return AgentWaits{
		Card: cmp.Or(w.Card, startLimit), Malformed: cmp.Or(w.Malformed, 10*time.Second), Operation: cmp.Or(w.Operation, 180*time.Second), End: cmp.Or(w.End, 10*time.Second),
	}
}

// Maker starts one kind of agent. What it makes is undone by the Runner's Close; boxes are made by Agent.Box and go with the run.
type Maker interface {
	// Check tells before anything is made why the agent can't be deployed here; it is sandbox.ErrUnsupported then.
	Check(ctx context.Context, chain []string, isolation string, r AgentRequest) error
	Start(ctx context.Context, a *Agent, r AgentRequest) (Runner, error)
}

// Agents deploys agents. What it made goes with the run's account. All methods may be called from several goroutines.
type Agents struct {
	boxes *Deployments
	envs  *Envs
	o     AgentOptions

	mu   sync.Mutex
	runs map[string][]*Agent // oldest first; one that is being made has no Runner yet

	waits waits
}

// NewAgents makes an empty one. From then on its agents are those that triggers of e's environments find by their names.
func NewAgents(d *Deployments, e *Envs, o AgentOptions) *Agents {
	o.Waits = o.Waits.or()
	g := &Agents{boxes: d, envs: e, o: o, runs: map[string][]*Agent{}}
	e.agents.Store(g)
	return g
}

// AgentRequest is one agent that a step or a person wants.
type AgentRequest struct {
	Run, Step      string
	Attempt, Trial int
	Name           string // by which the run knows it
	ID             string // of the agent, or a short name; "" is the default
	Version        int    // 0: the latest
	Settings       Settings
	Envs           []string // ids of environments of the run
	EnvStep        string   // the step that deployed them, where one was deployed twice
	Skills         []Skill
	Vars           map[string]string // environment of what it runs
	URL            string            // of an agent that runs elsewhere; "" for others
	Person         bool              // it is a person, whom Ask asks
	BaseURL        string            // another model endpoint than the configured one; ""

	// Sandbox is the name of a sandbox of the run that it works in; "" for one of its own, made when needed.
	Sandbox string
	Type    string // providers for its own, comma-separated; "" is the default chain
	Spec    sandbox.Spec
	Install *Install // into Sandbox; nil starts it as every other
}

// Agent is a deployed agent.
type Agent struct {
	Name     string
	ID       string
	Version  int
	Run      string
	Step     string
	Trial    int
	Role     string
	Instance string
	Created  time.Time
	Expires  time.Time
	Envs     []*Env
	Runner   Runner
	// Card and URL are those of an agent that speaks A2A.
	Card []byte
	URL  string

	all   *Agents
	req   AgentRequest
	peers peering
	rules *rules // its triggers, where this process holds them

	errands   atomic.Pointer[Errands] // nil: it takes none
	changelog atomic.Pointer[Changelog]

	open    sync.Mutex // held while its box is made
	box     guest.Box
	records []string      // files that go with it
	info    *sandbox.Info // of a box of its own; nil while it has none

	installing sync.Mutex      // held while a command is installed
	commands   map[string]bool // those that it has
	doors      map[*Env]string // URLs in its sandbox
	served     doors           // at those
}

// Resolve is the id of the agent that text names; "" is the default one.
func (g *Agents) Resolve(ctx context.Context, text string) (string, error) {
	if text == "" {
		var err error
		if text, err = g.o.Default(ctx); err != nil {
			return "", err
		}
	}
	if id, ok := agent.BuiltinID(text); ok {
		return id, nil
	}
	return text, nil
}

// elsewhere is the request with the address of an agent that is named by it.
func (r AgentRequest) elsewhere() AgentRequest {
	if r.URL == "" && agent.Elsewhere(r.ID) {
		r.URL = r.ID
	}
	return r
}

func (g *Agents) maker(ctx context.Context, r AgentRequest) (Maker, error) {
	if r.Person {
		return personMaker{}, nil
	}
	if r.URL != "" {
		return remoteMaker{}, nil
	}
	if _, builtin := agent.BuiltinID(r.ID); builtin && r.Install != nil {
		return nil, unsupported("the agent %s has no server to install; deploy_agent with sandbox_name has it work in a sandbox of the task", diag.Repr(r.ID))
	}
	if r.ID == agent.Loop {
		return loopMaker{}, nil
	}
	if m, ok := g.o.Makers[r.ID]; ok {
		return m, nil
	}
	if _, ok := agent.BuiltinID(r.ID); ok {
		return nil, unsupported("the agent %s can't be deployed by this version of agent-env", diag.Repr(r.ID))
	}
	return g.storedMaker(ctx, r)
}

// Check tells before anything is made why an agent can't be deployed: it is sandbox.ErrUnsupported or ErrUnknownAgent then, or nil.
func (g *Agents) Check(ctx context.Context, override []string, isolation string, r AgentRequest) error {
	var err error
	if r.ID, err = g.Resolve(ctx, r.ID); err != nil {
		return err
	}
	r = r.elsewhere()
	m, err := g.maker(ctx, r)
	if err != nil {
		return err
	}
	return m.Check(ctx, g.boxes.Chain(override, r.Type), isolation, r)
}

// Models finds models.
func (g *Agents) Models() *source.Models { return g.o.Models }

// Deploy starts an agent, connects it to its environments and gives it its skills and settings. Nothing is left behind when it fails.
func (g *Agents) Deploy(ctx context.Context, r AgentRequest) (_ *Agent, err error) {
	if r.ID, err = g.Resolve(ctx, r.ID); err != nil {
		return nil, err
	}
	r = r.elsewhere()
	m, err := g.maker(ctx, r)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	a := &Agent{
		Name: r.Name, ID: r.ID, Version: r.Version, Run: r.Run, Step: r.Step, Trial: r.Trial, Role: r.Settings.Role, Created: now,
		Instance: fileName(r.Name) + "-" + strings.ToLower(rand.Text()[:8]), all: g, req: r,
	}
	if r.Spec.Lease > 0 {
		a.Expires = now.Add(r.Spec.Lease)
	}
	for _, id := range r.Envs {
		v, err := g.envs.Env(r.Run, id, r.EnvStep)
		if err != nil {
			return nil, err
		}
		a.Envs = append(a.Envs, v)
	}
	if err := g.reserve(a); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = g.drop(ctx, a) // what could not be removed goes at the run's end
		}
	}()
	if a.Runner, err = m.Start(ctx, a, r); err != nil {
		return nil, err
	}
	if err := a.introduce(ctx, r); err != nil {
		return nil, err
	}
	return a, g.boxes.Defer(r.Run, r.Step, "agent "+diag.Repr(r.Name), func(context.Context) error { return g.close(a) })
}

// introduce tells an agent that has started what it needs to know.
func (a *Agent) introduce(ctx context.Context, r AgentRequest) error {
	for _, v := range a.Envs {
		if err := a.Runner.AddMCP(ctx, MCP{Name: v.Title, Role: r.Settings.Role, Env: v}); err != nil {
			return fmt.Errorf("connect the agent to %s: %w", diag.Repr(v.ID), err)
		}
	}
	for _, s := range r.Skills {
		if err := a.Runner.AddSkill(ctx, s); err != nil {
			return fmt.Errorf("give the agent the skill %s: %w", diag.Repr(s.Name), err)
		}
	}
	if err := a.Runner.Configure(ctx, r.Settings); err != nil {
		return fmt.Errorf("configure the agent: %w", err)
	}
	return nil
}

// reserve takes the name.
func (g *Agents) reserve(a *Agent) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.ContainsFunc(g.runs[a.Run], func(o *Agent) bool { return o.Name == a.Name }) {
		return fmt.Errorf("agent %s %w", diag.Repr(a.Name), ErrTaken)
	}
	g.runs[a.Run] = append(g.runs[a.Run], a)
	return nil
}

func (g *Agents) forget(a *Agent) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := len(g.runs[a.Run])
	g.runs[a.Run] = slices.DeleteFunc(g.runs[a.Run], func(o *Agent) bool { return o == a })
	gone := len(g.runs[a.Run]) < n
	if len(g.runs[a.Run]) == 0 {
		delete(g.runs, a.Run)
	}
	return gone
}

// close ends an agent's program. Its box is left to the run's account.
func (g *Agents) close(a *Agent) error {
	if !g.forget(a) || a.Runner == nil {
		return nil
	}
	err := a.Runner.Close()
	a.closeDoors()
	a.open.Lock()
	defer a.open.Unlock()
	for _, path := range a.records {
		os.Remove(path)
	}
	if g.o.Records != "" {
		os.Remove(RecordsOf(g.o.Records, a.Run)) // it stays while another agent's records are in it
	}
	return err
}

// Recorded tells that what a record at a path of RecordPath holds is on the run's record by now: the file goes with the agent.
func (a *Agent) Recorded(path string) {
	if path == "" {
		return
	}
	a.open.Lock()
	defer a.open.Unlock()
	a.records = append(a.records, path)
}

// drop ends an agent and removes its own box.
func (g *Agents) drop(ctx context.Context, a *Agent) error {
	err := g.close(a)
	a.open.Lock()
	info := a.info
	a.info, a.box = nil, nil
	a.open.Unlock()
	if info != nil {
		_, rerr := g.boxes.Remove(context.WithoutCancel(ctx), a.Run, a.boxName())
		err = errors.Join(err, rerr)
	}
	return err
}

// Agent is a deployed agent of a run.
func (g *Agents) Agent(run, name string) (*Agent, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, a := range g.runs[run] {
		if a.Name == name && a.Runner != nil {
			return a, nil
		}
	}
	return nil, fmt.Errorf("agent %s %w", diag.Repr(name), ErrNoAgent)
}

// Live lists the agents of a run, oldest first.
func (g *Agents) Live(run string) []*Agent {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.runs[run])
}

// Remove ends an agent before the run's end and answers the ids of its sandboxes.
func (g *Agents) Remove(ctx context.Context, run, name string) ([]string, error) {
	a, err := g.Agent(run, name)
	if err != nil {
		return nil, err
	}
	var ids []string
	if b := a.OwnBox(); b != nil {
		ids = append(ids, b.ID)
	}
	return ids, g.drop(ctx, a)
}

// Box is the sandbox that an agent of a run works in, made when it had none yet.
func (g *Agents) Box(ctx context.Context, run, name string) (guest.Box, error) {
	a, err := g.Agent(run, name)
	if err != nil {
		return nil, err
	}
	return a.Box(ctx)
}

func (a *Agent) boxName() string { return "agent " + a.Name }

// BoxName is the name in the run of the sandbox that the agent works in.
func (a *Agent) BoxName() string { return cmp.Or(a.req.Sandbox, a.boxName()) }

// Beside are the other agents of the run that work in the same sandbox. What runs there as one can do all that another does: they are the same user, and every
// address of the sandbox is open to them, the doors of each agent among them.
func (a *Agent) Beside() []*Agent {
	var out []*Agent
	for _, o := range a.all.Live(a.Run) {
		if o != a && o.BoxName() == a.BoxName() {
			out = append(out, o)
		}
	}
	return out
}

// OwnBox is the sandbox that was made for the agent; nil while there is none.
func (a *Agent) OwnBox() *sandbox.Info {
	a.open.Lock()
	defer a.open.Unlock()
	return a.info
}

// HasBox tells whether the agent has a sandbox by now, its own or one of the run.
func (a *Agent) HasBox() bool { return a.req.Sandbox != "" || a.OwnBox() != nil }

// Box is the sandbox that the agent works in, made when it has none yet. Errors are the machinery's, but for ErrNoBox.
func (a *Agent) Box(ctx context.Context) (guest.Box, error) {
	a.open.Lock()
	defer a.open.Unlock()
	if a.box != nil {
		return a.box, nil
	}
	d := a.all.boxes
	if a.req.URL != "" || a.req.Person {
		return nil, fmt.Errorf("the sandbox of agent %s, which runs elsewhere, %w", diag.Repr(a.Name), ErrNoBox)
	}
	if a.req.Sandbox == "" && a.info == nil {
		info, err := d.Create(ctx, Request{
			Run: a.Run, Step: a.Step, Attempt: a.req.Attempt, Name: a.boxName(), Type: a.req.Type, Spec: a.req.Spec,
		})
		if err != nil {
			return nil, step.Infra(&step.Error{Type: "SandboxError", Err: err})
		}
		a.info = &info
	}
	box, err := d.Box(ctx, a.Run, a.BoxName())
	if err != nil {
		if errors.Is(err, ErrNoBox) {
			return nil, err
		}
		return nil, step.Infra(err)
	}
	a.box = box
	return box, nil
}

// InProcess tells whether the agent is a part of this program.
func (a *Agent) InProcess() bool {
	_, ok := a.Runner.(*loopRunner)
	return ok
}

// Principal is who the agent is at a gateway's door.
func (a *Agent) Principal() access.Principal {
	return access.Principal{Role: a.Role, Deployment: a.Instance}
}

// RecordPath is where the record of what an agent does in a step is kept while it happens; "" where nobody keeps it.
func (g *Agents) RecordPath(run, stepID string, attempt int, agent string) string {
	if g.o.Records == "" {
		return ""
	}
	return filepath.Join(RecordsOf(g.o.Records, run), fmt.Sprintf("%s.%d.%s.jsonl", url.PathEscape(stepID), attempt, url.PathEscape(agent)))
}

// RecordsOf is the folder of a run's records below that of all.
func RecordsOf(folder, run string) string { return filepath.Join(folder, url.PathEscape(run)) }

// Release is the version of the agent's program; "" where nobody knows.
func (a *Agent) Release() string {
	if a.InProcess() {
		return a.all.o.Release
	}
	return ""
}

// Redactor takes the values of secrets out of what is recorded.
func (g *Agents) Redactor() *redact.Redactor { return g.o.Redact }

// agentBoxes opens sandboxes of runs by their names, and those of agents by step.AgentBox.
type agentBoxes struct {
	boxes  *Deployments
	agents *Agents
}

// Boxes opens sandboxes of runs and of their agents.
func (g *Agents) Boxes() step.Boxes { return agentBoxes{g.boxes, g} }

func (b agentBoxes) Box(ctx context.Context, run, name string) (guest.Box, error) {
	who, ok := step.BoxAgent(name)
	if !ok {
		return b.boxes.Box(ctx, run, name)
	}
	box, err := b.agents.Box(ctx, run, who)
	if errors.Is(err, ErrNoAgent) {
		return nil, fmt.Errorf("agent %s %w", diag.Repr(who), ErrNoBox)
	}
	return box, err
}
