package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/sleep"
)

// Dialects.
const (
	OpenAI    = "openai"    // chat completions
	Anthropic = "anthropic" // messages
)

// Endpoint is a server of models.
type Endpoint struct {
	Dialect string // "": Anthropic for its own host, else OpenAI
	BaseURL string // with or without the version at its end: https://host, https://host/v1
	Key     string
	Headers map[string]string
	// Params are members of every request's body; those of a Request win.
	Params map[string]json.RawMessage
	Prices map[string]Price // by model
	HTTP   *http.Client     // nil: one of its own
	Outage *Outage          // shared by all that ask it; nil: one of its own
	// Named tells that a task chose the endpoint, and not who runs it: what it refuses says nothing of other tasks.
	Named bool
}

// Patience is how long a Client waits and how often it tries. Zero values are the defaults.
type Patience struct {
	Tries  int           // of an endpoint that answers, 6
	Total  time.Duration // over all tries, 10 minutes; a wait that an endpoint asks for beyond it ends the search at once
	Idle   time.Duration // between two pieces of an answer, 3 minutes
	First  time.Duration // the first wait between tries, 500 ms; it doubles up to 30 s
	Outage time.Duration // of an Endpoint without an Outage of its own: its Wait
}

// Client asks one endpoint. All that use it share its limit of requests at once, which adapts to what the endpoint bears.
type Client struct {
	e       Endpoint
	p       Patience
	url     string
	dialect dialect
	limit   *limiter
	sleep   func(context.Context, time.Duration) error
}

var _ Model = (*Client)(nil)

// dialect is how one protocol spells a request and reads an answer.
type dialect interface {
	path() string // below the version
	headers(h http.Header, key string)
	body(e *Endpoint, r *Request) ([]byte, error)
	// stream reads the events of an answer, whole reads one that came in one piece. Neither fills Tries and Took.
	stream(r io.Reader) (*Response, error)
	whole(body []byte) (*Response, error)
}

var versioned = lazyregexp.New(`/v[0-9]+(beta)?(/openai)?$`)

// New makes a client.
func New(e Endpoint, p Patience) (*Client, error) {
	u, err := url.Parse(e.BaseURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return nil, fmt.Errorf("the model endpoint's address is not one of http or https without a user: set model.base_url")
	}
	if e.Dialect == "" {
		e.Dialect = OpenAI
		if u.Hostname() == "api.anthropic.com" {
			e.Dialect = Anthropic
		}
	}
	c := &Client{e: e, p: p, limit: newLimiter(), sleep: sleep.For}
	switch e.Dialect {
	case OpenAI:
		c.dialect = openAI{ownHost: u.Hostname() == "api.openai.com"}
	case Anthropic:
		c.dialect = anthropic{}
	default:
		return nil, fmt.Errorf("%q is no dialect of models: write openai or anthropic", e.Dialect)
	}
	u.Path = strings.TrimRight(u.Path, "/")
	if !versioned().MatchString(u.Path) {
		u.Path += "/v1"
	}
	u.Path += c.dialect.path()
	c.url = u.String()
	c.defaults()
	return c, nil
}

func (c *Client) defaults() {
	if c.p.Tries <= 0 {
		c.p.Tries = 6
	}
	if c.p.Total <= 0 {
		c.p.Total = 10 * time.Minute
	}
	if c.p.Idle <= 0 {
		c.p.Idle = 3 * time.Minute
	}
	if c.p.First <= 0 {
		c.p.First = 500 * time.Millisecond
	}
	if c.e.Outage == nil {
		c.e.Outage = &Outage{Wait: c.p.Outage}
	}
	if c.e.HTTP == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 256
		c.e.HTTP = &http.Client{
			Transport: t,
			// An endpoint that sends elsewhere would be given the key.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
}

// Close drops idle connections.
func (c *Client) Close() { c.e.HTTP.CloseIdleConnections() }

// Generate asks, and asks again after failures that may pass, within its patience. When ctx ends its error is ctx's.
func (c *Client) Generate(ctx context.Context, r *Request) (*Response, error) {
	body, err := c.dialect.body(&c.e, r)
	if err != nil {
		return nil, &Error{Kind: Invalid, Err: err}
	}
	start, met := time.Now(), 0
	for try := 1; ; try++ {
		res, err := c.once(ctx, body)
		if err == nil {
			c.e.Outage.Met()
			res.Tries, res.Took = try, time.Since(start)
			c.price(r.Model, res)
			return res, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		var e *Error
		if !errors.As(err, &e) {
			return nil, err
		}
		e.Tries = try
		pause, spent := max(c.backoff(try), e.RetryAfter), false
		if e.Kind == Unreachable {
			pause = min(pause, LongestRedial)
			spent = !c.e.Outage.Missed(pause, e.Unwrap())
			e.Lasting = spent && !c.e.Named
		} else {
			c.e.Outage.Met()
			met++
			spent = met >= c.p.Tries
			e = e.Judge(c.e.Named)
		}
		if !e.again() || spent || time.Since(start)+pause > c.p.Total {
			return nil, e
		}
		if err := c.sleep(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// backoff doubles, and spreads by half, so that those who failed together don't come again together.
func (c *Client) backoff(try int) time.Duration {
	d := min(c.p.First<<min(try-1, 16), 30*time.Second)
	return d/2 + rand.N(d/2+1)
}

func (c *Client) price(name string, r *Response) {
	if r.Usage.Priced {
		return
	}
	p, ok := c.e.Prices[name]
	if !ok {
		p, ok = c.e.Prices[r.Model]
	}
	if ok {
		r.Usage.USD, r.Usage.Priced = p.Of(r.Usage), true
	}
}

// once makes one request and reads its answer to the end.
func (c *Client) once(ctx context.Context, body []byte) (res *Response, err error) {
	if err := c.limit.acquire(ctx); err != nil {
		return nil, err
	}
	defer func() {
		var e *Error
		errors.As(err, &e)
		c.limit.release(e)
	}()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := time.AfterFunc(c.p.Idle, func() { cancel(&Error{Kind: TimedOut, Message: "nothing came for " + c.p.Idle.String()}) })
	defer idle.Stop()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, &Error{Kind: Invalid, Err: err}
	}
	c.dialect.headers(req.Header, c.e.Key)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/json")
	for k, v := range c.e.Headers {
		req.Header.Set(k, v)
	}
	dialling, reached := c.e.Outage.Dialling(req.Context())
	answer, err := c.e.HTTP.Do(req.WithContext(dialling))
	reached()
	if err != nil {
		return nil, c.broken(ctx, Unreachable, err)
	}
	defer answer.Body.Close()
	in := &watched{r: answer.Body, idle: idle, d: c.p.Idle}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(in, 64<<10))
		return nil, Refusal(answer.StatusCode, text, answer.Header)
	}
	res, err = c.read(answer, in)
	if err != nil {
		return nil, c.broken(ctx, Cut, err)
	}
	res.Usage.PriceOf(answer.Header)
	return res, nil
}

// PriceOf takes what an answer cost from its header, as LiteLLM tells it, unless that is known.
func (u *Usage) PriceOf(h http.Header) {
	cost := h.Get("X-Litellm-Response-Cost")
	if cost == "" || u.Priced {
		return
	}
	var usd float64
	if json.Unmarshal([]byte(cost), &usd) == nil && usd >= 0 {
		u.USD, u.Priced = usd, true
	}
}

// maxAnswer bounds an answer that comes in one piece.
const maxAnswer = 64 << 20

func (c *Client) read(answer *http.Response, in io.Reader) (*Response, error) {
	media, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	switch media {
	case "text/event-stream":
		return c.dialect.stream(in)
	case "application/json":
		body, err := io.ReadAll(io.LimitReader(in, maxAnswer))
		if err != nil {
			return nil, err
		}
		return c.dialect.whole(body)
	}
	return nil, &Error{Kind: Malformed, Status: answer.StatusCode, Message: fmt.Sprintf("the answer is %q, neither an event stream nor JSON", media)}
}

// broken says why a request came to nothing: an *Error as it is, what ended ctx, or the kind that is meant.
func (c *Client) broken(ctx context.Context, kind string, err error) error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	if errors.As(context.Cause(ctx), &e) {
		return e
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err // the URL may hold a key
	}
	return &Error{Kind: kind, Err: err}
}

// watched moves the idle time-out with every read that brings something.
type watched struct {
	r    io.Reader
	idle *time.Timer
	d    time.Duration
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 {
		w.idle.Reset(w.d)
	}
	return n, err
}

// said is an endpoint's own message out of an error's body: both dialects, and what proxies write.
func said(body []byte) string {
	var e struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
		Detail  json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &e) == nil {
		var in struct {
			Message string `json:"message"`
			Code    any    `json:"code"`
		}
		var text string
		switch {
		case json.Unmarshal(e.Error, &in) == nil && in.Message != "":
			if code, ok := in.Code.(string); ok && code != "" && !strings.Contains(in.Message, code) {
				return code + ": " + in.Message
			}
			return in.Message
		case json.Unmarshal(e.Error, &text) == nil && text != "":
			return text
		case e.Message != "":
			return e.Message
		case json.Unmarshal(e.Detail, &text) == nil && text != "":
			return text
		}
	}
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(body), "")), " ")
}

// Decode reads an answer's body of a dialect, which came as an event stream or in one piece: for those who only watch it go by.
func Decode(dialectName, media string, body []byte) (*Response, error) {
	var d dialect = openAI{}
	if dialectName == Anthropic {
		d = anthropic{}
	}
	if media == "text/event-stream" {
		return d.stream(bytes.NewReader(body))
	}
	return d.whole(body)
}
