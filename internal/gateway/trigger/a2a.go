package trigger

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// A2A is the Executor that speaks A2A 0.3.0 to agents: message/send, then tasks/get until the task ends.
type A2A struct {
	Transport http.RoundTripper // nil: the host's network
}

const (
	firstPoll  = 100 * time.Millisecond
	lastPoll   = 2 * time.Second
	askTimeout = 30 * time.Second
	maxTask    = 16 << 20
)

// task is what is read of an A2A task.
type task struct {
	ID     string `json:"id"`
	Status struct {
		State   string `json:"state"`
		Message struct {
			Parts []struct {
				Kind string `json:"kind"`
				Text string `json:"text"`
			} `json:"parts"`
		} `json:"message"`
	} `json:"status"`
}

func random() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it can't fail
	return hex.EncodeToString(b[:])
}

// Send implements Executor. The reply is the text of the task's last message.
func (a A2A) Send(ctx context.Context, e Errand) (string, error) {
	url := trimSlash(e.URL) + "/a2a"
	t, err := a.ask(ctx, url, "message/send", map[string]any{
		"message": map[string]any{
			"kind": "message", "role": "user", "messageId": random(), "contextId": e.Context,
			"parts": []any{map[string]any{"kind": "text", "text": e.Instruction}},
		},
		"configuration": map[string]any{"blocking": false},
	})
	if err != nil {
		return "", err
	}
	for pause := firstPoll; ; pause = min(2*pause, lastPoll) {
		switch t.Status.State {
		case "completed":
			var texts []string
			for _, p := range t.Status.Message.Parts {
				if p.Kind == "text" {
					texts = append(texts, p.Text)
				}
			}
			return strings.Join(texts, "\n"), nil
		case "failed", "canceled", "rejected":
			return "", fmt.Errorf("the agent's task ended as %s", t.Status.State)
		}
		if t.ID == "" {
			return "", errors.New("the agent answered without a task")
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			a.cancel(ctx, url, t.ID)
			return "", fmt.Errorf("the agent's task did not end in time: %w", ctx.Err())
		}
		if t, err = a.ask(ctx, url, "tasks/get", map[string]any{"id": t.ID}); err != nil {
			return "", err
		}
	}
}

// cancel tells an agent that nobody waits any more; whether it listens is its own affair.
func (a A2A) cancel(ctx context.Context, url, id string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer stop()
	_, _ = a.ask(ctx, url, "tasks/cancel", map[string]any{"id": id}) // nothing more can be done
}

func (a A2A) ask(ctx context.Context, url, method string, params any) (task, error) {
	ctx, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": random(), "method": method, "params": params})
	if err != nil {
		return task{}, fmt.Errorf("write a request to an agent: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return task{}, fmt.Errorf("the agent's URL is no URL: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	rt := a.Transport
	if rt == nil {
		own := &http.Transport{DisableKeepAlives: true}
		rt = own
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return task{}, fmt.Errorf("the agent can't be reached: %w", err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxTask))
	if err != nil {
		return task{}, fmt.Errorf("the agent's answer can't be read: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return task{}, fmt.Errorf("the agent answers %s with HTTP %d", method, resp.StatusCode)
	}
	return readTask(raw)
}

// readTask reads an agent's answer: a task, or a message, which counts as a task that is completed.
func readTask(raw []byte) (task, error) {
	var m struct {
		Result json.RawMessage `json:"result"`
		Error  *struct {
			Code    int    `json:"code"`
			Message string `json:"message"`
		} `json:"error"`
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return task{}, fmt.Errorf("the agent's answer is no JSON-RPC: %w", err)
	}
	if m.Error != nil {
		return task{}, fmt.Errorf("the agent refused: %s (%d)", m.Error.Message, m.Error.Code)
	}
	var kind struct {
		Kind string `json:"kind"`
	}
	var t task
	err := json.Unmarshal(m.Result, &kind)
	if err == nil && kind.Kind == "message" {
		t.Status.State = "completed"
		err = json.Unmarshal(m.Result, &t.Status.Message)
	} else if err == nil {
		err = json.Unmarshal(m.Result, &t)
	}
	if err != nil {
		return task{}, fmt.Errorf("the agent's answer is no task: %w", err)
	}
	return t, nil
}
