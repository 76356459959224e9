// Package modelproxy is how agents in sandboxes reach a model: a handler that holds the key, passes requests on as they are, and records each
// exchange. Models that are played here (scripted ones) it answers itself, in whichever of four protocols the agent speaks.
//
// The key never enters a sandbox: what an agent sends for one is dropped. The record is made here and not by the agent, so it is complete to
// the last exchange when the agent is killed.
package modelproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/serve"
)

// Upstream is the endpoint.
type Upstream struct {
	BaseURL string // with or without the version at its end
	Key     string
	Headers map[string]string
	Prices  map[string]model.Price
	Outage  *model.Outage // shared by all that ask the endpoint; nil: one of its own
	Named   bool          // a task chose it, and not who runs it
}

// UpstreamOf is an endpoint as a Proxy takes it; nil when it has no address.
func UpstreamOf(e model.Endpoint) *Upstream {
	if e.BaseURL == "" {
		return nil
	}
	return &Upstream{BaseURL: e.BaseURL, Key: e.Key, Headers: e.Headers, Prices: e.Prices, Outage: e.Outage, Named: e.Named}
}

// Options are what a Proxy is made of.
type Options struct {
	Upstream *Upstream // nil: there is none, and only Local models answer
	// Local answers models that are played here; false for others. It may be nil.
	Local func(name string) (model.Model, bool)
	// Name, when set, replaces the model that an agent asks for: the run's choice wins over an agent's default.
	Name    string
	Variant int // of Local models
	// Record keeps an exchange. Its error ends the exchange: what can't be recorded is not answered.
	Record func(Exchange) error
	HTTP   *http.Client // nil: one of its own
	Now    func() time.Time
}

// Exchange is one request and its answer.
type Exchange struct {
	At       time.Time `json:"at"`
	Protocol string    `json:"protocol,omitempty"` // of serve; "" for requests that are none of a model's
	Path     string    `json:"path"`
	Model    string    `json:"model,omitempty"`
	Status   int       `json:"status"` // 0: the agent left before an answer
	Seconds  float64   `json:"seconds"`
	// Request is the body; of its list of messages the first Kept are left out, since they are those of the exchange before.
	Request json.RawMessage `json:"request,omitempty"`
	Kept    int             `json:"kept,omitempty"`
	// Response is the body: JSON, or the text of a stream. Cut says that it is not whole.
	Response string       `json:"response,omitempty"`
	Cut      bool         `json:"cut,omitempty"`
	Usage    *model.Usage `json:"usage,omitempty"` // nil: unknown
	Error    string       `json:"error,omitempty"`

	fault *model.Error
}

// Fault is why the model did not answer; nil when it did, when the agent left, and of what is not asked of a model.
func (x *Exchange) Fault() *model.Error { return x.fault }

// Bounds.
const (
	maxRequest = 64 << 20
	maxKept    = 32 << 20 // bytes of an answer that are recorded
)

// Proxy is a handler. Close it.
type Proxy struct {
	o    Options
	base *url.URL

	mu   sync.Mutex
	last map[string][]json.RawMessage // the messages of the exchange before, by path
}

var version = lazyregexp.New(`/v[0-9]+(beta|alpha)?[0-9]*$`)

// New makes a Proxy.
func New(o Options) (*Proxy, error) {
	p := &Proxy{o: o, last: map[string][]json.RawMessage{}}
	if o.Upstream != nil {
		u, err := url.Parse(o.Upstream.BaseURL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			return nil, errors.New("the model endpoint's address is not one of http or https without a user: set model.base_url")
		}
		u.Path = strings.TrimRight(u.Path, "/")
		p.base = u
		if o.Upstream.Outage == nil {
			up := *o.Upstream
			up.Outage, p.o.Upstream = &model.Outage{}, &up
		}
	}
	if p.o.HTTP == nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.MaxIdleConnsPerHost = 256
		p.o.HTTP = &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	}
	if p.o.Now == nil {
		p.o.Now = time.Now
	}
	return p, nil
}

// Close drops idle connections.
func (p *Proxy) Close() { p.o.HTTP.CloseIdleConnections() }

// ServeHTTP answers one request.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := Exchange{At: p.o.Now(), Protocol: serve.ProtocolOf(r.URL.Path), Path: r.URL.Path}
	start := time.Now()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
	if err != nil {
		return // the agent left
	}
	if len(body) > maxRequest {
		serve.Fail(w, x.Protocol, &model.Error{Kind: model.Invalid, Message: fmt.Sprintf("a request is longer than %d MiB", maxRequest>>20)})
		return
	}
	body, path := p.rename(&x, r.URL.Path, body)
	p.request(&x, body)
	out := &tee{ResponseWriter: w}
	if m, ok := p.local(x.Model); ok && x.Protocol != "" {
		p.play(r.Context(), out, m, path, body, &x)
	} else {
		p.forward(out, r, path, body, &x)
	}
	x.Seconds, x.Response, x.Cut = time.Since(start).Seconds(), out.kept.String(), x.Cut || out.over
	if x.Status == 0 {
		x.Status = out.status
	}
	if x.Usage == nil && x.Status == http.StatusOK && !x.Cut {
		x.Usage = p.usage(&x, out.Header())
		if p.o.Upstream != nil && x.fault == nil && x.Protocol != "" {
			x.fault = disguised(&x, out.Header(), p.o.Upstream.Named)
		}
	}
	if err := p.o.Record(x); err != nil {
		panic(http.ErrAbortHandler) // the agent must not go on from what nobody knows of
	}
	out.end()
}

func (p *Proxy) local(name string) (model.Model, bool) {
	if p.o.Local == nil {
		return nil, false
	}
	return p.o.Local(name)
}

// rename puts the run's model in place of the agent's, and tells which it is.
func (p *Proxy) rename(x *Exchange, path string, body []byte) ([]byte, string) {
	if x.Protocol == serve.Gemini {
		i := strings.LastIndexByte(path, '/')
		name, action, _ := strings.Cut(path[i+1:], ":")
		x.Model = name
		if p.o.Name != "" {
			x.Model = p.o.Name
			path = path[:i+1] + url.PathEscape(p.o.Name) + ":" + action
		}
		return body, path
	}
	var in struct {
		Model string `json:"model"`
	}
	if json.Unmarshal(body, &in) != nil {
		return body, path
	}
	x.Model = in.Model
	if p.o.Name == "" || in.Model == "" || in.Model == p.o.Name {
		return body, path
	}
	var all map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil {
		return body, path
	}
	x.Model = p.o.Name
	name, err := json.Marshal(p.o.Name)
	if err != nil {
		return body, path
	}
	all["model"] = name
	if b, err := json.Marshal(all); err == nil {
		body = b
	}
	return body, path
}

// request keeps what is new of a request: agents send the whole conversation each time.
func (p *Proxy) request(x *Exchange, body []byte) {
	var all map[string]json.RawMessage
	if json.Unmarshal(body, &all) != nil {
		if json.Valid(body) {
			x.Request = body
		}
		return
	}
	for _, name := range []string{"messages", "input", "contents"} {
		var list []json.RawMessage
		if json.Unmarshal(all[name], &list) != nil || len(list) == 0 {
			continue
		}
		p.mu.Lock()
		before := p.last[x.Path]
		p.last[x.Path] = list
		p.mu.Unlock()
		for x.Kept < len(before) && x.Kept < len(list) && bytes.Equal(before[x.Kept], list[x.Kept]) {
			x.Kept++
		}
		if b, err := json.Marshal(list[x.Kept:]); err == nil {
			all[name] = b
		}
		break
	}
	if b, err := json.Marshal(all); err == nil {
		x.Request = b
	}
}

func (p *Proxy) play(ctx context.Context, w http.ResponseWriter, m model.Model, path string, body []byte, x *Exchange) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, (&url.URL{Path: path}).String(), bytes.NewReader(body))
	if err == nil {
		var q *serve.Question
		if q, err = serve.Read(r); err == nil {
			q.Request.Variant = p.o.Variant
			var res *model.Response
			if res, err = m.Generate(ctx, &q.Request); err == nil {
				x.Usage = &res.Usage
				named(res, q.Request.Tools)
				serve.Write(w, q, res)
				return
			}
		}
	}
	x.Error = err.Error()
	serve.Fail(w, x.Protocol, err)
}

// named gives calls the names that the agent knows their tools by: a script calls tools as their server does, and agents put the server's name before
// them. A name that is none of the agent's, but the end of just one, is that one.
func named(res *model.Response, tools []model.Tool) {
	res.Message.Calls = slices.Clone(res.Message.Calls)
	for i := range res.Message.Calls {
		c := &res.Message.Calls[i]
		if slices.ContainsFunc(tools, func(t model.Tool) bool { return t.Name == c.Name }) {
			continue
		}
		var fit []string
		for _, t := range tools {
			if strings.HasSuffix(t.Name, "_"+c.Name) {
				fit = append(fit, t.Name)
			}
		}
		if len(fit) == 1 {
			c.Name = fit[0]
		}
	}
}

// dropped are headers that are not passed on: the agent's own credentials, and those of one connection.
var dropped = []string{
	"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key", "Cookie", "Proxy-Authorization", "Connection", "Keep-Alive", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Host", "Content-Length", "Accept-Encoding",
}

// target joins a request's path to the endpoint's: a version that both have is there once.
func (p *Proxy) target(path, query string) string {
	u := *p.base
	if v := version().FindString(u.Path); v != "" && (strings.HasPrefix(path, v+"/") || version().MatchString("/"+strings.SplitN(strings.TrimPrefix(path, "/"), "/", 2)[0])) {
		u.Path = strings.TrimSuffix(u.Path, v)
	}
	u.Path += path
	q, err := url.ParseQuery(query)
	if err == nil {
		q.Del("key") // Gemini's clients put theirs here
		u.RawQuery = q.Encode()
	}
	return u.String()
}

func (p *Proxy) forward(w *tee, r *http.Request, path string, body []byte, x *Exchange) {
	if p.base == nil {
		err := &model.Error{Kind: model.NoModel, Message: fmt.Sprintf("no model endpoint is configured, and %q is not played here: set model.base_url", x.Model)}
		x.Error, x.fault = err.Error(), err
		serve.Fail(w, x.Protocol, err)
		return
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, p.target(path, r.URL.RawQuery), bytes.NewReader(body))
	if err != nil {
		serve.Fail(w, x.Protocol, &model.Error{Kind: model.Invalid, Message: "the request's path is not valid"})
		return
	}
	req.Header = maps.Clone(r.Header)
	for _, h := range dropped {
		req.Header.Del(h)
	}
	p.sign(req.Header, x.Protocol)
	res, err := p.do(req)
	if err != nil {
		if r.Context().Err() != nil {
			x.Error = "the agent left"
			return
		}
		x.fault = &model.Error{Kind: model.Unreachable, Err: err, Lasting: dialling(err) && !p.o.Upstream.Named}
		x.Error = err.Error()
		serve.Fail(w, x.Protocol, x.fault)
		return
	}
	defer res.Body.Close()
	for k, vs := range res.Header {
		if !slices.Contains(dropped, k) && k != "Set-Cookie" {
			w.Header()[k] = vs
		}
	}
	w.WriteHeader(res.StatusCode)
	if _, err := io.Copy(w, res.Body); err != nil {
		x.Cut, x.Error = true, "the answer broke off"
		if r.Context().Err() != nil {
			x.Error = "the agent left"
			return
		}
		x.fault = &model.Error{Kind: model.Cut, Err: errors.New(x.Error)}
		return
	}
	if res.StatusCode >= http.StatusBadRequest {
		x.fault = model.Refusal(res.StatusCode, w.kept.Bytes(), res.Header).Judge(p.o.Upstream.Named)
	}
}

// do sends a request, and again while the endpoint can't be dialled: nothing of it has been sent then, and agents wait more easily than they recover.
func (p *Proxy) do(req *http.Request) (*http.Response, error) {
	for pause := time.Second; ; pause = min(2*pause, model.LongestRedial) {
		ctx, reached := p.o.Upstream.Outage.Dialling(req.Context())
		res, err := p.o.HTTP.Do(req.WithContext(ctx))
		reached()
		if err == nil {
			p.o.Upstream.Outage.Met()
			return res, nil
		}
		var u *url.Error
		if errors.As(err, &u) {
			err = u.Err // its URL may hold a key
		}
		if req.Context().Err() != nil || !dialling(err) || !p.o.Upstream.Outage.Missed(pause, err) {
			return nil, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-req.Context().Done():
			t.Stop()
			return nil, err
		}
		if req.Body, err = req.GetBody(); err != nil {
			return nil, err
		}
	}
}

// dialling tells whether a request failed before anything of it was sent.
func dialling(err error) bool {
	var op *net.OpError
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.As(err, &op) && op.Op == "dial"
}

// sign puts the key where the protocol's endpoints look for it; gateways in front of several want the first.
func (p *Proxy) sign(h http.Header, protocol string) {
	key := p.o.Upstream.Key
	if key != "" {
		switch protocol {
		case serve.Messages:
			h.Set("X-Api-Key", key)
			if !strings.HasSuffix(p.base.Hostname(), "anthropic.com") {
				h.Set("Authorization", "Bearer "+key)
			}
		case serve.Gemini:
			h.Set("X-Goog-Api-Key", key)
			if !strings.HasSuffix(p.base.Hostname(), "googleapis.com") {
				h.Set("Authorization", "Bearer "+key)
			}
		default:
			h.Set("Authorization", "Bearer "+key)
		}
	}
	for k, v := range p.o.Upstream.Headers {
		h.Set(k, v)
	}
}

// usage reads what an answer cost out of its body and its header.
func (p *Proxy) usage(x *Exchange, h http.Header) *model.Usage {
	media, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	var u *model.Usage
	switch x.Protocol {
	case serve.Chat, serve.Messages:
		dialect := model.OpenAI
		if x.Protocol == serve.Messages {
			dialect = model.Anthropic
		}
		if res, err := model.Decode(dialect, media, []byte(x.Response)); err == nil {
			u = &res.Usage
		}
	case serve.Responses, serve.Gemini:
		u = lastUsage(x.Response, media)
	}
	if u == nil {
		return nil
	}
	u.PriceOf(h)
	if p.o.Upstream != nil && !u.Priced {
		if price, ok := p.o.Upstream.Prices[x.Model]; ok {
			u.USD, u.Priced = price.Of(*u), true
		}
	}
	return u
}

// lastUsage reads the last count of tokens in an answer of OpenAI's responses or Gemini.
func lastUsage(body, media string) *model.Usage {
	type counts struct {
		Input   int64 `json:"input_tokens"`
		Output  int64 `json:"output_tokens"`
		Details struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	}
	var u *model.Usage
	read := func(b string) {
		var in struct {
			Usage    *counts `json:"usage"`
			Response struct {
				Usage *counts `json:"usage"`
			} `json:"response"`
			Gemini *struct {
				Prompt   int64 `json:"promptTokenCount"`
				Answer   int64 `json:"candidatesTokenCount"`
				Thoughts int64 `json:"thoughtsTokenCount"`
				Cached   int64 `json:"cachedContentTokenCount"`
			} `json:"usageMetadata"`
		}
		if json.Unmarshal([]byte(b), &in) != nil {
			return
		}
		c := in.Usage
		if in.Response.Usage != nil {
			c = in.Response.Usage
		}
		switch {
		case c != nil:
			u = &model.Usage{Input: c.Input, Cached: c.Details.Cached, Output: c.Output}
		case in.Gemini != nil:
			u = &model.Usage{Input: in.Gemini.Prompt, Cached: in.Gemini.Cached, Output: in.Gemini.Answer + in.Gemini.Thoughts}
		}
	}
	if media != "text/event-stream" {
		read(body)
		return u
	}
	for line := range strings.SplitSeq(body, "\n") {
		if d, ok := strings.CutPrefix(strings.TrimRight(line, "\r"), "data:"); ok {
			read(strings.TrimSpace(d))
		}
	}
	return u
}
