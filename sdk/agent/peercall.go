package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// Times of asking peers. MCP clients often give a call 60 seconds: one is answered within peerBudget.
const (
	peerBudget  = 58 * time.Second
	peerWait    = 45 * time.Second // unless the model says otherwise
	peerMaxWait = 50 * time.Second
	peerPoll    = 5 * time.Second // the longest pause between two looks, which begin at firstPeerPoll
	peerCall    = 30 * time.Second

	firstPeerPoll = 50 * time.Millisecond
	peerTries     = 5 // connections that can't be made
	maxPeerAnswer = 16 << 20
)

// fetch makes one request of a peer.
func (a *Agent) fetch(ctx context.Context, method, address string, body []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, peerCall)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, errors.New("the peer's url is no address")
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := a.transfers.HTTP.Do(r)
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err
		}
		return nil, fmt.Errorf("the peer can't be reached: %w", err)
	}
	defer resp.Body.Close()
	out, err := io.ReadAll(io.LimitReader(resp.Body, maxPeerAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("the peer's answer broke off: %w", err)
	case len(out) > maxPeerAnswer:
		return nil, errors.New("the peer's answer is too long")
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("the peer answered %d", resp.StatusCode)
	}
	return out, nil
}

// ask calls a method of a peer.
func (a *Agent) ask(ctx context.Context, address, method string, params any) (wire.Task, error) {
	raw, err := encode(params)
	if err != nil {
		return wire.Task{}, err
	}
	body, err := encode(wire.Request{ID: json.RawMessage(`"` + newID(8) + `"`), Method: method, Params: raw})
	if err != nil {
		return wire.Task{}, err
	}
	out, err := a.fetch(ctx, http.MethodPost, address, body)
	if err != nil {
		return wire.Task{}, err
	}
	resp, err := wire.DecodeResponse(out)
	if err != nil {
		return wire.Task{}, fmt.Errorf("the peer's answer: %w", err)
	}
	if resp.Error != nil {
		return wire.Task{}, fmt.Errorf("the peer refused %s: %w", method, resp.Error)
	}
	var t wire.Task
	if err := json.Unmarshal(resp.Result, &t); err != nil || t.ID == "" {
		return wire.Task{}, errors.New("the peer answered no task")
	}
	return t, nil
}

// start sends a message; what can't have arrived is sent again.
func (a *Agent) start(ctx context.Context, p Peer, parts []wire.Part, contextID string) (*peerTask, wire.Task, error) {
	m := wire.Message{Kind: "message", MessageID: newUUID(), Role: wire.RoleUser, Parts: parts, ContextID: contextID}
	wait := 2 * time.Second
	for try := 1; ; try++ {
		t, err := a.ask(ctx, p.address(), wire.A2ASend, wire.SendParams{Message: m, Configuration: &wire.SendConfig{Blocking: new(bool)}})
		if err == nil {
			pt := &peerTask{id: t.ID, context: t.ContextID, address: p.address(), state: t.Status.State}
			a.peers.keep(pt)
			return pt, t, nil
		}
		if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" || try == peerTries {
			return nil, t, err
		}
		if err := sleep(ctx, wait); err != nil {
			return nil, t, err
		}
		wait = min(2*wait, 15*time.Second)
	}
}

// settled tells whether a task waits for its caller or has ended.
func settled(state string) bool {
	return wire.TaskEnded(state) || state == "input-required" || state == "auth-required"
}

// settle looks at a task until it is settled; when time runs out it answers the task as it was last seen.
func (a *Agent) settle(ctx context.Context, pt *peerTask, t wire.Task, wait time.Duration) (wire.Task, error) {
	end := time.Now().Add(wait)
	for pause := firstPeerPoll; !settled(t.Status.State); pause = min(2*pause, peerPoll) {
		left := time.Until(end)
		if left <= 0 {
			return t, nil
		}
		if err := sleep(ctx, min(pause, left)); err != nil {
			return t, err
		}
		next, err := a.ask(ctx, pt.address, wire.A2AGet, map[string]string{"id": pt.id})
		if err != nil {
			if _, refused := errors.AsType[*wire.Error](err); refused || ctx.Err() != nil {
				return t, err
			}
			continue // it may be back by the next look
		}
		t = next
		a.peers.seen(pt, t.Status.State)
	}
	return t, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
