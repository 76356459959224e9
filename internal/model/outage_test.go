package model_test

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
)

// blip is an endpoint whose name does not resolve until a time, and which answers then.
type blip struct {
	until time.Time

	mu    sync.Mutex
	asked []time.Time
}

func (b *blip) RoundTrip(*http.Request) (*http.Response, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = append(b.asked, time.Now())
	if time.Now().Before(b.until) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "models.example", IsNotFound: true}}
	}
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(`{"model":"m","choices":[{"message":{"content":"fine"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1}}`)),
	}, nil
}

func (b *blip) client(t *testing.T, p model.Patience, o *model.Outage) *model.Client {
	t.Helper()
	c, err := model.New(model.Endpoint{Dialect: model.OpenAI, BaseURL: "http://models.example", Key: key, HTTP: &http.Client{Transport: b}, Outage: o}, p)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNamesThatDontResolveForAMinute: with the default patience nothing is lost, and the tries are spread over the minute.
func TestNamesThatDontResolveForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, long := range []time.Duration{time.Second, 65 * time.Second, 100 * time.Second} {
			b := &blip{until: time.Now().Add(long)}
			c := b.client(t, model.Patience{}, nil)
			var wg sync.WaitGroup
			for range 44 {
				wg.Go(func() {
					if res, err := c.Generate(t.Context(), ask()); err != nil || res.Message.Text() != "fine" {
						t.Errorf("after %s: %v", long, err)
					}
				})
			}
			wg.Wait()
			if n := len(b.asked) / 44; n > 20 {
				t.Errorf("%d tries each in %s", n, long)
			}
		}
	})
}

// TestEndpointThatStaysDown: who comes first waits the outage out, who comes after does not, and a later outage is waited out again.
func TestEndpointThatStaysDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &blip{until: time.Now().Add(time.Hour)}
		var shared model.Outage
		var e *model.Error
		start := time.Now()
		_, err := b.client(t, model.Patience{}, &shared).Generate(t.Context(), ask())
		if took := time.Since(start); !errors.As(err, &e) || e.Kind != model.Unreachable || !e.Lasts() || !model.Infra(err) || took < 100*time.Second || took > 2*time.Minute {
			t.Errorf("%v after %s", err, took)
		}
		if text := err.Error(); strings.Contains(text, key) || !strings.Contains(text, "model.base_url") {
			t.Error(text)
		}
		start, n := time.Now(), len(b.asked)
		if _, err = b.client(t, model.Patience{}, &shared).Generate(t.Context(), ask()); err == nil || time.Since(start) > time.Second || len(b.asked) != n+1 {
			t.Errorf("the next waits %s: %v", time.Since(start), err)
		}
		time.Sleep(2 * time.Hour)
		if _, err = b.client(t, model.Patience{}, &shared).Generate(t.Context(), ask()); err != nil {
			t.Error(err)
		}
		b.until = time.Now().Add(65 * time.Second)
		if _, err = b.client(t, model.Patience{}, &shared).Generate(t.Context(), ask()); err != nil {
			t.Error(err)
		}
	})
}

// TestOutageIsTold: of an outage people hear once, after a second, and once that it is over; of a shorter one they hear nothing. An endpoint that takes no
// connection and refuses none is told of, too.
func TestOutageIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var mu sync.Mutex
		var told []string
		o := &model.Outage{Tell: func(why error, wait time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			after := time.Since(start).Truncate(time.Second).String()
			if why == nil {
				told = append(told, "up")
				return
			}
			told = append(told, after+" "+why.Error()+" "+wait.String())
		}}
		say := func(want ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(told, want) {
				t.Errorf("%q, want %q", told, want)
			}
			told = nil
		}
		b := &blip{until: start.Add(100 * time.Millisecond)}
		if _, err := b.client(t, model.Patience{First: 400 * time.Millisecond}, o).Generate(t.Context(), ask()); err != nil {
			t.Error(err)
		}
		say()
		start = time.Now()
		b.until = start.Add(time.Minute)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if _, err := b.client(t, model.Patience{}, o).Generate(t.Context(), ask()); err != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(2 * time.Second)
		say("0s dial tcp: lookup models.example: no such host 2m0s")
		wg.Wait()
		say("up")
		start = time.Now()
		ctx, stop := o.Dialling(t.Context())
		time.Sleep(4 * time.Second)
		stop()
		say("3s no connection after 3s 2m0s")
		httptrace.ContextClientTrace(ctx).GotConn(httptrace.GotConnInfo{})
		o.Met()
		say("up")
	})
}

// TestSpent: a key with nothing left is its own cause, whatever status tells of it, is not tried again, and says what to do; a rate limit is not one.
func TestSpent(t *testing.T) {
	for _, c := range []struct {
		status int
		text   string
		kind   string
	}{
		{402, "Payment Required", model.Spent},
		{429, "You exceeded your current quota, please check your plan and billing details.", model.Spent},
		{429, "insufficient_quota", model.Spent},
		{400, "Your credit balance is too low to access the API.", model.Spent},
		{400, "Budget has been exceeded! Current cost: 3.0, Max budget: 2.0", model.Spent},
		{403, "insufficient credits", model.Spent},
		{401, "invalid key", model.Denied},
	} {
		for _, named := range []bool{false, true} {
			both(t, func(t *testing.T, d string) {
				s := modeltest.New(t, func(modeltest.Asked) modeltest.Answer { return modeltest.Answer{Status: c.status, Text: c.text} })
				m, err := model.New(model.Endpoint{Dialect: d, BaseURL: s.URL, Key: key, Named: named}, model.Patience{First: time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(m.Close)
				_, err = m.Generate(t.Context(), ask())
				var e *model.Error
				if !errors.As(err, &e) || e.Kind != c.kind || e.Lasts() == named || !model.Infra(err) || len(s.Asked()) != 1 {
					t.Errorf("%d %s: %v, asked %d times", c.status, c.text, err, len(s.Asked()))
				}
				if text := err.Error(); !strings.Contains(text, "model.api_key") || strings.Contains(text, key) {
					t.Error(text)
				}
			})
		}
	}
	s := modeltest.New(t, func(q modeltest.Asked) modeltest.Answer {
		if q.N == 0 {
			return modeltest.Answer{Status: 429, Text: "Rate limit reached: limit 10 requests per minute. Please try again in 6ms."}
		}
		return modeltest.Say("fine")
	})
	if _, err := client(t, s, model.OpenAI, model.Patience{}).Generate(t.Context(), ask()); err != nil {
		t.Error(err)
	}
}
