package modelproxy_test

import (
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
