package agent

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// Bounds of what is kept of tasks.
const (
	maxContexts = 1024      // contexts in which nothing is under way; the least recently used are forgotten whole
	maxOpen     = 16 << 10  // tasks that haven't ended; further ones are refused
	maxTasks    = 4096      // ended tasks of one context; the oldest are forgotten
	maxUpdates  = 1024      // progress messages of one task; the oldest are forgotten
	maxLog      = 256 << 20 // bytes of one task's trajectory; more is an error of Record
	maxStored   = 1 << 30   // bytes of messages and trajectories; beyond, idle contexts are forgotten, the least recently used first
)

// timeForm has a fixed width, so that texts compare as times do.
const timeForm = "2006-01-02T15:04:05.000000-07:00"

func stamp() string { return time.Now().UTC().Format(timeForm) }

// store holds tasks by context and runs them, one at a time in each.
type store struct {
	agent *Agent
	work  sync.WaitGroup

	mu       sync.Mutex // guards what follows and all that tasks and conversations hold
	tasks    map[string]*task
	contexts map[string]*conversation
	clock    uint64 // counts uses of contexts
	open     int    // tasks that haven't ended
	stored   int    // bytes of messages and trajectories
	closed   bool
}

type conversation struct {
	id    string
	tasks []*task
	queue []*task // that wait
	busy  bool    // a goroutine runs the queue
	used  uint64
}

type task struct {
	id, context string
	message     wire.Message
	ctx         context.Context //nolint:containedctx // a queued task keeps the one that its turn will run in
	cancel      context.CancelFunc

	state   string
	stamp   string
	begun   bool
	final   *wire.Message
	notes   []wire.Message      // progress messages, as the history holds them
	updates []wire.StatusUpdate // what streams are told; the last is final once the task has ended
	lost    int                 // updates that were forgotten
	changed chan struct{}       // closed at the next update

	events   []json.RawMessage
	logged   int // bytes of events
	stored   int // bytes of all that is kept
	form     string
	native   json.RawMessage
	returned bool // the agent's function has returned
}

func newStore(a *Agent) *store {
	return &store{agent: a, tasks: map[string]*task{}, contexts: map[string]*conversation{}}
}

// reply is a message of the agent's about a task.
func (t *task) reply(parts []wire.Part) *wire.Message {
	return &wire.Message{Kind: "message", MessageID: newUUID(), Role: wire.RoleAgent, Parts: parts, ContextID: t.context, TaskID: t.id}
}

// submit queues a task for a message. ctx gives values alone: a task outlives the request that made it.
func (s *store) submit(ctx context.Context, m wire.Message) (*task, *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.TaskID != "" {
		return nil, s.follow(m)
	}
	if s.closed || s.open >= maxOpen {
		return nil, &wire.Error{Code: wire.CodeInternal, Message: "the agent takes no more tasks now"}
	}
	t := &task{id: newUUID(), state: wire.TaskSubmitted, stamp: stamp(), changed: make(chan struct{})}
	if t.context = m.ContextID; t.context == "" {
		t.context = newUUID()
	}
	m.Kind, m.TaskID, m.ContextID = "message", t.id, t.context
	t.message = m
	t.ctx, t.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c := s.contexts[t.context]
	if c == nil {
		c = &conversation{id: t.context}
		s.contexts[t.context] = c
	}
	s.touch(c)
	c.tasks = append(c.tasks, t)
	c.queue = append(c.queue, t)
	s.tasks[t.id] = t
	s.open++
	s.keep(t, weight(&m))
	s.evict(c)
	if !c.busy {
		c.busy = true
		s.work.Go(func() { s.drain(c) })
	}
	return t, nil
}

// follow says why a message can't go on with the task that it names: it asks for work, and a task is one piece of it.
func (s *store) follow(m wire.Message) *wire.Error {
	t := s.tasks[m.TaskID]
	switch {
	case t == nil:
		return unknownTask(m.TaskID)
	case m.ContextID != "" && m.ContextID != t.context:
		return badParams("message: contextId is not the task's")
	case wire.TaskEnded(t.state):
		return badParams("message: the task has ended; leave taskId out to go on in its context")
	}
	return badParams("message: the task is under way and takes no more messages; leave taskId out to queue another in its context")
}

func (s *store) touch(c *conversation) { s.clock++; c.used = s.clock }

// evict forgets what exceeds the bounds, but nothing that is under way, and not keep.
func (s *store) evict(keep *conversation) {
	for excess := len(keep.tasks) - maxTasks; excess > 0 && keep.tasks[0].returned; excess-- {
		s.forget(keep.tasks[0])
		keep.tasks = keep.tasks[1:]
	}
	for len(s.contexts) > maxContexts || s.stored > maxStored {
		var oldest *conversation
		for _, c := range s.contexts {
			if !c.busy && c != keep && (oldest == nil || c.used < oldest.used) {
				oldest = c
			}
		}
		if oldest == nil {
			return
		}
		for _, t := range oldest.tasks {
			s.forget(t)
		}
		delete(s.contexts, oldest.id)
	}
}

func (s *store) forget(t *task) {
	delete(s.tasks, t.id)
	s.stored -= t.stored
}

// keep counts bytes that a task holds on to.
func (s *store) keep(t *task, n int) {
	t.stored += n
	s.stored += n
}

// weight is about how many bytes a message takes.
func weight(m *wire.Message) int {
	n := len(m.Metadata)
	for _, p := range m.Parts {
		n += len(p.Text) + len(p.Data) + len(p.Metadata)
		if p.File != nil {
			n += len(p.File.Bytes) + len(p.File.URI)
		}
	}
	return n
}

// drain runs the tasks of a context until none waits.
func (s *store) drain(c *conversation) {
	for {
		s.mu.Lock()
		if len(c.queue) == 0 {
			c.busy = false
			s.evict(c)
			s.mu.Unlock()
			return
		}
		t := c.queue[0]
		c.queue[0] = nil
		c.queue = c.queue[1:]
		t.begun = true
		s.update(t, wire.TaskStatus{State: wire.TaskWorking, Timestamp: stamp()}, nil)
		s.mu.Unlock()
		res, err := s.agent.attempt(t)
		s.finish(t, &res, err)
	}
}

// finish ends a task by what its turn returned, unless it was cancelled before.
func (s *store) finish(t *task, res *Result, err error) {
	state, parts, err := s.agent.outcome(t, res, err)
	s.mu.Lock()
	defer s.mu.Unlock()
	t.returned = true
	t.cancel()
	t.ctx = nil // its values are its request's
	if wire.TaskEnded(t.state) {
		return
	}
	if err == nil && len(res.Trajectory) > 0 {
		t.native = res.Trajectory
		s.keep(t, len(t.native))
	}
	s.end(t, state, t.reply(parts))
}

// end puts a task into its last state.
func (s *store) end(t *task, state string, m *wire.Message) {
	s.open--
	if t.final = m; m != nil {
		s.keep(t, weight(m))
	}
	s.update(t, wire.TaskStatus{State: state, Timestamp: stamp(), Message: m}, nil)
}

// update changes a task's state and tells those who watch it.
func (s *store) update(t *task, st wire.TaskStatus, meta json.RawMessage) {
	t.state, t.stamp = st.State, st.Timestamp
	t.updates = append(t.updates, wire.StatusUpdate{Kind: "status-update", TaskID: t.id, ContextID: t.context, Status: st, Final: wire.TaskEnded(st.State), Metadata: meta})
	if len(t.updates) > maxUpdates {
		t.updates = slices.Delete(t.updates, 0, 1)
		t.lost++
	}
	close(t.changed)
	t.changed = make(chan struct{})
}

func (s *store) progress(t *task, m *wire.Message, meta json.RawMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if wire.TaskEnded(t.state) {
		return
	}
	if t.notes = append(t.notes, *m); len(t.notes) > maxUpdates {
		s.keep(t, -weight(&t.notes[0]))
		t.notes = slices.Delete(t.notes, 0, 1)
	}
	s.keep(t, weight(m))
	s.update(t, wire.TaskStatus{State: wire.TaskWorking, Timestamp: stamp(), Message: m}, meta)
}

// cancel ends a task and interrupts its turn. Its context's next turn begins when the interrupted one has returned.
func (s *store) cancel(id string) (wire.Task, *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[id]
	switch {
	case t == nil:
		return wire.Task{}, unknownTask(id)
	case wire.TaskEnded(t.state):
		return wire.Task{}, &wire.Error{Code: wire.CodeNotCancelable, Message: "the task has ended and can't be canceled"}
	}
	s.abort(t)
	return t.view(0), nil
}

func (s *store) abort(t *task) {
	if c := s.contexts[t.context]; c != nil && !t.begun {
		c.queue = slices.DeleteFunc(c.queue, func(q *task) bool { return q == t })
		t.returned = true
	}
	t.cancel()
	s.end(t, wire.TaskCanceled, nil)
}

// view is a task as callers see it; history is how many messages, 0 all.
func (t *task) view(history int) wire.Task {
	v := wire.Task{
		Kind: "task", ID: t.id, ContextID: t.context,
		Status:  wire.TaskStatus{State: t.state, Message: t.final},
		History: append([]wire.Message{t.message}, t.notes...),
	}
	if t.state != wire.TaskSubmitted {
		v.Status.Timestamp = t.stamp
	}
	if history > 0 && len(v.History) > history {
		v.History = v.History[len(v.History)-history:]
	}
	return v
}

func (s *store) get(id string, history int) (wire.Task, *wire.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.tasks[id]
	if t == nil {
		return wire.Task{}, unknownTask(id)
	}
	s.touch(s.contexts[t.context])
	return t.view(history), nil
}

// await is the task once it has ended, or as it is when ctx ends.
func (s *store) await(ctx context.Context, t *task, history int) wire.Task {
	for {
		s.mu.Lock()
		v, changed := t.view(history), t.changed
		s.mu.Unlock()
		if wire.TaskEnded(v.Status.State) {
			return v
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return v
		}
	}
}

// since are the updates from a position on, and where the next will be; ended says that no more will come before changed is closed.
func (s *store) since(t *task, after int) (ups []wire.StatusUpdate, next int, ended bool, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := max(after-t.lost, 0)
	ups = slices.Clone(t.updates[min(from, len(t.updates)):])
	return ups, t.lost + len(t.updates), wire.TaskEnded(t.state), t.changed
}

// close cancels all that is under way and waits for it, no longer than ctx lasts.
func (s *store) close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	for _, t := range s.tasks {
		if !wire.TaskEnded(t.state) {
			s.abort(t)
		}
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() { s.work.Wait(); close(done) }()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("turns that were cancelled go on: %w", context.Cause(ctx))
	}
}

// newUUID is a random UUID with dashes.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails: the program ends before
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// newID is n random bytes in hex digits.
func newID(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // it never fails: the program ends before
	return hex.EncodeToString(b)
}
