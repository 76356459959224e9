package act_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/act"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// server is an agent whose answers a test writes. Its program ends when die is called.
type server struct {
	card string
	rpc  func(s *server, w http.ResponseWriter, method string)
	ext  http.HandlerFunc
	// hurry is how long it is waited for where it misbehaves; 0 is the bench's.
	hurry time.Duration

	once sync.Once
	over chan struct{} // closed at the test's end; nil until something hangs

	mu   sync.Mutex
	seen []string
	die  func()
	m    *fake.Machine
}

const (
	plainCard = `{"name":"a","description":"d","version":"1","url":"/a2a","protocolVersion":"0.3.0","defaultInputModes":["text"],"defaultOutputModes":["text"],"skills":[],
"capabilities":{"extensions":[{"uri":"urn:agentenv:agent-config/v1","params":{"endpoint":"/ext/agent-config","methods":{"set":{"method":"POST","request":{"supported":["system_prompt","timeout_seconds"]}}}}}]}}`
	done = `"completed","message":{"kind":"message","messageId":"r","role":"agent","parts":[{"kind":"text","text":"done"}]}`
)

func taskOf(status string) string {
	return `{"jsonrpc":"2.0","id":"1","result":{"kind":"task","id":"t1","contextId":"c1","status":{"state":` + status + `}}}`
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	var q struct{ Method string }
	_ = json.Unmarshal(b, &q)
	s.mu.Lock()
	s.seen = append(s.seen, r.Method+" "+r.URL.Path+" "+q.Method)
	s.mu.Unlock()
	switch {
	case r.URL.Path == "/.well-known/agent.json":
		_, _ = io.WriteString(w, s.card)
	case strings.HasPrefix(r.URL.Path, "/ext/"):
		if s.ext != nil {
			s.ext(w, r)
			return
		}
		_, _ = io.WriteString(w, "{}")
	case r.URL.Path == "/a2a" || r.URL.Path == "/rpc" && strings.Contains(s.card, `"/rpc"`):
		if r.URL.Path == "/a2a" && strings.Contains(s.card, `"/rpc"`) {
			http.NotFound(w, r)
			return
		}
		s.rpc(s, w, q.Method)
	default:
		http.NotFound(w, r)
	}
}

func (s *server) saw(what string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(strings.Join(s.seen, "\n"), what)
}

// answering runs the agent in a fake sandbox.
func answering(t *testing.T, s *server) (*steptest.Rig, *act.PromptAgent, error) {
	t.Helper()
	if s.card == "" {
		s.card = plainCard
	}
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{
		"agent": func(ctx context.Context, p *fake.Proc) guest.Exit {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			s.mu.Lock()
			s.die, s.m = cancel, p.Machine
			s.mu.Unlock()
			_, _ = io.WriteString(p.Stderr, "I am the agent\n")
			return steptest.AgentProgram(func(context.Context, *fake.Proc, *http.Client) (http.Handler, func()) { return s, nil })(ctx, p)
		},
	}})
	if s.hurry > 0 {
		r.Hurry(s.hurry)
	}
	r.PutAgent("@local/a", `command = ["agent"]`)
	_, err := r.Agents.Deploy(t.Context(), deploy.AgentRequest{Run: steptest.Run, Step: "deploy", Attempt: 1, Trial: 1, Name: step.DefaultAgent, ID: "@local/a"})
	return r, act.NewPromptAgent(r.Agents, r.Envs, r.Objects(), r.Store), err
}

// respond answers methods by what answers say; others are an error.
func respond(answers map[string]string) func(*server, http.ResponseWriter, string) {
	return func(_ *server, w http.ResponseWriter, method string) { _, _ = io.WriteString(w, answers[method]) }
}

// TestAgentServerFaults: what an agent does wrong is its failure, with words that say what, and never hangs or is taken for an answer.
func TestAgentServerFaults(t *testing.T) {
	working := taskOf(`"working"`)
	for name, tt := range map[string]struct {
		s     *server
		want  string // "" is a reply
		words string
		sees  string // that the agent must have been asked
		limit float64
		dies  bool // when it is configured
	}{
		"good":                   {s: &server{rpc: respond(map[string]string{"message/send": taskOf(done)})}},
		"a path of its own":      {s: &server{card: strings.Replace(plainCard, "/a2a", "/rpc", 1), rpc: respond(map[string]string{"message/send": working, "tasks/get": taskOf(done)})}, sees: "POST /rpc tasks/get"},
		"a card of another host": {s: &server{card: strings.Replace(plainCard, "/a2a", "https://elsewhere.example/a2a", 1), rpc: respond(map[string]string{"message/send": taskOf(done)})}},
		"a card without sense":   {s: &server{card: strings.Replace(plainCard, "/a2a", "::bad url%%", 1), rpc: respond(map[string]string{"message/send": taskOf(done)})}},
		"never answers": {s: &server{rpc: func(s *server, w http.ResponseWriter, _ string) {
			s.hang()
		}}, want: "agent_error", words: "timeout: it had not answered after 200ms", limit: 0.2},
		"never ends":          {s: &server{rpc: respond(map[string]string{"message/send": working, "tasks/get": working, "tasks/cancel": working})}, want: "agent_error", words: "timeout", sees: "tasks/cancel", limit: 0.2},
		"dies at the message": {s: &server{rpc: func(s *server, _ http.ResponseWriter, _ string) { s.kill(); panic(http.ErrAbortHandler) }}, want: "agent_error", words: "died: server 'default-agent': it was ended by signal 9; the last that it wrote:\nI am the agent"},
		"dies while it works": {s: &server{rpc: func(s *server, w http.ResponseWriter, method string) {
			if method == "tasks/get" {
				s.kill()
			}
			_, _ = io.WriteString(w, working)
		}}, want: "agent_error", words: "died: server 'default-agent'"},
		"dies when it is configured": {s: &server{}, dies: true, want: "agent_error", words: "died"},
		"breaks connections":         {s: &server{hurry: 100 * time.Millisecond, rpc: func(*server, http.ResponseWriter, string) { panic(http.ErrAbortHandler) }}, want: "agent_error", words: "unreachable: server 'default-agent': send the agent its message: the agent can't be reached: EOF"},
		"its sandbox dies":           {s: &server{rpc: func(s *server, _ http.ResponseWriter, _ string) { s.m.Kill() }}, want: "infra: SandboxError"},
		"floods": {s: &server{rpc: func(_ *server, w http.ResponseWriter, _ string) {
			_, _ = io.WriteString(w, taskOf(strings.Replace(done, "done", strings.Repeat("x", 17<<20), 1)))
		}}, want: "agent_error", words: "protocol: send the agent its message: the agent's answer can't be used: it is longer than 16 MiB"},
		"no JSON":         {s: &server{rpc: respond(map[string]string{"message/send": "<html>"})}, want: "agent_error", words: "it is no JSON-RPC, to message/send"},
		"no task":         {s: &server{rpc: respond(map[string]string{"message/send": `{"jsonrpc":"2.0","id":"1","result":{"kind":"message","messageId":"m","role":"agent","parts":[]}}`})}, want: "agent_error", words: "it is a message without parts"},
		"answers at once": {s: &server{rpc: respond(map[string]string{"message/send": `{"jsonrpc":"2.0","id":"1","result":{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"done"}]}}`})}},
		"no JSON later":   {s: &server{rpc: respond(map[string]string{"message/send": working, "tasks/get": "{"})}, want: "agent_error", words: "look at the agent's task: the agent's answer can't be used", sees: "tasks/cancel"},
		"another task":    {s: &server{rpc: respond(map[string]string{"message/send": working, "tasks/get": strings.Replace(taskOf(done), "t1", "t2", 1)})}, want: "agent_error", words: "another than the one that was asked for"},
		"wants more":      {s: &server{rpc: respond(map[string]string{"message/send": taskOf(`"input-required"`), "tasks/cancel": working})}, want: "agent_error", words: "(input-required)", sees: "tasks/cancel"},
		"redirects": {s: &server{rpc: func(_ *server, w http.ResponseWriter, _ string) {
			w.Header().Set("Location", "http://127.0.0.1:8000/stolen")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}}, want: "agent_error", words: "the agent answered HTTP 307"},
		"refuses":               {s: &server{rpc: respond(map[string]string{"message/send": `{"jsonrpc":"2.0","id":"1","error":{"code":-32602,"message":"no"}}`})}, want: "agent_error", words: "protocol: send the agent its message: "},
		"is rejected":           {s: &server{rpc: respond(map[string]string{"message/send": taskOf(`"rejected"`)})}, want: "agent_error", words: "rejected"},
		"says it could not run": {s: &server{rpc: respond(map[string]string{"message/send": taskOf(`"failed","message":{"kind":"message","messageId":"r","role":"agent","parts":[{"kind":"data","data":{"error_type":"infra_error","error_code":"disk","error_message":"full"}}]}`)})}, want: "infra: infra_error", words: "disk: full"},
		"says it failed":        {s: &server{rpc: respond(map[string]string{"message/send": taskOf(`"failed","message":{"kind":"message","messageId":"r","role":"agent","parts":[{"kind":"data","data":{"error_type":"agent_error","error_code":"lost","error_message":"no way"}}]}`)})}, want: "agent_error", words: "lost: no way"},
		"can't be configured":   {s: &server{hurry: 100 * time.Millisecond, ext: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }}, want: "agent_error", words: "was not answered within 100ms"},
	} {
		t.Run(name, func(t *testing.T) {
			s := tt.s
			if tt.dies {
				s.ext = func(http.ResponseWriter, *http.Request) { s.kill(); panic(http.ErrAbortHandler) }
			}
			defer s.free()
			r, e, err := answering(t, s)
			if err != nil {
				t.Fatal(err)
			}
			if tt.limit == 0 {
				tt.limit = 60
			}
			err = r.Do(e, fmt.Sprintf(`{"id":"p","type":"prompt_agent","prompt":"go","timeout_seconds":%g,"system_prompt":"s"}`, tt.limit))
			want := tt.want
			if want == "" {
				want = "none"
			}
			if got := steptest.ErrorType(err); got != want || err != nil && !strings.Contains(err.Error(), tt.words) {
				t.Errorf("%s: %v", got, err)
			}
			if tt.sees != "" && !s.saw(tt.sees) || s.saw("/stolen") {
				t.Errorf("it was asked %q", s.seen)
			}
			if p := response(t, r); (p.Response == "done") != (want == "none") || (p.ErrorType == "") != (want == "none") || p.Trajectory == nil {
				t.Errorf("%+v", p)
			}
			if _, err := r.Deploy.Down(t.Context(), steptest.Run); err != nil {
				t.Error(err)
			}
			if n := len(r.Fake.Machines()); n != 0 {
				t.Errorf("%d sandboxes are left", n)
			}
		})
	}
}

// hang waits until free.
func (s *server) hang() { <-s.end() }

func (s *server) free() { close(s.end()) }

func (s *server) end() chan struct{} {
	s.once.Do(func() { s.over = make(chan struct{}) })
	return s.over
}

func (s *server) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.die()
}

// TestNoCard: an agent whose card can't be read isn't deployed, says why, and leaves nothing.
func TestNoCard(t *testing.T) {
	for card, want := range map[string]string{
		"<html>": "the agent's answer can't be used: the agent's card can't be read",
		`{"capabilities":{"extensions":"` + strings.Repeat("x", 1<<20) + `"}}`: "it is longer than 1 MiB",
	} {
		t.Run(want, func(t *testing.T) {
			s := &server{card: card, hurry: 50 * time.Millisecond}
			began := time.Now()
			r, _, err := answering(t, s)
			if err == nil || step.IsInfra(err) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "I am the agent") {
				t.Errorf("%v", err)
			}
			if took := time.Since(began); took > time.Minute {
				t.Errorf("it took %s", took)
			}
			if n := len(r.Fake.Machines()); n != 0 {
				t.Errorf("%d sandboxes are left", n)
			}
		})
	}
}

// TestRemoteAgent: an agent elsewhere that nobody reaches is no fault of the task's; one that answers what can't be used is.
func TestRemoteAgent(t *testing.T) {
	for name, tt := range map[string]struct {
		rpc  func(*server, http.ResponseWriter, string)
		want string
	}{
		"good":               {respond(map[string]string{"message/send": taskOf(done)}), "none"},
		"breaks connections": {func(*server, http.ResponseWriter, string) { panic(http.ErrAbortHandler) }, "infra: AgentUnreachable"},
		"no JSON":            {respond(map[string]string{"message/send": "<html>"}), "agent_error"},
	} {
		t.Run(name, func(t *testing.T) {
			web := httptest.NewUnstartedServer(&server{card: plainCard, rpc: tt.rpc})
			web.Config.ErrorLog = nil
			web.Start()
			defer web.Close()
			r := steptest.New(t, fake.Options{})
			if _, err := r.Agents.Deploy(t.Context(), deploy.AgentRequest{Run: steptest.Run, Step: "deploy", Attempt: 1, Trial: 1, Name: step.DefaultAgent, URL: web.URL}); err != nil {
				t.Fatal(err)
			}
			err := r.Do(act.NewPromptAgent(r.Agents, r.Envs, r.Objects(), r.Store), ask)
			if got := steptest.ErrorType(err); got != tt.want {
				t.Errorf("%s: %v", got, err)
			}
		})
	}
	web := httptest.NewServer(&server{card: "<html>"})
	defer web.Close()
	r := steptest.New(t, fake.Options{})
	_, err := r.Agents.Deploy(t.Context(), deploy.AgentRequest{Run: steptest.Run, Step: "deploy", Attempt: 1, Trial: 1, Name: step.DefaultAgent, URL: web.URL})
	if err == nil || !strings.Contains(err.Error(), "card can't be read") {
		t.Error(err)
	}
}
