package child

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strconv"
	"time"

	"agentenv.internal/agentenv/internal/rawjson"
)

// version is the MCP version that children are asked for; theirs is taken as they answer.
const version = "2025-11-25"

// session is one MCP session with the child.
type session struct {
	c            *Child
	url          string
	id           string
	blank        *http.Request // what every POST begins as
	header       http.Header   // of every request; never changed once made
	capabilities []byte
	listens      bool // it announces changes of its list
	changed      chan struct{}
}

// Capabilities are those that the child announced, as it wrote them; nil while it is down.
func (c *Child) Capabilities() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cur == nil {
		return nil
	}
	return c.cur.capabilities
}

func (c *Child) initialize(ctx context.Context) (*session, error) {
	s := &session{c: c, url: c.o.MCP, changed: make(chan struct{}, 1)}
	if s.url == "" && c.o.Endpoint != nil {
		s.url = c.o.Endpoint(ctx)
	}
	if s.url == "" {
		s.url = c.Base() + "/mcp"
	}
	blank, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: its URL is no URL: %w", ErrDown, err)
	}
	s.blank = blank
	s.header = http.Header{
		"Content-Type": {"application/json"},
		"Accept":       {"application/json, text/event-stream"},
		"User-Agent":   {"agent-env-gateway"},
	}
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	body := c.body("initialize", func(_ uint64, b []byte) []byte {
		return append(b, `{"protocolVersion":"`+version+`","capabilities":{"sampling":{},"elicitation":{}},"clientInfo":{"name":"agent-env-gateway","version":"1"}}`...)
	})
	a, err := c.send(ctx, s, body, call{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	if a.Result.None() {
		return nil, fmt.Errorf("%w: it refused initialize: %s", ErrBroken, brief(a.Error.Memory()))
	}
	spoken, _ := rawjson.Text(rawjson.Get(a.Result.Memory(), "protocolVersion"))
	if spoken == "" {
		return nil, fmt.Errorf("%w: initialize answered without a protocolVersion", ErrBroken)
	}
	s.capabilities = bytes.Clone(rawjson.Get(a.Result.Memory(), "capabilities"))
	s.listens = string(rawjson.Get(rawjson.Get(s.capabilities, "tools"), "listChanged")) == "true"
	s.id = a.session
	h := s.header.Clone()
	if h.Set("MCP-Protocol-Version", spoken); s.id != "" {
		h.Set("Mcp-Session-Id", s.id)
	}
	s.header = h
	return s, s.notify(ctx, []byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

// close tells the child that the session is over, unless it is dead anyway.
func (s *session) close(ctx context.Context, dead bool) {
	if s.id == "" || dead {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, s.url, nil)
	if err != nil {
		return
	}
	req.Header = s.header
	if resp, err := s.c.rt.RoundTrip(req); err == nil {
		resp.Body.Close()
	}
}

// notify sends a message that has no answer.
func (s *session) notify(ctx context.Context, body []byte) error {
	resp, err := s.post(ctx, body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10)
	if resp.StatusCode >= 300 {
		return statusError(resp)
	}
	return nil
}

// post sends one body. The error is ErrDown when nothing of it can have arrived, ErrLost when that isn't known.
func (s *session) post(ctx context.Context, body []byte) (*http.Response, error) {
	var reached bool
	trace := &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { reached = true }}
	req := s.blank.WithContext(httptrace.WithClientTrace(ctx, trace))
	req.Header, req.ContentLength = s.header, int64(len(body))
	req.Body = io.NopCloser(bytes.NewReader(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	resp, err := s.c.rt.RoundTrip(req)
	if err == nil {
		return resp, nil
	}
	switch {
	case ctx.Err() != nil:
		return nil, ended(ctx)
	case reached:
		return nil, fmt.Errorf("%w: %w", ErrLost, err)
	}
	return nil, fmt.Errorf("%w: %w", ErrDown, err)
}

// ended is what the end of a context means for a call.
func ended(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return ErrTimeout
	}
	return context.Cause(ctx)
}

func statusError(resp *http.Response) error {
	head, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
	switch resp.StatusCode {
	case http.StatusNotFound:
		return errSession
	case http.StatusRequestEntityTooLarge:
		return fmt.Errorf("%w: the server takes no request of this size", ErrTooLarge)
	}
	return fmt.Errorf("%w: HTTP %d: %s", ErrBroken, resp.StatusCode, brief(head))
}

// brief is the beginning of what a server said, for a message.
func brief(b []byte) string {
	if len(b) > 200 {
		b = append(slices.Clone(b[:200]), "…"...)
	}
	return string(bytes.ToValidUTF8(bytes.TrimSpace(b), []byte("�")))
}

// body is a request with the next id.
func (c *Child) body(method string, params func(id uint64, b []byte) []byte) request {
	id := c.ids.Add(1)
	b := make([]byte, 0, 512)
	b = append(b, `{"jsonrpc":"2.0","id":`...)
	b = strconv.AppendUint(b, id, 10)
	b = append(b, `,"method":`...)
	b = rawjson.AppendString(b, method)
	b = append(b, `,"params":`...)
	b = params(id, b)
	return request{id, append(b, '}')}
}

type request struct {
	id   uint64
	body []byte
}

func (c *Child) ping(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	a, err := c.send(ctx, s, c.body("ping", func(_ uint64, b []byte) []byte { return append(b, `{}`...) }), call{})
	if err != nil {
		return err
	}
	a.Close()
	return nil
}

const (
	maxPages = 1000
	maxTools = 10000
	// maxList bounds all that a list holds.
	maxList = 64 << 20
)

// relist reads every page of the child's tools.
func (c *Child) relist(ctx context.Context, s *session) error {
	list := [][]byte{}
	if rawjson.IsNull(rawjson.Get(s.capabilities, "tools")) && len(s.capabilities) > 2 {
		c.setTools(list) // it says that it has none
		return nil
	}
	var cursor []byte
	var size int
	for range maxPages {
		before := len(list)
		next, err := c.page(ctx, s, cursor, &list)
		if err != nil {
			return err
		}
		for _, e := range list[before:] {
			size += len(e)
		}
		if size > maxList {
			return fmt.Errorf("%w: its list of tools has more than %d MiB", ErrTooLarge, maxList>>20)
		}
		if next == nil || bytes.Equal(next, cursor) {
			c.setTools(list)
			return nil
		}
		cursor = next
	}
	return fmt.Errorf("%w: its list of tools has no end", ErrBroken)
}

func (c *Child) setTools(list [][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = list
}

func (c *Child) page(ctx context.Context, s *session, cursor []byte, list *[][]byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, handshake)
	defer cancel()
	a, err := c.send(ctx, s, c.body("tools/list", func(_ uint64, b []byte) []byte {
		if cursor == nil {
			return append(b, `{}`...)
		}
		return append(append(append(b, `{"cursor":`...), cursor...), '}')
	}), call{})
	if err != nil {
		return nil, err
	}
	defer a.Close()
	result := a.Result
	if result.None() {
		return nil, fmt.Errorf("%w: it refused tools/list: %s", ErrBroken, brief(a.Error.Memory()))
	}
	mem := result.Memory()
	if mem == nil { // a list of more than memoryLimit
		if result.Len() > maxList {
			return nil, fmt.Errorf("%w: its list of tools has %d MiB", ErrTooLarge, result.Len()>>20)
		}
		mem = make([]byte, result.Len())
		if _, err := result.ReadAt(mem, 0); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read a large list again: %w", err)
		}
	}
	for e := range rawjson.Elements(rawjson.Get(mem, "tools")) {
		if len(*list) >= maxTools {
			return nil, fmt.Errorf("%w: it has more than %d tools", ErrTooLarge, maxTools)
		}
		*list = append(*list, bytes.Clone(e))
	}
	if next := rawjson.Get(mem, "nextCursor"); !rawjson.IsNull(next) {
		return bytes.Clone(next), nil
	}
	return nil, nil
}
