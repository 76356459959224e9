package deploy

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/wire"
)

// What a saved conversation is made of: the agent's own record of it, and the files that it works on. Both are in a form that the agent alone reads.
const (
	StateTrajectory = "trajectory"
	StateWorkspace  = "workspace"
)

// Bounds of what is saved.
const (
	maxStateTrajectory = 1 << 30
	maxStateWorkspace  = 5 << 30
	// stateTime bounds a load, which nobody else bounds.
	stateTime = 10 * time.Minute
)

// stateful is a Runner whose conversations can be saved and loaded.
type stateful interface {
	// saves tells whether the agent can save and load at all; ErrNotServed, with why.
	saves() error
	// save puts both pieces.
	save(ctx context.Context, conversation string, put func(name string, r io.Reader) error) error
	// load answers the conversation that goes on with what was saved; target is the one to load into, "" leaves that to the agent.
	load(ctx context.Context, open func(name string) (io.ReadCloser, int64, error), target string) (conversation string, err error)
}

func (a *Agent) stateful() (stateful, error) {
	s, ok := a.Runner.(stateful)
	if !ok {
		return nil, fmt.Errorf("%s %w", wire.URNSnapshot, ErrNotServed)
	}
	return s, s.saves()
}

// Saves tells whether the agent's conversations can be saved: nil, or ErrNotServed.
func (a *Agent) Saves() error {
	_, err := a.stateful()
	return err
}

// Save puts what the agent needs to go on with a conversation: StateTrajectory and StateWorkspace, each once, and read to its end before the next.
func (a *Agent) Save(ctx context.Context, conversation string, put func(name string, r io.Reader) error) error {
	s, err := a.stateful()
	if err != nil {
		return err
	}
	return s.save(ctx, conversation, put)
}

// Load gives the agent what Save put, and answers the conversation in which it goes on. open answers a piece and its size.
func (a *Agent) Load(ctx context.Context, open func(name string) (io.ReadCloser, int64, error), target string) (conversation string, err error) {
	s, err := a.stateful()
	if err != nil {
		return "", err
	}
	return s.load(ctx, open, target)
}

// loopState is the built-in agent's record of a conversation.
type loopState struct {
	Format   string          `json:"format"`
	Messages []model.Message `json:"messages"`
}

const loopFormat = "agent-env/loop/v1"

// loopHome is the folder of the built-in agent's sandbox that it works in.
const loopHome = "/root"

func (r *loopRunner) saves() error { return nil }

// save puts the conversation as it stood when its last turn ended, and the agent's folder as it is.
func (r *loopRunner) save(ctx context.Context, conversation string, put func(string, io.Reader) error) error {
	r.mu.Lock()
	t := r.talks[conversation]
	r.mu.Unlock()
	if t == nil {
		return fmt.Errorf("the agent knows no conversation %s", conversation)
	}
	state := loopState{Format: loopFormat, Messages: []model.Message{}}
	if m := t.ended.Load(); m != nil {
		state.Messages = *m
	}
	b, err := json.Marshal(state)
	if err != nil {
		return err
	}
	if secrets := r.agent.all.o.Redact; secrets != nil {
		b = secrets.JSON(b)
	}
	if err := put(StateTrajectory, bytes.NewReader(b)); err != nil {
		return err
	}
	if !r.agent.HasBox() { // it has done nothing that leaves files
		var empty bytes.Buffer
		if err := tar.NewWriter(&empty).Close(); err != nil {
			return err
		}
		return put(StateWorkspace, &empty)
	}
	box, err := r.agent.Box(ctx)
	if err != nil {
		return err
	}
	return r.agent.putTree(func(w *treeWriter) error { return w.add(ctx, box, loopHome, "", false) }, put)
}

func (r *loopRunner) load(ctx context.Context, open func(string) (io.ReadCloser, int64, error), target string) (string, error) {
	f, size, err := open(StateTrajectory)
	if err != nil {
		return "", err
	}
	defer f.Close()
	if size > maxAgentState {
		return "", fmt.Errorf("the conversation is larger than %d MiB", maxAgentState>>20)
	}
	var state loopState
	if err := json.NewDecoder(f).Decode(&state); err != nil || state.Format != loopFormat {
		return "", errors.New("what was saved is no conversation of this agent")
	}
	w, size, err := open(StateWorkspace)
	if err != nil {
		return "", err
	}
	defer w.Close()
	if size > emptyTar {
		box, err := r.agent.Box(ctx)
		if err != nil {
			return "", err
		}
		if err := box.Extract(ctx, loopHome, w); err != nil {
			return "", step.Infra(fmt.Errorf("put the agent's folder back: %w", err))
		}
	}
	target = orNew(target)
	t := r.talk(target)
	t.Lock()
	defer t.Unlock()
	t.messages = state.Messages
	t.ended.Store(&state.Messages)
	return target, nil
}

// orNew is the conversation to go on in: a new one where nobody named it.
func orNew(target string) string {
	if target == "" {
		return rand.Text()
	}
	return target
}

const (
	maxAgentState = 256 << 20 // of the built-in agent's conversations, which are read into memory
	emptyTar      = 1024      // bytes of one without entries
)

func (r *a2aRunner) saves() error {
	for _, op := range []string{"save", "load"} {
		if _, ok := r.card.AgentOperation(wire.URNSnapshot, op); !ok {
			return fmt.Errorf("%s %w", wire.URNSnapshot, ErrNotServed)
		}
	}
	if _, err := r.stage(); err != nil {
		return err
	}
	return nil
}

func (r *a2aRunner) save(ctx context.Context, conversation string, put func(string, io.Reader) error) error {
	s, err := r.stage()
	if err != nil {
		return err
	}
	defer s.clear(ctx)
	err = r.client.Operation(ctx, &r.card, wire.URNSnapshot, "save", map[string]any{
		"context_id": conversation,
		"objects":    map[string]any{StateTrajectory: s.write(StateTrajectory, maxStateTrajectory), StateWorkspace: s.write(StateWorkspace, maxStateWorkspace)},
	}, nil, true)
	if err != nil {
		return r.fault(ctx, err)
	}
	for _, x := range []struct {
		name string
		most int64
	}{{StateTrajectory, maxStateTrajectory}, {StateWorkspace, maxStateWorkspace}} {
		if err := s.get(ctx, x.name, x.most, func(in io.Reader) error { return put(x.name, in) }); err != nil {
			return r.fault(ctx, err)
		}
	}
	return nil
}

func (r *a2aRunner) load(ctx context.Context, open func(string) (io.ReadCloser, int64, error), target string) (string, error) {
	s, err := r.stage()
	if err != nil {
		return "", err
	}
	defer s.clear(ctx)
	ctx, cancel := context.WithTimeoutCause(ctx, stateTime, fmt.Errorf("it did not load what was saved within %s", stateTime))
	defer cancel()
	objects := map[string]any{}
	for _, name := range []string{StateTrajectory, StateWorkspace} {
		f, size, err := open(name)
		if err != nil {
			return "", err
		}
		err = s.put(ctx, name, f, size)
		f.Close()
		if err != nil {
			return "", r.fault(ctx, err)
		}
		objects[name] = s.read(name, size)
	}
	in := map[string]any{"objects": objects}
	if target != "" {
		in["target_context_id"] = target
	}
	var out struct {
		Context string `json:"context_id"`
	}
	if err := r.client.Operation(ctx, &r.card, wire.URNSnapshot, "load", in, &out, true); err != nil {
		return "", r.fault(ctx, err)
	}
	if out.Context == "" {
		return "", errors.New("the agent doesn't say in which conversation it goes on")
	}
	return out.Context, nil
}

var (
	_ stateful = (*loopRunner)(nil)
	_ stateful = (*a2aRunner)(nil)
)
