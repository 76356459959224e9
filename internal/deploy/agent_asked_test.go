package deploy

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/modelproxy"
	"agentenv.internal/agentenv/sdk/wire"
)

// TestWhose: what comes to the one door that an agent has for its model is told apart where it can be, booked once where it can't, and nobody's while nobody is asked.
func TestWhose(t *testing.T) {
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(wire.ContextHeader) != "" {
			t.Error("the endpoint is told of conversations")
		}
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)
	}))
	defer upstream.Close()
	var mu sync.Mutex
	var got []string
	a := &asked{}
	door := httptest.NewServer(a)
	defer door.Close()
	begin := func(conversation, text string) func() {
		p, err := modelproxy.New(modelproxy.Options{Upstream: &modelproxy.Upstream{BaseURL: upstream.URL}, Record: func(modelproxy.Exchange) error {
			mu.Lock()
			defer mu.Unlock()
			got = append(got, conversation)
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return a.begin(&prompted{texts: []string{text}, conversation: conversation, proxy: p})
	}
	post := func(header string, messages ...string) (string, int) {
		t.Helper()
		for i, m := range messages {
			messages[i] = fmt.Sprintf(`{"role":"user","content":%q}`, m)
		}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, door.URL+"/v1/chat/completions", strings.NewReader(`{"model":"m","messages":[`+strings.Join(messages, ",")+`]}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(wire.ContextHeader, header)
		resp, err := door.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		mu.Lock()
		defer mu.Unlock()
		if len(got) == 0 {
			return "", resp.StatusCode
		}
		return got[len(got)-1], resp.StatusCode
	}
	if _, status := post("", "anything"); status != http.StatusServiceUnavailable {
		t.Errorf("HTTP %d while nobody is asked", status)
	}
	endA := begin("a", "count the apples")
	if who, _ := post("", "whatever"); who != "a" {
		t.Errorf("the only prompt's is %s's", who)
	}
	endB, endC, endD := begin("b", "count the apples and pears"), begin("c", "same words"), begin("d", "same words")
	for _, c := range []struct {
		header   string
		messages []string
		want     string
	}{
		{"", []string{"Task: count the apples. Go."}, "a"},
		{"", []string{"count the apples and pears"}, "b"}, // which holds the other's
		{"", []string{"count the apples and pears", "count the apples"}, "a"},
		{"", []string{"apples and pears"}, "b"},
		{"d", []string{"same words"}, "d"},
		{"c", []string{"count the apples"}, "c"},
		{"nobody", []string{"count the apples"}, "a"},
		{"", []string{"same words"}, "a"}, // two say it
		{"", []string{"summarize"}, "a"},
	} {
		if who, status := post(c.header, c.messages...); who != c.want || status != http.StatusOK {
			t.Errorf("%q %q is %s's, want %s's: HTTP %d", c.header, c.messages, who, c.want, status)
		}
	}
	for _, end := range []func(){endA, endB, endC, endD} {
		done := make(chan struct{})
		go func() { defer close(done); end() }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatal("a prompt's end waits for what has been answered")
		}
	}
}

func FuzzTextsIn(f *testing.F) {
	f.Add([]byte(`{"messages":[{"content":"x"}]}`))
	f.Add([]byte(`{"a":[`))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_ = whose([]*prompted{{texts: []string{"x"}}, {texts: []string{"y"}}}, b)
	})
}
