package front

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/sdk/wire"
)

// errNoCard tells that a server answers, but serves no card.
var errNoCard = errors.New("it serves no card")

// CardError tells that a child answers, and that its card is none: waiting won't make it one.
type CardError struct {
	Child string
	Err   error
}

func (e *CardError) Error() string {
	return fmt.Sprintf("the card of environment %q is invalid: %v", e.Child, e.Err)
}
func (e *CardError) Unwrap() error { return e.Err }

const maxCard = 16 << 20

// fetchCard reads a child's own card.
func (g *Gateway) fetchCard(ctx context.Context, b *backing) (wire.Card, error) {
	ctx, cancel := context.WithTimeout(ctx, cardTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.URL+wire.CardPath, nil)
	if err != nil {
		return wire.Card{}, fmt.Errorf("its URL is no URL: %w", err)
	}
	resp, err := b.rt.RoundTrip(req)
	if err != nil {
		return wire.Card{}, fmt.Errorf("its card can't be fetched: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxCard))
	if err != nil {
		return wire.Card{}, fmt.Errorf("its card can't be read: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		if resp.StatusCode < http.StatusInternalServerError {
			return wire.Card{}, fmt.Errorf("%w: GET %s answers HTTP %d", errNoCard, wire.CardPath, resp.StatusCode)
		}
		return wire.Card{}, fmt.Errorf("GET %s answers HTTP %d", wire.CardPath, resp.StatusCode)
	}
	var card wire.Card
	if b.Website && !json.Valid(body) {
		return wire.Card{}, fmt.Errorf("%w: GET %s answers a page", errNoCard, wire.CardPath)
	}
	if err := card.UnmarshalJSON(body); err != nil {
		return wire.Card{}, &CardError{b.Name, err}
	}
	if card.Name == "" {
		return wire.Card{}, &CardError{b.Name, errors.New("it has no name")}
	}
	return card, nil
}

// cards fetches all children's cards at once; those that fail have an error in their place.
func (g *Gateway) cards(ctx context.Context) ([]wire.Card, []error) {
	cards, errs := make([]wire.Card, len(g.children)), make([]error, len(g.children))
	var wg sync.WaitGroup
	for i, b := range g.children {
		wg.Go(func() { cards[i], errs[i] = g.fetchCard(ctx, b) })
	}
	wg.Wait()
	return cards, errs
}

// Card is the composed card as the owner sees it: children that answer, below it.
func (g *Gateway) Card(ctx context.Context) (wire.Card, error) {
	return g.card(ctx, access.Principal{Owner: true}, access.DefaultRole)
}

func (g *Gateway) card(ctx context.Context, p access.Principal, role string) (wire.Card, error) {
	out := wire.Card{
		Name: g.o.Name, ProtocolVersion: wire.ProtocolVersion, URL: wire.DataPath, PreferredTransport: wire.TransportJSONRPC,
		Interfaces: []wire.Interface{{URL: wire.MCPPath, Transport: wire.TransportMCP}},
		Children:   []wire.Card{},
	}
	exts := extensions(p.Owner)
	out.Capabilities.Extensions = exts
	cards, errs := g.cards(ctx)
	for i, c := range cards {
		if errs[i] != nil {
			continue
		}
		if err := g.rewrite(&c, g.children[i], exts, p, role); err != nil {
			g.log.Warn("a child's card is left out", "server", g.children[i].Name, "error", err)
			continue
		}
		out.Children = append(out.Children, c)
	}
	return out, nil
}

// rewrite makes a child's card one of the gateway's: its paths lead through /svc, its interfaces are left out, and its own children
// but for the apps of a computer, whose paths lead through it. To an agent it says only
// which tools there are that the role may use.
func (g *Gateway) rewrite(c *wire.Card, b *backing, own []wire.Extension, p access.Principal, role string) error {
	prefix := "/svc/" + b.Key()
	apps := c.Children
	c.Interfaces, c.Children = []wire.Interface{}, nil
	if p.Owner && len(apps) > 0 && c.Extension(wire.URNComputer) != nil {
		for i := range apps {
			if err := g.rewrite(&apps[i], b, nil, p, role); err != nil {
				return fmt.Errorf("app %q: %w", apps[i].Name, err)
			}
		}
		c.Children = apps
	}
	if !p.Owner {
		c.URL, c.Capabilities.Extensions, c.Capabilities.Operations = wire.DataPath, []wire.Extension{}, []string{}
		c.Capabilities.Tools = g.visible(c.Capabilities.Tools, b.Name, role)
		return nil
	}
	c.URL = prefix + slashed(cmp.Or(c.URL, wire.DataPath))
	for i := range c.Capabilities.Extensions {
		e := &c.Capabilities.Extensions[i]
		if e.Params == nil {
			continue
		}
		params, err := rewriteParams(*e, prefix, own)
		if err != nil {
			return fmt.Errorf("extension %s: %w", e.URI, err)
		}
		e.Params = params
	}
	return nil
}

func slashed(path string) string { return "/" + strings.TrimPrefix(path, "/") }

// visible are the advertised tools that a role may use, under the names that they are served by.
func (g *Gateway) visible(ts []wire.Tool, server, role string) []wire.Tool {
	out := []wire.Tool{}
	set := g.set.Load()
	for _, t := range ts {
		for _, served := range set.Tools {
			if served.Server == server && served.Own == t.Name && g.rules.Allowed(role, served.Name, served.Hidden) {
				t.Name = served.Name
				out = append(out, t)
			}
		}
	}
	return out
}

// rewriteParams puts prefix before the extension's paths, but before those of operations that the gateway serves itself at the same path.
func rewriteParams(e wire.Extension, prefix string, own []wire.Extension) (json.RawMessage, error) {
	params, err := wire.ParseParams(e.Params)
	if err != nil {
		return e.Params, nil //nolint:nilerr // params of another form hold no paths that we know
	}
	served := func(m wire.Method, path string) bool {
		for _, o := range own {
			if o.URI != e.URI {
				continue
			}
			p, err := wire.ParseParams(o.Params)
			if err != nil {
				continue
			}
			for _, om := range p.Methods {
				if om.Name == m.Name && cmp.Or(om.Verb, http.MethodPost) == cmp.Or(m.Verb, http.MethodPost) && cmp.Or(om.Endpoint, p.Endpoint) == path {
					return true
				}
			}
		}
		return false
	}
	keep := false // the shared endpoint is the gateway's for a method that names none
	for i := range params.Methods {
		m := &params.Methods[i]
		switch own := served(*m, cmp.Or(m.Endpoint, params.Endpoint)); {
		case own && m.Endpoint == "":
			keep = true
		case !own && m.Endpoint != "":
			m.Endpoint = prefix + slashed(m.Endpoint)
		}
	}
	if params.Endpoint != "" && !keep {
		params.Endpoint = prefix + slashed(params.Endpoint)
	}
	return params.MarshalJSON()
}

// dataCall sends a request to a data plane: see postData.
func (g *Gateway) dataCall(ctx context.Context, b *backing, path string, r wire.Request) (json.RawMessage, error) {
	body, err := r.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("write a request: %w", err)
	}
	raw, err := g.postData(ctx, b, path, body)
	if err != nil {
		return nil, err
	}
	resp, err := wire.DecodeResponse(raw)
	if err != nil {
		return nil, fmt.Errorf("%s of environment %q: the answer is invalid: %w", r.Method, b.Name, err)
	}
	if resp.Error != nil {
		return nil, resp.Error
	}
	return resp.Result, nil
}

const maxData = 1 << 30

// postData sends a body to the data plane at a path of a child; "" is where the child's card says that its own is.
func (g *Gateway) postData(ctx context.Context, b *backing, path string, body []byte) ([]byte, error) {
	if path == "" {
		path = wire.DataPath
		if card, err := g.fetchCard(ctx, b); err == nil && card.URL != "" {
			path = card.URL
		}
	}
	path = slashed(path)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, b.URL+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("environment %q: its URL is no URL: %w", b.Name, err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := b.rt.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("environment %q can't be reached: %w", b.Name, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxData+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("environment %q: its answer can't be read: %w", b.Name, err)
	case len(raw) > maxData:
		return nil, fmt.Errorf("environment %q: its answer has more than %d MiB", b.Name, maxData>>20)
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("environment %q: POST %s answers HTTP %d", b.Name, path, resp.StatusCode)
	}
	return raw, nil
}

// dataTimeout is how long a load may take that comes through a door.
const dataTimeout = time.Hour
