// Package conformance checks, from outside, whether a server keeps the protocol of environments: each row of the protocol's table is a check
// that sends what the row says and compares the answer. It works on any URL, whoever wrote the server.
//
// Some rows need to know how to make the server fail or tell who called: a Fixture says so, and rows that it says nothing about are not
// checked, with the reason. Where a server is known to differ, an Expectations entry says why; one that no longer fails is a problem too.
//
// The checks reset the environment's data and its clock. They are not for servers that somebody uses.
package conformance

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// Status is how a row came out.
type Status string

// Statuses. Only Failed and Unexpected are problems.
const (
	Passed     Status = "pass"
	Failed     Status = "fail"
	Skipped    Status = "not checked"
	Expected   Status = "expected failure"
	Unexpected Status = "unexpected pass"
)

// Result is one row's outcome.
type Result struct {
	Row      string   `json:"row"`
	Name     string   `json:"name"`
	Status   Status   `json:"status"`
	Reason   string   `json:"reason,omitempty"`   // what is wrong, why it wasn't checked, or why it is expected
	Evidence []string `json:"evidence,omitempty"` // what was sent and answered, shortened
}

// Report is all rows of one server.
type Report struct {
	URL     string   `json:"url"`
	Kind    string   `json:"kind"` // environment, gateway or agent
	Name    string   `json:"name,omitempty"`
	Results []Result `json:"results"`
}

// Problems is how many rows came out otherwise than they should.
func (r *Report) Problems() int {
	return r.Count(Failed) + r.Count(Unexpected)
}

// Count is how many rows have a status.
func (r *Report) Count(s Status) int {
	n := 0
	for _, x := range r.Results {
		if x.Status == s {
			n++
		}
	}
	return n
}

// Target is what is checked.
type Target struct {
	URL     string        // base, without the card's path
	Client  *http.Client  // nil: one with a limit of 30 seconds for each call, without redirects
	Wait    time.Duration // how long a server that can't be reached yet is waited for
	Fixture Fixture
	Expect  Expectations
	Rows    []string // ids of the rows to check; none: all
	Agent   bool     // it is known to be an agent, whatever it answers elsewhere
}

// Kinds of servers.
const (
	KindEnvironment = "environment"
	KindGateway     = "gateway"
	KindAgent       = "agent"
)

// row is a check of one row of the table.
type row struct {
	id, name string
	kinds    []string
	check    func(ctx context.Context, p *probe) error
}

// skip is why a row wasn't checked.
type skip string

func (s skip) Error() string { return string(s) }

// Run checks every row that applies to the server at t.URL. The error tells that nothing could be checked at all: no card could be read, or an
// expectation names no row.
func Run(ctx context.Context, t Target) (Report, error) {
	t.fill()
	all := slices.Concat(dataRows(), extensionRows(), mcpRows(), gatewayRows(), agentRows())
	if err := t.Expect.check(all); err != nil {
		return Report{}, err
	}
	for _, id := range t.Rows {
		if !slices.ContainsFunc(all, func(r row) bool { return r.id == id }) {
			return Report{}, fmt.Errorf("there is no row %s", id)
		}
	}
	r := Report{URL: t.URL}
	p := &probe{target: t}
	if err := p.open(ctx); err != nil {
		return r, err
	}
	r.Kind, r.Name = p.kind, p.card.Name
	for _, row := range all {
		if !slices.Contains(row.kinds, p.kind) || len(t.Rows) > 0 && !slices.Contains(t.Rows, row.id) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return r, err
		}
		p.evidence = nil
		err := row.check(ctx, p)
		r.Results = append(r.Results, t.Expect.judge(Result{Row: row.id, Name: row.name, Evidence: p.evidence}, err))
	}
	return r, nil
}

func (t *Target) fill() {
	t.URL = strings.TrimRight(t.URL, "/")
	if t.Client == nil {
		// A server that failed one row may have closed the connection, which must not fail the next.
		t.Client = &http.Client{
			Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
}

// open reads the card and finds out what kind of server this is.
func (p *probe) open(ctx context.Context) error {
	resp, err := p.do(ctx, http.MethodGet, wire.CardPath, "")
	for end := time.Now().Add(p.target.Wait); err != nil && ctx.Err() == nil && time.Now().Before(end); {
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
		resp, err = p.do(ctx, http.MethodGet, wire.CardPath, "")
	}
	if err != nil {
		return fmt.Errorf("reach the server: %w", err)
	}
	if p.target.Agent || resp.status == http.StatusNotFound {
		if p.openAgent(ctx) {
			return nil
		}
		hint := ""
		if base, ok := strings.CutSuffix(p.target.URL, "/mcp"); ok {
			hint = "; the URL of the server itself may be " + base
		}
		return fmt.Errorf("there is no card at %s: it answered 404%s", p.target.URL+wire.CardPath, hint)
	}
	p.kind = KindEnvironment
	if resp.status == http.StatusOK {
		if card, err := wire.ParseCard([]byte(resp.body)); err == nil {
			p.card = card
			if card.Children != nil {
				p.kind = KindGateway
			}
		}
	}
	return nil // a bad card is for its row to tell
}

// openAgent reads an agent's card, from either of its paths; false when there is none.
func (p *probe) openAgent(ctx context.Context) bool {
	for _, path := range []string{agentCardPath, agentOldCardPath} {
		resp, err := p.do(ctx, http.MethodGet, path, "")
		if err != nil || resp.status != http.StatusOK {
			continue
		}
		p.kind = KindAgent
		var card wire.Card // of which name and extensions are those of an environment's
		if json.Unmarshal([]byte(resp.body), &card) == nil {
			p.card = card
		}
		return true
	}
	if p.target.Agent {
		p.kind = KindAgent
	}
	return p.target.Agent // a card that is missing is for its row to tell
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// judge turns a check's outcome into a result.
func (e Expectations) judge(r Result, err error) Result {
	why, expected := e[r.Row]
	s, skipped := errors.AsType[skip](err)
	switch {
	case skipped:
		r.Status, r.Reason = Skipped, string(s)
	case err != nil && expected:
		r.Status, r.Reason = Expected, why+" ("+err.Error()+")"
	case err != nil:
		r.Status, r.Reason = Failed, err.Error()
	case expected:
		r.Status, r.Reason = Unexpected, "it is expected to fail: "+why
	default:
		r.Status = Passed
	}
	return r
}
