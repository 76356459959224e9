package modelproxy_test

import (
	"cmp"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/modelproxy"
)

type blip struct{ until time.Time }

func (b *blip) RoundTrip(r *http.Request) (*http.Response, error) {
	if time.Now().Before(b.until) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "models.example", IsNotFound: true}}
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"choices":[{"message":{"content":"fine"},"finish_reason":"stop"}],"usage":{"prompt_tokens":` + string(rune('0'+len(body)%10)) + `}}`)),
	}, nil
}

// TestOutageBehindTheDoor: an agent waits out a name that does not resolve for a minute without knowing, its request is sent whole then, and an
// endpoint that stays away is told as a fault that lasts.
func TestOutageBehindTheDoor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const body = `{"model":"m","messages":[{"role":"user","content":"hi"}]}`
		for long, status := range map[time.Duration]int{65 * time.Second: http.StatusOK, time.Hour: http.StatusBadGateway} {
			r := &record{}
			p, err := modelproxy.New(modelproxy.Options{
				Upstream: &modelproxy.Upstream{BaseURL: "http://models.example", Key: key}, HTTP: &http.Client{Transport: &blip{time.Now().Add(long)}}, Record: r.add,
			})
			if err != nil {
				t.Fatal(err)
			}
			w := httptest.NewRecorder()
			p.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
			x := r.all[0]
			if w.Code != status || x.Status != status {
				t.Errorf("%s: %d %s", long, w.Code, w.Body)
			}
			if status == http.StatusOK && (x.Usage == nil || x.Usage.Input != int64(len(body)%10) || x.Fault() != nil) {
				t.Errorf("%s: %+v", long, x)
			}
			if f := x.Fault(); status != http.StatusOK && (f == nil || f.Kind != model.Unreachable || !f.Lasts() || x.Seconds > 121) {
				t.Errorf("%s: %+v after %g s", long, f, x.Seconds)
			}
			p.Close()
		}
	})
}

// TestFaultBehindTheDoor: what an endpoint refuses is told by the words of a model's client.
func TestFaultBehindTheDoor(t *testing.T) {
	for text, c := range map[string]struct {
		status int
		kind   string
		lasts  bool
	}{
		"slow down":                       {429, model.RateLimited, false},
		"You exceeded your current quota": {429, model.Spent, true},
		"no such key":                     {401, model.Denied, true},
		"oops":                            {503, model.Overloaded, false},
		"bad tool":                        {400, model.Invalid, false},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, text, c.status) }))
		r := &record{}
		url := start(t, modelproxy.Options{Upstream: &modelproxy.Upstream{BaseURL: s.URL, Key: key}}, r)
		if status, got := post(t, url+"/v1/messages", `{"model":"m","messages":[]}`, nil); status != c.status || !strings.Contains(got, text) {
			t.Errorf("%s: %d %s", text, status, got)
		}
		if f := r.all[0].Fault(); f == nil || f.Kind != c.kind || f.Lasts() != c.lasts {
			t.Errorf("%s: %+v", text, f)
		}
		s.CloseClientConnections()
		s.Close()
	}
}

// TestRefusalBehindA200: what a gateway makes an answer of status 200 of is the failure that it is, and an answer that mentions errors is none.
func TestRefusalBehindA200(t *testing.T) {
	const chat, messages, responses, gemini = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1beta/models/m:generateContent"
	for _, c := range []struct{ name, path, media, answer, kind string }{
		{"a rate limit", chat, "", `{"error":{"message":"slow down","code":429},"usage":{"prompt_tokens":0,"completion_tokens":0}}`, model.RateLimited},
		{"a fault whose id holds a number", chat, "", `{"error":{"message":"oops","type":"server_error","request_id":"req-429-quota"}}`, model.Overloaded},
		{"a rate limit by its name", messages, "", `{"type":"error","error":{"type":"rate_limit_error","message":"slow down"}}`, model.RateLimited},
		{"a rate limit in a stream", chat, "text/event-stream", "data: {\"error\":{\"message\":\"Rate limit reached\"}}\n\ndata: [DONE]\n\n", model.RateLimited},
		{"overload in a stream", messages, "text/event-stream", "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n", model.Overloaded},
		{"a failed response", responses, "text/event-stream", "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\",\"message\":\"x\"}}}\n\n", model.Overloaded},
		{"a quota", chat, "", `{"error":{"message":"You exceeded your current quota","code":"insufficient_quota"}}`, model.Spent},
		{"a list of errors", gemini, "", `[{"error":{"code":503,"message":"busy","status":"UNAVAILABLE"}}]`, model.Overloaded},
		{"nothing at all", chat, "", `{"choices":[{"message":{"role":"assistant","content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":0,"completion_tokens":0}}`, model.Malformed},
		{"what was asked is refused", chat, "", `{"error":{"message":"bad tool","type":"invalid_request_error"}}`, model.Invalid},
		{"an answer", chat, "", `{"choices":[{"message":{"content":"the \"error\" was {\"error\": 429}"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}`, ""},
		{"an answer without an error", responses, "", `{"error":null,"status":"completed","output":[{"type":"message","content":[{"text":"fine"}]}],"usage":{"input_tokens":1,"output_tokens":1}}`, ""},
		{"silence that was paid for", chat, "", `{"choices":[{"message":{"content":""},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`, ""},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", cmp.Or(c.media, "application/json"))
			_, _ = io.WriteString(w, c.answer)
		}))
		r := &record{}
		url := start(t, modelproxy.Options{Upstream: &modelproxy.Upstream{BaseURL: s.URL, Key: key}}, r)
		if status, got := post(t, url+c.path, `{"model":"m","messages":[]}`, nil); status != http.StatusOK || got != c.answer {
			t.Errorf("%s: the agent is given %d %s", c.name, status, got)
		}
		f := r.all[0].Fault()
		if f == nil != (c.kind == "") || f != nil && (f.Kind != c.kind || model.Infra(f) != (c.kind != model.Invalid)) {
			t.Errorf("%s: %+v, want %q", c.name, f, c.kind)
		}
		s.CloseClientConnections()
		s.Close()
	}
}
