// Package trigger acts in an environment when something happens there: a call, a state, a time, a request to a website.
//
// A trigger is armed until its condition is met; then it fires: its actions run, one after the other, beside what the agents do. One with a barrier holds
// the call that provoked it until they have ended. An action calls a tool, changes which tools a role may use, or has an executor, an agent, carry out an
// instruction. Actions themselves provoke nothing. The package reaches tools and agents through Host and Executor alone.
package trigger

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/gateway/clock"
)

// ErrInvalid is wrapped by errors about what was registered.
var ErrInvalid = errors.New("invalid trigger")

// defaultBarrier is how long a barrier holds a call that says nothing about it.
const defaultBarrier = 30 * time.Second

// Host is the environment.
type Host interface {
	// Call calls a tool in a role ("" is nobody's) and gives its CallToolResult. Such calls provoke no trigger.
	Call(ctx context.Context, tool string, args json.RawMessage, role string) (json.RawMessage, error)
	// Tool tells whether there is a tool, and whether it says that it changes nothing. all is false while tools may still appear.
	Tool(name string) (known, readOnly, all bool)
	Websites() []string
	SetAccess(role string, tools []string, allow bool)
	// Record has an event on record; members are JSON without braces.
	Record(kind string, members []byte)
	// LastChange is the id of the last change as JSON; null when none are kept.
	LastChange(ctx context.Context) string
	// Changed is told that Save has another answer now.
	Changed()
}

// Errand is an instruction for an executor.
type Errand struct {
	URL         string // of the agent, without /a2a
	Context     string // of the conversation
	Instruction string
}

// Executor sends errands to agents and waits until they are done. An error tells that one was not; ctx bounds it.
type Executor interface {
	Send(ctx context.Context, e Errand) (reply string, err error)
}

// Statuses of a trigger.
const (
	armed     = "armed"
	firing    = "firing"
	queued    = "queued" // firing, and more calls wait
	fired     = "fired"
	failed    = "failed"
	cancelled = "cancelled"
)

// Engine holds the triggers of one environment. Close ends what they have under way.
type Engine struct {
	host     Host
	executor Executor
	clock    *clock.Clock
	log      *slog.Logger
	ctx      context.Context //nolint:containedctx // the engine's life: fires outlive the call that provoked them
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	kick     chan struct{} // the time driver looks again

	mu         sync.Mutex
	configured bool
	watch      []string // roles whose calls provoke triggers that name none
	executors  map[string]executor
	order      []*trig
	events     eventLog
	inFlight   map[string][]cause // executor's role -> the fires that it carries out
}

// cause is a fire that calls are made for.
type cause struct {
	Trigger string `json:"trigger_id"`
	Action  int    `json:"action_index"`
	Fire    int    `json:"fire"`
}

// trig is a trigger and how it stands; Engine.mu guards it.
type trig struct {
	*spec
	status                     string
	detectedAt, firedAt        string
	fireCount, failures, tries int
	lastFailure                string
	evaluating, waiting        bool
	next                       time.Time // of a time trigger; zero for none
	resolved                   bool      // its first mark is known
	generation                 uint64    // of the clock, when it became known
	rng                        *twister
	delays                     map[int]*twister
	pending                    []provocation
	stop                       context.CancelFunc // of the fire under way
	done                       chan struct{}      // closed when it has ended
	removed                    bool
}

// provocation is what a fire is for, and when it happened by clock.Elapsed.
type provocation struct {
	facts facts
	since float64
}

// New makes an engine without triggers. ctx bounds its life.
func New(ctx context.Context, host Host, ex Executor, c *clock.Clock, log *slog.Logger) *Engine {
	e := &Engine{host: host, executor: ex, clock: c, log: log, executors: map[string]executor{}, inFlight: map[string][]cause{}, kick: make(chan struct{}, 1)}
	e.ctx, e.cancel = context.WithCancel(ctx)
	return e
}

// Start begins to watch the clock.
func (e *Engine) Start() { e.wg.Go(e.drive) }

// Close ends fires and waits for them.
func (e *Engine) Close() {
	e.cancel()
	e.wg.Wait()
}

func now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000+00:00") }

// Registered is the answer to Register.
type Registered struct {
	OK    bool     `json:"ok"`
	Added []string `json:"added"` // of this call, whether they were there before or not
	All   []string `json:"all"`
}

// Register adds triggers, and sets who watches and who carries out; body is the request's JSON. Either all of it is taken or nothing. A trigger that is
// there already, as it is, stays as it stands; another of its id is refused.
func (e *Engine) Register(body []byte) (Registered, error) {
	v, err := decode(body)
	obj, ok := v.(map[string]any)
	if err != nil || !ok {
		return Registered{}, bad("the body must be a JSON object")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	watch, err := e.readWatch(obj)
	if err != nil {
		return Registered{}, err
	}
	executors, err := e.readExecutors(obj, watch)
	if err != nil {
		return Registered{}, err
	}
	list, ok := obj["triggers"].([]any)
	if !ok {
		return Registered{}, bad("triggers must be a list")
	}
	specs, ids, err := e.readTriggers(list, reader{executors, e.host.Websites()})
	if err != nil {
		return Registered{}, err
	}
	e.watch, e.executors, e.configured = watch, executors, true
	for _, s := range specs {
		e.order = append(e.order, newTrig(s))
		e.emit("added", s.id, nil)
	}
	out := Registered{OK: true, Added: ids, All: []string{}}
	for _, t := range e.order {
		out.All = append(out.All, t.id)
	}
	e.changed()
	return out, nil
}

func newTrig(s *spec) *trig {
	t := &trig{spec: s, status: armed, delays: map[int]*twister{}}
	t.seed()
	for i, a := range s.actions {
		if a.delay != nil && a.delay.drawn {
			t.delays[i] = newTwister(a.delay.seed)
		}
	}
	return t
}

// seed begins the schedule anew.
func (t *trig) seed() {
	if t.when.every != nil && t.when.every.drawn {
		t.rng = newTwister(t.when.every.seed)
	}
}

// readTriggers reads the new ones of a list; ids are those of all of them.
func (e *Engine) readTriggers(list []any, r reader) (specs []*spec, ids []string, err error) {
	for _, raw := range list {
		obj, ok := raw.(map[string]any)
		if !ok {
			return nil, nil, bad("every trigger must be an object")
		}
		if obj["id"] == nil {
			var b [6]byte
			_, _ = rand.Read(b[:]) // it can't fail
			obj["id"] = "trg_" + hex.EncodeToString(b[:])
		}
		id := textOf(obj, "id")
		if id == "" {
			return nil, nil, bad("every trigger needs an id, a non-empty text")
		}
		if slices.Contains(ids, id) {
			return nil, nil, bad("trigger '%s': the id comes twice", id)
		}
		ids = append(ids, id)
		s, err := r.trigger(obj)
		if err == nil {
			err = e.knownTools(s)
		}
		if err != nil {
			return nil, nil, err
		}
		if old := e.find(id); old != nil {
			if !reflect.DeepEqual(old.doc, s.doc) {
				return nil, nil, bad("trigger '%s' is registered already, and differs: remove it first, or use another id", id)
			}
			continue
		}
		specs = append(specs, s)
	}
	return specs, ids, nil
}

func (e *Engine) find(id string) *trig {
	for _, t := range e.order {
		if t.id == id {
			return t
		}
	}
	return nil
}

// knownTools refuses triggers that name tools which nobody serves.
func (e *Engine) knownTools(s *spec) error {
	named := map[string]string{}
	add := func(where string, c check) {
		for _, st := range c {
			named[where] = st.tool
			if known, _, all := e.host.Tool(st.tool); all && !known {
				return
			}
		}
	}
	if s.when.kind == onAction {
		named["when.tool"] = s.when.tool
	}
	add("when.check", s.when.check)
	if s.when.unless != nil {
		named["when.unless.tool"] = s.when.unless.tool
	}
	for i, a := range s.actions {
		if a.kind == "tool" {
			named[sprintf("actions[%d].tool", i)] = a.tool
		}
		add(sprintf("actions[%d].verify", i), a.verify)
	}
	for where, tool := range named {
		if known, _, all := e.host.Tool(tool); all && !known {
			return bad("trigger '%s': %s names the unknown tool %q", s.id, where, tool)
		}
	}
	return nil
}

func (e *Engine) readWatch(obj map[string]any) ([]string, error) {
	v, ok := present(obj, "watch_roles")
	if !ok {
		if e.configured {
			return e.watch, nil
		}
		return []string{access.DefaultRole}, nil
	}
	watch, ok := texts(v)
	if !ok {
		return nil, bad("watch_roles must be a list of roles")
	}
	slices.Sort(watch)
	watch = slices.Compact(watch)
	if e.configured && !slices.Equal(watch, e.watch) {
		return nil, bad("watch_roles %q differ from those that were registered, %q: clear to change them", watch, e.watch)
	}
	return watch, nil
}

func (e *Engine) readExecutors(obj map[string]any, watch []string) (map[string]executor, error) {
	incoming := map[string]any{}
	if v, ok := present(obj, "executor"); ok {
		incoming[""] = v
	}
	if v, ok := present(obj, "executors"); ok {
		named, ok := v.(map[string]any)
		if _, unnamed := named[""]; !ok || unnamed {
			return nil, bad("executors must be an object, by name")
		}
		maps.Copy(incoming, named)
	}
	out := map[string]executor{}
	maps.Copy(out, e.executors)
	for name, raw := range incoming {
		x, err := readExecutor(raw, cmp.Or(name, "executor"), watch)
		if err != nil {
			return nil, err
		}
		if old, ok := out[name]; ok && !reflect.DeepEqual(old, x) {
			return nil, bad("executor %q differs from the one that was registered: clear to change it", name)
		}
		out[name] = x
	}
	return out, nil
}

func readExecutor(raw any, w string, watch []string) (x executor, err error) {
	obj, _ := raw.(map[string]any)
	x.URL, x.Role = trimSlash(textOf(obj, "a2a_url")), textOf(obj, "role")
	switch {
	case x.URL == "":
		return x, bad("%s.a2a_url must be a non-empty text", w)
	case x.Role == "":
		return x, bad("%s.role must be a non-empty text: the role in which that agent acts", w)
	case slices.Contains(watch, x.Role):
		return x, bad("%s.role %q must not be one of the watched roles: its own calls would fire triggers", w, x.Role)
	}
	x.Timeout = 120
	if v, ok := present(obj, "timeout_seconds"); ok {
		n, isNumber := v.(json.Number)
		x.Timeout, err = n.Float64()
		if !isNumber || err != nil || !(x.Timeout > 0) || x.Timeout > 1e6 {
			return x, bad("%s.timeout_seconds must be a number above 0", w)
		}
	}
	if v, ok := present(obj, "hours"); ok {
		x.Hours, err = readHours(v, w)
	}
	return x, err
}

// Removed is the answer to Remove.
type Removed struct {
	OK      bool     `json:"ok"`
	Removed []string `json:"removed"`
}

// Remove takes triggers away, with what they have under way; ids that aren't there are no fault. body is {"ids":[…]}.
func (e *Engine) Remove(body []byte) (Removed, error) {
	v, err := decode(body)
	obj, ok := v.(map[string]any)
	if err != nil || !ok {
		return Removed{}, bad("the body must be a JSON object")
	}
	ids, ok := texts(obj["ids"])
	if !ok {
		return Removed{}, bad("ids must be a list of non-empty texts")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	out := Removed{OK: true, Removed: []string{}}
	for _, id := range ids {
		t := e.find(id)
		if t == nil {
			continue
		}
		e.drop(t)
		e.order = slices.DeleteFunc(e.order, func(o *trig) bool { return o == t })
		out.Removed = append(out.Removed, id)
		e.emit("removed", id, nil)
	}
	e.changed()
	return out, nil
}

func (e *Engine) drop(t *trig) {
	t.removed = true
	if t.stop != nil {
		t.stop()
	}
}

// Clear forgets triggers, watchers, executors and events.
func (e *Engine) Clear() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.order {
		e.drop(t)
	}
	e.order, e.watch, e.configured = nil, nil, false
	e.executors, e.inFlight, e.events = map[string]executor{}, map[string][]cause{}, eventLog{}
	e.changed()
}

// changed tells the host and the driver; e.mu is held.
func (e *Engine) changed() {
	e.host.Changed()
	e.Kick()
}

// Kick has the time looked at again, after the clock was set.
func (e *Engine) Kick() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// CausedBy are the fires that a role's calls are made for, as JSON; nil for none.
func (e *Engine) CausedBy(role string) json.RawMessage {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.inFlight[role]) == 0 {
		return nil
	}
	b, err := json.Marshal(e.inFlight[role])
	if err != nil {
		return nil
	}
	return b
}
