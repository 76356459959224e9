package deploy

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
)

// turns let the prompts of one agent in, first come, first served: several at once where they belong to different conversations and the agent is
// configured for all of them alike. The zero value is ready.
type turns struct {
	mu      sync.Mutex
	under   []*turn // under way
	waiting []*turn
}

// turn is one prompt.
type turn struct {
	context string // its conversation; "" is one of its own
	with    string // what the agent is configured with for it; "" is nothing that others have, so that it is alone
	in      chan struct{}
	group   *configured
}

// configured is what the prompts that are under way together were configured with, by the first of them that succeeds.
type configured struct {
	mu   sync.Mutex
	done bool
	left []string
}

// enter waits until a prompt may be made; queued, when it isn't nil, is called once where it has to wait. leave is to be called when it has ended. The error
// is ctx's.
func (t *turns) enter(ctx context.Context, conversation, with string, queued func()) (_ *configured, leave func(), err error) {
	q := &turn{context: conversation, with: with, in: make(chan struct{})}
	t.mu.Lock()
	t.waiting = append(t.waiting, q)
	t.admit()
	t.mu.Unlock()
	select {
	case <-q.in:
		return q.group, func() { t.leave(q) }, nil
	default:
	}
	if queued != nil {
		queued()
	}
	select {
	case <-q.in:
	case <-ctx.Done():
		t.leave(q)
		return nil, nil, context.Cause(ctx)
	}
	return q.group, func() { t.leave(q) }, nil
}

func (t *turns) leave(q *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	same := func(o *turn) bool { return o == q }
	t.under, t.waiting = slices.DeleteFunc(t.under, same), slices.DeleteFunc(t.waiting, same)
	t.admit()
}

// admit lets in who may be. One whose conversation is busy is passed by others; one that needs the agent configured otherwise is not, or it might wait for
// ever. t.mu is held.
func (t *turns) admit() {
	held := map[string]bool{} // conversations that somebody waits for, who comes first
	for i := 0; i < len(t.waiting); {
		q := t.waiting[i]
		if len(t.under) > 0 && (q.with == "" || t.under[0].with != q.with) {
			return
		}
		busy := q.context != "" && (held[q.context] || slices.ContainsFunc(t.under, func(o *turn) bool { return o.context == q.context }))
		if busy {
			held[q.context] = true
			i++
			continue
		}
		if q.group = new(configured); len(t.under) > 0 {
			q.group = t.under[0].group
		}
		t.under, t.waiting = append(t.under, q), slices.Delete(t.waiting, i, i+1)
		close(q.in)
	}
}

// once configures by set unless a prompt of the group has done so, and answers what the agent was left without.
func (c *configured) once(set func() ([]string, error)) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done {
		return slices.Clone(c.left), nil
	}
	left, err := set()
	c.done, c.left = err == nil, left
	return slices.Clone(left), err
}

// alike spells settings so that equal ones are spelled alike; "" when they can't be.
func (s Settings) alike() string {
	b, err := json.Marshal(s)
	if err != nil {
		return ""
	}
	return string(b)
}
