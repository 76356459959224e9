package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/serve"
	"agentenv.internal/agentenv/sdk/agent"
)

// answerTime is how long the agent and the model that both programs ask take for an answer.
const answerTime = 50 * time.Millisecond

// asked are an agent and a model's endpoint, served by this process, whose CPU is not counted: what they cost is no program's.
type asked struct{ agent, model string } // addresses

// serveAsked serves both until ctx ends.
func serveAsked(ctx context.Context) (asked, error) {
	a := agent.New("helper", func(ctx context.Context, t *agent.Turn) (agent.Result, error) {
		select {
		case <-time.After(answerTime):
		case <-ctx.Done():
		}
		return agent.Text("a good answer"), nil
	}, agent.WithLog(slog.New(slog.DiscardHandler)))
	var out asked
	h, err := a.Handler()
	if err != nil {
		return out, err
	}
	for _, s := range []struct {
		h  http.Handler
		at *string
	}{{h, &out.agent}, {http.HandlerFunc(answer), &out.model}} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return out, err
		}
		*s.at = "http://" + l.Addr().String()
		server := &http.Server{Handler: s.h, ReadHeaderTimeout: time.Minute}
		go func() { _ = server.Serve(l) }()
		context.AfterFunc(ctx, func() { _ = server.Close() })
	}
	return out, nil
}

// answer is a model that always says the same, as a stream.
func answer(w http.ResponseWriter, r *http.Request) {
	q, err := serve.Read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	select {
	case <-time.After(answerTime):
	case <-r.Context().Done():
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range q.Events(&model.Response{Stop: model.StopEnd, Message: model.Text(model.Assistant, "a good answer"), Usage: model.Usage{Input: 10, Output: 5}}) {
		if _, err := w.Write([]byte(e)); err != nil {
			return
		}
	}
}

// evals are evals of agents, and prompts of many at once.
func evals(at asked) []workload {
	runEval := []string{"eval", "run", "--id", "@local/~/b/e", "--k", "4"}
	write := []string{"run", "."}
	return []workload{
		{
			name: "eval of 200 runs, 4 at a time: a sandbox and a check", args: runEval, before: write, once: true,
			bundle: func(dir string) error { return evalBundle(dir, at, 50, []step{box(), verify("v", "true")}) },
		},
		{
			name: "eval of 200 runs, 4 at a time: an agent elsewhere that takes 50 ms, its answer verified", args: runEval, before: write, once: true,
			bundle: func(dir string) error {
				return evalBundle(dir, at, 50, []step{elsewhere(at), ask("ask", "helper", "p"), contains("p")})
			},
		},
		{
			name: "eval of 200 runs, 4 at a time: the built-in agent on a script, its answer verified and judged by a script", args: runEval, before: write, once: true, alone: true,
			bundle: func(dir string) error {
				said := ask("ask", "default-agent", "p")
				said["model"] = "scripted:script"
				judged := step{
					"id": "judged", "type": "rubrics_verifier", "prompt_id": "p", "use_agent_judge": false, "default_model": "scripted:judge",
					"criteria": []step{{"id": "g", "criterion": "is good"}},
				}
				for name, says := range map[string]string{"script": "a good answer", "judge": `{\"results\":[{\"id\":\"c1\",\"score\":1,\"justification\":\"it is\"}]}`} {
					path := filepath.Join(dir, "artifacts", name, "script.json")
					if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
						return err
					}
					if err := os.WriteFile(path, []byte(`{"variants":[{"turns":[{"say":"`+says+`"}]}]}`), 0o644); err != nil {
						return err
					}
				}
				return evalBundle(dir, at, 50, []step{builtIn(), said, contains("p"), judged})
			},
		},
		{
			name: "1,000 prompts at once to the built-in agent, a model that takes 50 ms", args: []string{"run", "."}, once: true, alone: true,
			bundle: func(dir string) error { return prompts(dir, at, builtIn(), "default-agent") },
		},
		{
			// The peer had not ended after 7 minutes.
			name: "1,000 prompts at once to an agent elsewhere that takes 50 ms", args: []string{"run", "."}, once: true, alone: true,
			bundle: func(dir string) error { return prompts(dir, at, elsewhere(at), "helper") },
		},
	}
}

func elsewhere(at asked) step {
	return step{"id": "agent", "type": "deploy_human_agent", "agent_name": "helper", "a2a_url": at.agent}
}

func builtIn() step { return step{"id": "agent", "type": "deploy_agent", "env_ids": []string{}} }

func ask(id, agent, prompt string) step {
	return step{
		"id": id, "type": "prompt_agent", "agent_name": agent, "prompt": "Say something.", "prompt_id": prompt, "poll_interval_seconds": 0.05,
	}
}

func contains(prompt string) step {
	return step{
		"id": "said", "type": "agent_prompt_response_verifier", "prompt_id": prompt, "verifier_id": "said",
		"criteria": []step{{"type": "response_contains", "criterion": "says good", "needles": []string{"good"}}},
	}
}

// prompts is a task that sends an agent 1,000 messages at once; one that is lost fails the run.
func prompts(dir string, at asked, agent step, name string) error {
	steps := []step{agent}
	for i := range 1000 {
		s := ask(fmt.Sprintf("ask%d", i), name, fmt.Sprintf("p%d", i))
		s["depends_on"] = []string{"agent"}
		steps = append(steps, s)
	}
	if err := configure(dir, at); err != nil {
		return err
	}
	return writeTask(dir, "t", steps)
}

// evalBundle has tasks of the same steps and an eval of them all.
func evalBundle(dir string, at asked, tasks int, steps []step) error {
	var names []string
	for i := range tasks {
		name := fmt.Sprintf("t%03d", i)
		if err := writeTask(dir, name, steps); err != nil {
			return err
		}
		names = append(names, `"`+name+`"`)
	}
	if err := os.MkdirAll(filepath.Join(dir, "evals"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "evals", "e.toml"), []byte("tasks = ["+strings.Join(names, ", ")+"]\n"), 0o644); err != nil {
		return err
	}
	return configure(dir, at)
}

// configure lets both programs run four tasks at once, and tells of the model. The file lies beside the bundle: one inside would not be trusted.
func configure(dir string, at asked) error {
	text := fmt.Sprintf("[model]\nbase_url = %q\napi_key = \"sk-bench\"\ndefault = \"m\"\n\n[runner]\nimpl = \"agent_env.runner.local_runner:LocalRunner\"\n\n[runner.config]\nworkers = 4\n", at.model)
	path := filepath.Join(filepath.Dir(dir), ".agentenv", "config.toml")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
