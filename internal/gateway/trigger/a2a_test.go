package trigger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestA2A: a task is polled until it ends; what ends it otherwise than completed is an error, and an agent is told when nobody waits any more.
func TestA2A(t *testing.T) {
	polls, cancels := 0, 0
	end := "completed"
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			Method string
			Params struct {
				ID      string
				Message struct {
					ContextID string `json:"contextId"`
					Parts     []struct{ Kind, Text string }
				}
				Configuration struct{ Blocking *bool }
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil || r.URL.Path != "/a2a" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		state := "working"
		switch m.Method {
		case "message/send":
			if p := m.Params; p.Message.ContextID != "c" || len(p.Message.Parts) != 1 || p.Message.Parts[0].Text != "Do it." || p.Configuration.Blocking == nil || *p.Configuration.Blocking {
				t.Errorf("sent %+v", p)
			}
		case "tasks/get":
			if polls++; polls > 1 {
				state = end
			}
		case "tasks/cancel":
			cancels++
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":"x","result":{"kind":"task","id":"t1","status":{"state":%q,"message":{"parts":[{"kind":"text","text":"a"},{"kind":"data","data":{}},{"kind":"text","text":"b"}]}}}}`, state)
	}))
	defer agent.Close()
	var a A2A
	errand := Errand{agent.URL + "/", "c", "Do it."}
	reply, err := a.Send(t.Context(), errand)
	if err != nil || reply != "a\nb" || polls != 2 {
		t.Errorf("%q, %v after %d polls", reply, err, polls)
	}
	polls, end = 0, "failed"
	if _, err := a.Send(t.Context(), errand); err == nil || !strings.Contains(err.Error(), "failed") {
		t.Errorf("a task that failed: %v", err)
	}
	once := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":"x","result":{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"at once"}]}}`)
	}))
	defer once.Close()
	if reply, err := a.Send(t.Context(), Errand{once.URL, "c", "Do it."}); err != nil || reply != "at once" {
		t.Errorf("an answer without a task: %q, %v", reply, err)
	}
	once.Close()
	began := time.Now()
	if _, err := a.Send(t.Context(), Errand{once.URL, "c", "Do it."}); err == nil || time.Since(began) > time.Second {
		t.Errorf("nobody is there: %v after %s", err, time.Since(began))
	}
	polls, end = -1000, "completed"
	ctx, stop := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer stop()
	if _, err := a.Send(ctx, errand); !errors.Is(err, context.DeadlineExceeded) || cancels != 1 {
		t.Errorf("a task that doesn't end: %v, %d cancels", err, cancels)
	}
}
