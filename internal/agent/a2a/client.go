// Package a2a asks agents that speak the A2A protocol, version 0.3.0, over JSON-RPC: their cards, messages, tasks and extensions.
//
// Words: base is the address that an agent's paths are joined to; an extension's operation is found on the card. Nothing here starts agents.
package a2a

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"agentenv.internal/agentenv/internal/sleep"
	"agentenv.internal/agentenv/sdk/wire"
)

// Limits of what is read from an agent.
const (
	maxAnswer = 64 << 20 // of an extension
	maxTask   = 16 << 20 // of a message's task, which goes on record whole
	maxCard   = 1 << 20
	maxError  = 2 << 10
)

// ErrUnreachable: no answer came from the agent. It is never the fault of what was asked.
var ErrUnreachable = errors.New("the agent can't be reached")

// ErrMalformed: what the agent answers can't be used. It stands for its own words to people.
var ErrMalformed = errors.New("the agent's answer can't be used")

// StatusError is an answer of HTTP that is no success.
type StatusError struct {
	Status int
	Text   string // the body, shortened; "" when the call carried grants
	Code   string // of a transfer failure, where the body names one that may be quoted
}

func (e *StatusError) Error() string {
	s := "the agent answered HTTP " + strconv.Itoa(e.Status)
	switch {
	case e.Code != "":
		return s + " (" + e.Code + ")"
	case e.Text != "":
		return s + ": " + e.Text
	}
	return s
}

// Client asks one agent. It may be used from several goroutines.
type Client struct {
	base *url.URL
	http *http.Client
	ids  atomic.Int64
	card atomic.Pointer[string] // where the card says that messages are sent; nil until one was read
	rpc  atomic.Pointer[string] // where they are sent, once that isn't wire.A2APath
}

// New makes a client of the agent at base. rt reaches it, for example inside its sandbox; nil is the network.
func New(base string, rt http.RoundTripper) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("an agent's address is one of http or https")
	}
	u.Path = strings.TrimRight(u.Path, "/")
	u.RawQuery, u.Fragment = "", ""
	return &Client{base: u, http: &http.Client{
		Transport:     rt,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Base is the agent's address.
func (c *Client) Base() string { return c.base.String() }

// Transport is what reaches the agent, for who asks it something that Client doesn't.
func (c *Client) Transport() http.RoundTripper {
	if c.http.Transport == nil {
		return http.DefaultTransport
	}
	return c.http.Transport
}

// at joins a path of the agent's own to its base: never another host.
func (c *Client) at(path string) string {
	u := *c.base
	if r, err := url.Parse(path); err == nil {
		path, u.RawQuery = r.Path, r.RawQuery
	}
	u.Path += "/" + strings.TrimLeft(path, "/")
	return u.String()
}

// Card reads the agent's card.
func (c *Client) Card(ctx context.Context) (wire.AgentCard, error) {
	body, err := c.do(ctx, http.MethodGet, wire.AgentCardPath, nil, maxCard, false)
	var s *StatusError
	if errors.As(err, &s) && s.Status == http.StatusNotFound {
		body, err = c.do(ctx, http.MethodGet, wire.AgentCardPathNew, nil, maxCard, false)
	}
	if err != nil {
		return wire.AgentCard{}, fmt.Errorf("read the agent's card: %w", err)
	}
	card, err := wire.ParseAgentCard(body)
	if err != nil {
		return card, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	if u, err := url.Parse(card.URL); err == nil && strings.HasPrefix(u.Path, "/") {
		c.card.Store(&u.Path)
	}
	return card, nil
}

// do makes one request, whose answer may hold so many bytes. secret says that the body carries grants, so that no word of the answer is repeated.
func (c *Client) do(ctx context.Context, method, path string, body []byte, most int, secret bool) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.at(path), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", "application/json")
	res, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	defer res.Body.Close()
	out, err := io.ReadAll(io.LimitReader(res.Body, int64(most)+1))
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, fmt.Errorf("%w: its answer broke off: %w", ErrUnreachable, err)
	case len(out) > most:
		return nil, fmt.Errorf("%w: it is longer than %d MiB", ErrMalformed, most>>20)
	case res.StatusCode < 200 || res.StatusCode > 299:
		return nil, statusError(res.StatusCode, out, secret)
	}
	return out, nil
}

// unreachable is why a request got no answer: ctx's end, or an error without the request's URL, which may be a secret.
func unreachable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, err)
}

func statusError(status int, body []byte, secret bool) *StatusError {
	e := &StatusError{Status: status}
	var coded struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(body, &coded) == nil && wire.Quotable(coded.Error.Code) {
		e.Code = coded.Error.Code
	}
	if !secret {
		if len(body) > maxError {
			body = body[:maxError]
		}
		e.Text = strings.TrimSpace(strings.ToValidUTF8(string(body), ""))
	}
	return e
}

// call makes one JSON-RPC call; an error that the agent answers is a *wire.Error.
func (c *Client) call(ctx context.Context, method string, params, result any) error {
	in, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": strconv.FormatInt(c.ids.Add(1), 10), "method": method, "params": params})
	if err != nil {
		return err
	}
	body, err := c.post(ctx, in)
	if err != nil {
		return err
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  *struct {
			Code    int             `json:"code"`
			Message string          `json:"message"`
			Data    json.RawMessage `json:"data"`
		} `json:"error"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return fmt.Errorf("%w: it is no JSON-RPC, to %s", ErrMalformed, method)
	}
	if e := answer.Error; e != nil {
		return &wire.Error{Code: e.Code, Message: e.Message, Data: e.Data}
	}
	if err := json.Unmarshal(answer.Result, result); err != nil {
		return fmt.Errorf("%w: the result of %s can't be read", ErrMalformed, method)
	}
	return nil
}

// post sends JSON-RPC to where callers of agents do, or, when nobody is there, to where the card says.
func (c *Client) post(ctx context.Context, body []byte) ([]byte, error) {
	path := wire.A2APath
	if other := c.rpc.Load(); other != nil {
		path = *other
	}
	out, err := c.do(ctx, http.MethodPost, path, body, maxTask, false)
	var s *StatusError
	if card := c.card.Load(); errors.As(err, &s) && (s.Status == http.StatusNotFound || s.Status == http.StatusMethodNotAllowed) && card != nil && *card != path {
		if out, err = c.do(ctx, http.MethodPost, *card, body, maxTask, false); err == nil {
			c.rpc.Store(card)
		}
	}
	return out, err
}

// Send starts a task by a message and doesn't wait for its end. An agent may answer at once by a message and no task: that counts as one without an id,
// which is completed.
func (c *Client) Send(ctx context.Context, m wire.Message) (wire.Task, error) {
	m.Kind = "message"
	var raw json.RawMessage
	if err := c.call(ctx, wire.A2ASend, wire.SendParams{Message: m, Configuration: &wire.SendConfig{Blocking: new(false)}}, &raw); err != nil {
		return wire.Task{}, err
	}
	return readSent(raw)
}

// readSent reads what an agent answers to a message.
func readSent(raw json.RawMessage) (wire.Task, error) {
	var kind struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &kind); err != nil {
		return wire.Task{}, fmt.Errorf("%w: it is no task", ErrMalformed)
	}
	if kind.Kind == "message" {
		var m wire.Message
		if err := json.Unmarshal(raw, &m); err != nil {
			return wire.Task{}, fmt.Errorf("%w: its message can't be read", ErrMalformed)
		}
		if len(m.Parts) == 0 {
			return wire.Task{}, fmt.Errorf("%w: it is a message without parts", ErrMalformed)
		}
		return wire.Task{Kind: "task", ContextID: m.ContextID, Status: wire.TaskStatus{State: wire.TaskCompleted, Message: &m}}, nil
	}
	var t wire.Task
	if err := json.Unmarshal(raw, &t); err != nil {
		return wire.Task{}, fmt.Errorf("%w: its task can't be read", ErrMalformed)
	}
	if t.ID == "" || t.Status.State == "" {
		return wire.Task{}, fmt.Errorf("%w: it names no task", ErrMalformed)
	}
	return t, nil
}

// Get reads a task.
func (c *Client) Get(ctx context.Context, id string) (wire.Task, error) {
	var t wire.Task
	err := c.call(ctx, wire.A2AGet, map[string]any{"id": id}, &t)
	if err == nil && (t.ID != id || t.Status.State == "") {
		err = fmt.Errorf("%w: it is no task, or another than the one that was asked for", ErrMalformed)
	}
	return t, err
}

// Cancel asks for a task's end.
func (c *Client) Cancel(ctx context.Context, id string) (wire.Task, error) {
	var t wire.Task
	err := c.call(ctx, wire.A2ACancel, map[string]any{"id": id}, &t)
	return t, err
}

// Waits of Ask.
const (
	firstPoll  = 20 * time.Millisecond
	pollTime   = 30 * time.Second // of one tasks/get
	cancelTime = 10 * time.Second
	sendTries  = 5
	// deadPolls and deadTime are how often and how long an agent may not answer before it counts as dead. One that answers what can't be used
	// may do so deadPolls times, too.
	deadPolls = 3
	deadTime  = time.Minute
)

// Wait says how Ask waits.
type Wait struct {
	// Every is the longest pause between two looks; it starts short, so that quick tasks are seen at once. 0 is 2 s.
	Every time.Duration
	// Tries is how often a connection is tried; 0 is 5, in half a minute.
	Tries int
	// Alive tells whether the agent's sandbox still stands; nil asks nobody.
	Alive func(context.Context) error
	// Seen is told of every state that is seen. It may be nil.
	Seen func(wire.Task)
}

// Ask sends a message and waits for its task's end. When ctx ends the task is cancelled and the error is ctx's. A connection that can't be
// made is tried again; what may have arrived never is.
func (c *Client) Ask(ctx context.Context, m wire.Message, w Wait) (wire.Task, error) {
	t, err := c.send(ctx, m, w)
	if err != nil {
		return t, err
	}
	if w.Every <= 0 {
		w.Every = 2 * time.Second
	}
	pause := min(firstPoll, w.Every)
	lost, malformed, since := 0, 0, time.Time{}
	for !wire.TaskEnded(t.Status.State) {
		if w.Seen != nil {
			w.Seen(t)
		}
		if slices.Contains([]string{"input-required", "auth-required"}, t.Status.State) {
			return t, c.giveUp(ctx, t, fmt.Errorf("%w: the task waits for more from its caller (%s), and there is nobody to give it", ErrMalformed, t.Status.State))
		}
		if err := sleep.For(ctx, pause); err != nil {
			return t, c.giveUp(ctx, t, err)
		}
		pause = min(2*pause, w.Every)
		next, err := c.look(ctx, t.ID)
		var rpc *wire.Error
		var status *StatusError
		switch {
		case err == nil:
			t, lost, malformed = next, 0, 0
		case ctx.Err() != nil:
			return t, c.giveUp(ctx, t, context.Cause(ctx))
		case errors.As(err, &rpc), errors.As(err, &status) && status.Status < 500:
			return t, fmt.Errorf("look at the agent's task: %w", err)
		case errors.Is(err, ErrMalformed):
			if malformed++; malformed == deadPolls {
				return t, c.giveUp(ctx, t, fmt.Errorf("look at the agent's task: %w", err))
			}
		default:
			if lost++; lost == 1 {
				since = time.Now()
			}
			if gone := c.gone(ctx, w, lost, since); gone {
				return t, fmt.Errorf("%w: it stopped answering while it worked: %w", ErrUnreachable, err)
			}
		}
	}
	if w.Seen != nil {
		w.Seen(t)
	}
	return t, nil
}

func (c *Client) look(ctx context.Context, id string) (wire.Task, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, pollTime, fmt.Errorf("it did not answer within %s", pollTime))
	defer cancel()
	return c.Get(ctx, id)
}

// gone decides that an agent which doesn't answer is dead: at once when its sandbox is, else after a while.
func (c *Client) gone(ctx context.Context, w Wait, lost int, since time.Time) bool {
	if w.Alive != nil && w.Alive(ctx) != nil {
		return true
	}
	return lost >= deadPolls && time.Since(since) >= deadTime
}

func (c *Client) send(ctx context.Context, m wire.Message, w Wait) (wire.Task, error) {
	tries := cmp.Or(w.Tries, sendTries)
	pause := 2 * time.Second
	for try := 1; ; try++ {
		t, err := c.Send(ctx, m)
		if err == nil || try == tries || !refused(err) || w.Alive != nil && w.Alive(ctx) != nil {
			if err != nil {
				err = fmt.Errorf("send the agent its message: %w", err)
			}
			return t, err
		}
		if err := sleep.For(ctx, pause); err != nil {
			return t, err
		}
		pause = min(2*pause, 15*time.Second)
	}
}

// giveUp cancels a task that nobody waits for any more.
func (c *Client) giveUp(ctx context.Context, t wire.Task, cause error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTime)
	defer cancel()
	_, _ = c.Cancel(ctx, t.ID) // its agent may be why we leave
	return cause
}
