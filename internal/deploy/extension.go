package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/wire"
)

// ErrNotAdvertised: a server's card has no such extension, or the extension no such operation.
var ErrNotAdvertised = errors.New("is not advertised by the server's card")

const (
	maxCard  = 16 << 20 // bytes of a card, and of an extension's answer
	clockURL = "http://" + clockAddress + "/clock/time"
	// clockAddress is where a server reads the environment's clock, in its own box.
	clockAddress = "127.0.0.1:18764"
)

// Extend calls an operation of a server's extension and answers its JSON. operation "" is the extension's only one. ErrNotAdvertised; other errors are
// what the server answered, as text.
func (v *Env) Extend(ctx context.Context, name, uri, operation string, args json.RawMessage) (json.RawMessage, error) {
	s := v.server(name)
	if s == nil {
		return nil, fmt.Errorf("the environment has no server %s; it has %s", diag.Repr(name), quoted(v.Names()))
	}
	t := s.transport()
	defer t.CloseIdleConnections()
	card, err := s.card(ctx, t)
	if err != nil {
		return nil, err
	}
	call, err := operationOf(&card, uri, operation)
	if err != nil {
		return nil, err
	}
	at := s.at(call)
	if call.Verb == http.MethodGet {
		var fields map[string]any
		if err := json.Unmarshal(args, &fields); err != nil {
			return nil, err
		}
		q := url.Values{}
		for k, val := range fields {
			q.Set(k, fmt.Sprint(val))
		}
		at.RawQuery = q.Encode()
		args = nil
	}
	out, err := exchange(ctx, t, call.Verb, at.String(), args)
	if err != nil {
		return nil, fmt.Errorf("%s of %s: %w", uri, diag.Repr(name), err)
	}
	return out, nil
}

// card reads the server's card as it is now.
func (s *Server) card(ctx context.Context, t http.RoundTripper) (wire.Card, error) {
	b, err := exchange(ctx, t, http.MethodGet, s.base()+wire.CardPath, nil)
	if err != nil {
		return wire.Card{}, fmt.Errorf("read the card of %s: %w", diag.Repr(s.Name), err)
	}
	var c wire.Card
	if err := c.UnmarshalJSON(b); err != nil { // what it lacks was no reason not to deploy it
		return c, fmt.Errorf("the card of %s is invalid: %w", diag.Repr(s.Name), err)
	}
	return c, nil
}

// at is where a call of the card goes: always to the server itself.
func (s *Server) at(call wire.Call) url.URL {
	return *s.url(call.Path)
}

func operationOf(card *wire.Card, uri, operation string) (wire.Call, error) {
	x := card.Extension(uri)
	if x == nil {
		return wire.Call{}, fmt.Errorf("%s %w", uri, ErrNotAdvertised)
	}
	calls, err := x.Calls()
	if err != nil {
		return wire.Call{}, err
	}
	i := slices.IndexFunc(calls, func(c wire.Call) bool { return c.Name == operation || operation == "" && len(calls) == 1 })
	if i < 0 {
		return wire.Call{}, fmt.Errorf("%s %w: %s", diag.Repr(operation), ErrNotAdvertised, uri)
	}
	return calls[i], nil
}

// exchange sends one request and answers the body of an answer whose status is 200.
func exchange(ctx context.Context, t http.RoundTripper, verb, at string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, verb, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxCard+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > maxCard:
		return nil, fmt.Errorf("it answers more than %d MiB", maxCard>>20)
	}
	if resp.StatusCode != http.StatusOK {
		var e struct {
			Error struct{ Code, Message string }
		}
		if json.Unmarshal(b, &e) == nil && e.Error.Message != "" {
			return nil, fmt.Errorf("%s: %s", e.Error.Code, e.Error.Message)
		}
		return nil, fmt.Errorf("it answered HTTP %d", resp.StatusCode)
	}
	return b, nil
}

// ClockURL is where a server reads the environment's clock from inside its box. The first call for a server opens a door there that serves the time and
// nothing else; it is closed with the environment.
func (v *Env) ClockURL(ctx context.Context, name string) (string, error) {
	s := v.server(name)
	if s == nil {
		return "", fmt.Errorf("the environment has no server %s", diag.Repr(name))
	}
	s.clock.Lock()
	defer s.clock.Unlock()
	if s.clockDoor != nil {
		return clockURL, nil
	}
	if s.away != nil {
		return "", fmt.Errorf("the server %s is in no sandbox, and has no door to the clock", diag.Repr(name))
	}
	l, err := s.box.Listen(context.WithoutCancel(ctx), "tcp", clockAddress)
	if err != nil {
		return "", fmt.Errorf("open a door to the clock in the sandbox of %s: %w", diag.Repr(name), err)
	}
	owner := v.Gateway.Door(access.Principal{Owner: true, Deployment: v.Instance})
	mux := http.NewServeMux()
	mux.Handle("GET /clock/time", owner)
	s.clockDoor = &http.Server{Handler: mux, ReadHeaderTimeout: startGrace}
	s.doors.Go(func() { _ = s.clockDoor.Serve(l) }) // ends with the box or with shut
	return clockURL, nil
}

// shut closes the server's doors.
func (s *Server) shut() {
	s.clock.Lock()
	if s.clockDoor != nil {
		_ = s.clockDoor.Close()
	}
	s.clock.Unlock()
	for _, d := range s.inward {
		d.close()
	}
	s.doors.Wait()
}
