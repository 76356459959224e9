package act_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/trajectory/live"
	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/wire"
)

// named is what an agent is configured with.
type named struct {
	Model string `json:"model"`
}

// TestPromptsTogether: an agent elsewhere is asked in many conversations at once, in each in order, and by nobody while it is configured for another.
func TestPromptsTogether(t *testing.T) {
	const conversations, turns = 64, 3
	var mu sync.Mutex
	under, most, all := map[string]int{}, 0, 0
	models := map[string]int{}
	a := agent.New("helper", func(ctx context.Context, t *agent.Turn) (agent.Result, error) {
		c := agent.Config[named](t)
		mu.Lock()
		under[t.ContextID]++
		models[c.Model]++
		all++
		most = max(most, all)
		if under[t.ContextID] > 1 {
			c.Model = "two at once in one conversation"
		}
		for other, n := range models {
			if n > 0 && other != c.Model {
				c.Model += " beside " + other
			}
		}
		model := c.Model
		mu.Unlock()
		time.Sleep(5 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		under[t.ContextID]--
		models[c.Model]--
		all--
		return agent.Text(model), nil
	}, agent.WithConfig(named{}))
	h, err := a.Handler()
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(h)
	defer web.Close()
	r := steptest.New(t, fake.Options{})
	d, err := r.Agents.Deploy(t.Context(), deploy.AgentRequest{Run: steptest.Run, Step: "deploy", Attempt: 1, Trial: 1, Name: step.DefaultAgent, URL: web.URL})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ask := func(conversation, id, want string) {
		wg.Go(func() {
			record, err := live.Open(live.Options{})
			if err != nil {
				t.Error(err)
				return
			}
			defer record.Close()
			out, err := d.Runner.Prompt(t.Context(), deploy.Prompt{
				Settings: deploy.Settings{Model: want}, Parts: []wire.Part{wire.TextPart("go")}, Context: conversation, Task: id, Record: record, Poll: time.Millisecond,
			})
			if err != nil || out.Text != want {
				t.Errorf("%q %v, want %q", out.Text, err, want)
			}
		})
	}
	for i := range 10 {
		ask(fmt.Sprint("mixed", i), fmt.Sprint("mixed", i), []string{"one", "two"}[i%2])
	}
	wg.Wait()
	began := time.Now()
	for c := range conversations {
		if c == conversations/2 {
			wg.Wait() // those who want another model wait for their turn
		}
		for n := range turns {
			ask(fmt.Sprint("c", c), fmt.Sprint(c, "-", n), []string{"one", "two"}[c/(conversations/2)])
		}
	}
	wg.Wait()
	t.Logf("%d at once at most, in %s", most, time.Since(began))
	if most < conversations/8 {
		t.Errorf("%d at once at most", most)
	}
}
