package modelproxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
	"agentenv.internal/agentenv/internal/model/serve"
	"agentenv.internal/agentenv/internal/modelproxy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const key = "sk-real"

type record struct {
	mu   sync.Mutex
	all  []modelproxy.Exchange
	fail error
}

func (r *record) add(x modelproxy.Exchange) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, x)
	return r.fail
}

func start(t *testing.T, o modelproxy.Options, r *record) string {
	t.Helper()
	o.Record = r.add
	p, err := modelproxy.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(p)
	t.Cleanup(func() { s.Close(); p.Close() })
	return s.URL
}

func post(t *testing.T, url, body string, h map[string]string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for k, v := range h {
		req.Header.Set(k, v)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(b)
}

func TestForward(t *testing.T) {
	for _, c := range []struct{ path, header, body string }{
		{"/v1/chat/completions", "Authorization", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`},
		{"/v1/messages", "X-Api-Key", `{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}`},
		{"/v1/responses", "Authorization", `{"model":"m","stream":true,"input":[{"role":"user","content":"hi"}]}`},
		{"/v1beta/models/m:streamGenerateContent?alt=sse&key=dummy", "X-Goog-Api-Key", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`},
	} {
		for _, base := range []string{"", "/v1"} {
			up := modeltest.New(t, func(modeltest.Asked) modeltest.Answer {
				a := modeltest.Say("hello there")
				a.Usage = model.Usage{Input: 1000, Cached: 100, Output: 10}
				return a
			})
			r := &record{}
			url := start(t, modelproxy.Options{Upstream: &modelproxy.Upstream{
				BaseURL: up.URL + base, Key: key, Headers: map[string]string{"X-Team": "t"}, Prices: map[string]model.Price{"m": {Input: 1, Output: 1}},
			}}, r)
			status, answer := post(t, url+c.path, c.body, map[string]string{"Authorization": "Bearer dummy", "X-Api-Key": "dummy", "X-Goog-Api-Key": "dummy"})
			if status != 200 || !strings.Contains(answer, "hello") {
				t.Fatalf("%s: %d %s", c.path, status, answer)
			}
			q := up.Asked()[0]
			if !strings.Contains(q.Header.Get(c.header), key) || q.Header.Get("X-Team") != "t" || strings.Contains(strings.Join(q.Header["Authorization"], ""), "dummy") {
				t.Errorf("%s: sent %v", c.path, q.Header)
			}
			if len(r.all) != 1 {
				t.Fatal(r.all)
			}
			x := r.all[0]
			if x.Usage == nil || x.Usage.Input != 1000 || x.Usage.Output != 10 || x.Usage.USD != 1010.0/1e6 || x.Model != "m" || x.Response != answer || x.Cut {
				t.Errorf("%s: recorded %+v", c.path, x)
			}
			if b, _ := json.Marshal(x); strings.Contains(string(b), key) {
				t.Errorf("%s: the key is in the record", c.path)
			}
		}
	}
}

func TestOnlyNewMessages(t *testing.T) {
	up := modeltest.New(t, func(modeltest.Asked) modeltest.Answer { return modeltest.Say("x") })
	r := &record{}
	url := start(t, modelproxy.Options{Upstream: &modelproxy.Upstream{BaseURL: up.URL}}, r)
	for _, body := range []string{
		`{"model":"m","messages":[{"role":"user","content":"a"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"a"},{"role":"assistant","content":"x"},{"role":"user","content":"b"}]}`,
		`{"model":"m","messages":[{"role":"user","content":"other"}]}`,
	} {
		post(t, url+"/v1/chat/completions", body, nil)
	}
	var got []string
	for _, x := range r.all {
		got = append(got, string(x.Request))
	}
	want := `{"messages":[{"role":"user","content":"a"}],"model":"m"} {"messages":[{"role":"assistant","content":"x"},{"role":"user","content":"b"}],"model":"m"} {"messages":[{"role":"user","content":"other"}],"model":"m"}`
	if strings.Join(got, " ") != want || r.all[1].Kept != 1 || r.all[2].Kept != 0 {
		t.Errorf("got %s", strings.Join(got, " "))
	}
}

func TestLocal(t *testing.T) {
	s, err := model.ParseScript([]byte(`{"variants":[{"turns":[{"say":"zero"}]},{"turns":[{"say":"one"}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	r := &record{}
	url := start(t, modelproxy.Options{Name: "scripted:s", Variant: 1, Local: func(name string) (model.Model, bool) {
		return model.NewScripted(s), name == "scripted:s"
	}}, r)
	for _, c := range []struct{ path, body string }{
		{"/v1/chat/completions", `{"model":"gpt-x","messages":[{"role":"user","content":"hi"}]}`},
		{"/v1/messages", `{"model":"claude-x","messages":[{"role":"user","content":"hi"}]}`},
		{"/v1/responses", `{"model":"gpt-x","input":"hi"}`},
		{"/v1beta/models/gemini-x:generateContent", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`},
	} {
		if status, answer := post(t, url+c.path, c.body, nil); status != 200 || !strings.Contains(answer, "one") {
			t.Errorf("%s: %d %s", c.path, status, answer)
		}
	}
	for _, x := range r.all {
		if x.Model != "scripted:s" || x.Usage == nil {
			t.Errorf("recorded %+v", x)
		}
	}
}

// TestNamed: a script calls tools as their server does, and agents put the server's name before them.
func TestNamed(t *testing.T) {
	s, err := model.ParseScript([]byte(`{"variants":[{"turns":[{"calls":[{"tool":"echo"},{"tool":"look"},{"tool":"find"}]}]}]}`))
	if err != nil {
		t.Fatal(err)
	}
	m := model.NewScripted(s)
	url := start(t, modelproxy.Options{Local: func(string) (model.Model, bool) { return m, true }}, &record{})
	for range 2 {
		_, answer := post(t, url+"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"hi"}],
			"tools":[{"name":"mcp__a__echo"},{"name":"look"},{"name":"b_look"},{"name":"a__find"},{"name":"b__find"}]}`, nil)
		for _, want := range []string{`"mcp__a__echo"`, `"name":"look"`, `"name":"find"`} {
			if !strings.Contains(answer, want) {
				t.Errorf("no %s in %s", want, answer)
			}
		}
	}
}

func TestFailures(t *testing.T) {
	r := &record{}
	url := start(t, modelproxy.Options{}, r)
	if status, answer := post(t, url+"/v1/messages", `{"model":"m"}`, nil); status != 404 || !strings.Contains(answer, "model.base_url") {
		t.Errorf("%d %s", status, answer)
	}
	url = start(t, modelproxy.Options{Upstream: &modelproxy.Upstream{BaseURL: "http://127.0.0.1:1", Key: key, Outage: &model.Outage{Wait: time.Millisecond}}}, r)
	if status, answer := post(t, url+"/v1/messages", `{"model":"m"}`, nil); status != 502 || strings.Contains(answer, key) {
		t.Errorf("%d %s", status, answer)
	}
	up := modeltest.New(t, func(modeltest.Asked) modeltest.Answer {
		return modeltest.Answer{Status: 429, Text: "slow down", RetryAfter: "7"}
	})
	url = start(t, modelproxy.Options{Upstream: &modelproxy.Upstream{BaseURL: up.URL}}, r)
	if status, answer := post(t, url+"/v1/chat/completions", `{"model":"m"}`, nil); status != 429 || !strings.Contains(answer, "slow down") {
		t.Errorf("%d %s", status, answer)
	}
	if last := r.all[len(r.all)-1]; last.Status != 429 || last.Usage != nil {
		t.Errorf("recorded %+v", last)
	}
}

func TestUnrecordedIsUnanswered(t *testing.T) {
	up := modeltest.New(t, func(modeltest.Asked) modeltest.Answer { return modeltest.Say("secret plan") })
	url := start(t, modelproxy.Options{Upstream: &modelproxy.Upstream{BaseURL: up.URL}}, &record{fail: errors.New("disk full")})
	if status, answer := post(t, url+"/v1/chat/completions", `{"model":"m","messages":[]}`, nil); status == 200 && strings.Contains(answer, "plan") {
		t.Errorf("answered %s", answer)
	}
}

// TestKilledAgent: an agent that leaves in the middle of an answer is on record with what it had got.
func TestKilledAgent(t *testing.T) {
	up := modeltest.New(t, func(modeltest.Asked) modeltest.Answer {
		a := modeltest.Say("x")
		a.Hang = true
		return a
	})
	r := &record{}
	url := start(t, modelproxy.Options{Upstream: &modelproxy.Upstream{BaseURL: up.URL}}, r)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if res, err := c.Do(req); err == nil {
		_, _ = io.ReadAll(res.Body)
		res.Body.Close()
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		r.mu.Lock()
		n := len(r.all)
		r.mu.Unlock()
		if n == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing was recorded")
		}
	}
	if x := r.all[0]; !x.Cut || x.Usage != nil || !strings.Contains(x.Response, "assistant") {
		t.Errorf("recorded %+v", x)
	}
}

func TestProtocols(t *testing.T) {
	if serve.ProtocolOf("/v1/models") != "" {
		t.Error("a list of models is an exchange")
	}
}
