package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/trajectory/live"
	"agentenv.internal/agentenv/sdk/agent"
	"agentenv.internal/agentenv/sdk/wire"
)

// obedient is an agent that does what the validators ask, with every extension. It reaches its MCP servers by inside.
type obedient struct{ inside *http.Client }

type obedientConfig struct {
	SystemPrompt string `json:"system_prompt"`
	Model        string `json:"model"`
}

var toolAsked = regexp.MustCompile("Call the tool `([^`]+)`")

func (o obedient) run(ctx context.Context, t *agent.Turn) (agent.Result, error) {
	if err := t.Record(map[string]string{"asked": t.Text()}); err != nil {
		return agent.Result{}, err
	}
	if _, token, ok := strings.Cut(agent.Config[obedientConfig](t).SystemPrompt, sentinel); ok && t.Text() == question {
		return agent.Text(token), nil
	}
	m := toolAsked.FindStringSubmatch(t.Text())
	if m == nil {
		return agent.Text("echo: " + t.Text()), nil
	}
	s, err := mcp.NewClient(&mcp.Implementation{Name: "obedient", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{
		Endpoint: t.Servers[0].URL, HTTPClient: o.inside, DisableStandaloneSSE: true,
	}, nil)
	if err != nil {
		return agent.Result{}, err
	}
	defer s.Close()
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: m[1], Arguments: map[string]any{"by": 3}})
	if err != nil {
		return agent.Result{}, err
	}
	res := agent.Text(fmt.Sprintf("it says %v", r.Content))
	res.Usage = &wire.AgentUsage{ToolCallCount: new(int64(1))}
	return res, nil
}

func (o obedient) agent() *agent.Agent {
	return agent.New("obedient", o.run, agent.WithLookup(func(string) (string, bool) { return "", false }), agent.WithDescription("Does as it is told."),
		agent.WithModes([]string{"text", "image/png"}, []string{"text"}), agent.WithConfig(obedientConfig{}), agent.WithMCP(), agent.WithSkills("", nil),
		agent.WithTrajectory(), agent.WithPeers(), agent.WithInstall(map[string]any{"commands": []string{"true"}}),
		agent.WithSnapshots(func(context.Context, *agent.Snapshot) error { return nil }, func(context.Context, *agent.Saved) (string, error) { return "", nil }))
}

// fault is what a test breaks: requests whose line and body hold all of when are answered by status, or with old replaced by new in the answer, or,
// with asks, in what was asked.
type fault struct {
	when     []string
	asks     bool
	status   int
	old, new string
}

// faulty serves h with a fault that can be changed.
type faulty struct {
	mu sync.Mutex
	f  *fault
	h  http.Handler
}

func (x *faulty) set(f *fault) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.f = f
}

type captured struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (c *captured) WriteHeader(n int)           { c.status = n }
func (c *captured) Write(b []byte) (int, error) { return c.body.Write(b) }

func (x *faulty) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x.mu.Lock()
	f := x.f
	x.mu.Unlock()
	b, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(b))
	line := r.Method + " " + r.URL.Path + " " + string(b)
	if f == nil || slices.ContainsFunc(f.when, func(s string) bool { return !strings.Contains(line, s) }) {
		x.h.ServeHTTP(w, r)
		return
	}
	if f.status != 0 {
		w.WriteHeader(f.status)
		_, _ = io.WriteString(w, "{}")
		return
	}
	if f.asks {
		b = bytes.ReplaceAll(b, []byte(f.old), []byte(f.new))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		x.h.ServeHTTP(w, r)
		return
	}
	c := &captured{ResponseWriter: w, status: 200}
	x.h.ServeHTTP(c, r)
	w.Header().Del("Content-Length")
	w.WriteHeader(c.status)
	_, _ = io.WriteString(w, strings.ReplaceAll(c.body.String(), f.old, f.new))
}

// agentRig is a bench with an environment, an obedient agent in a fake sandbox, one prompt that it answered, and its faults.
func agentRig(t *testing.T) (*steptest.Rig, *faulty) {
	t.Helper()
	x := &faulty{}
	r := steptest.New(t, fake.Options{Programs: map[string]fake.Program{
		"server": program(counter(0)),
		"agent": steptest.AgentProgram(func(ctx context.Context, _ *fake.Proc, inside *http.Client) (http.Handler, func()) {
			a := obedient{inside}.agent()
			h, err := a.Handler()
			if err != nil {
				panic(err)
			}
			x.h = h
			return x, func() { _ = a.Close(ctx) }
		}),
	}})
	r.PutEnv("@local/counter", "counter", `command = ["server"]`)
	stored, err := envstore.Read(t.Context(), r.Store, "@local/counter", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Envs.Deploy(t.Context(), deploy.EnvRequest{Run: steptest.Run, Step: "up", Attempt: 1, Env: stored, CallLog: filepath.Join(t.TempDir(), "calls")}); err != nil {
		t.Fatal(err)
	}
	r.PutAgent("@local/obedient", `command = ["agent"]`)
	for _, name := range []string{step.DefaultAgent, "install-test-agent"} {
		deployed(t, r, deploy.AgentRequest{
			Run: steptest.Run, Step: "agent", Attempt: 1, Trial: 1, Name: name, ID: "@local/obedient", Envs: []string{"@local/counter"}, Settings: deploy.Settings{Role: "clerk"},
			Skills: []deploy.Skill{skillOf("notes")},
		})
	}
	prompted(t, r, "hello", "hello")
	keep(r, step.Child(step.VerificationsPath, "rubric"), `{"score":1,"results":[{"id":"secret_code_inline","score":1},{"id":"recall","score":1},{"id":"responded","score":1},{"id":"half","score":0.5}]}`)
	return r, x
}

func skillOf(name string) deploy.Skill {
	return deploy.Skill{Name: name, Description: "How it is done.", Files: []guest.PutFile{guest.PutBytes("SKILL.md", 0o644, []byte("---\nname: "+name+"\ndescription: How it is done.\n---\nSo."))}}
}

// commits numbers what tests put into context documents, far behind what steps do.
var commits atomic.Int64

// keep puts a value into the context document as a step before would have.
func keep(r *steptest.Rig, path, value string) {
	r.History.Commit(1000+int(commits.Add(1)), []step.Op{{Op: "set", Path: path, Value: json.RawMessage(value)}})
}

func appendTo(r *steptest.Rig, path string, value any) {
	b, err := json.Marshal(value)
	if err != nil {
		r.T.Fatal(err)
	}
	r.History.Commit(1000+int(commits.Add(1)), []step.Op{{Op: "append", Path: path, Value: b}})
}

func deployed(t *testing.T, r *steptest.Rig, q deploy.AgentRequest) *deploy.Agent {
	t.Helper()
	a, err := r.Agents.Deploy(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	appendTo(r, step.AgentsPath, step.Agent{Name: a.Name, ID: a.ID, Step: a.Step})
	return a
}

// prompted has the default agent answer a prompt, as a prompt_agent step would.
func prompted(t *testing.T, r *steptest.Rig, id, text string) {
	t.Helper()
	a, err := r.Agents.Agent(steptest.Run, step.DefaultAgent)
	if err != nil {
		t.Fatal(err)
	}
	f, err := live.Open(live.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	reply, err := a.Runner.Prompt(t.Context(), deploy.Prompt{Parts: []wire.Part{wire.TextPart(text)}, Context: id, Task: id, Record: f})
	if err != nil {
		t.Fatal(err)
	}
	appendTo(r, step.PromptsPath, step.PromptResponse{ID: id, Agent: a.Name, Response: reply.Text, Session: reply.Task, ErrorType: reply.ErrorType, ErrorCode: reply.ErrorCode})
}

// agentSteps are the steps of the validators, by verification.
var agentSteps = map[string]string{
	AgentCard:         `"type": "verify_a2a_agent_card"`,
	AgentIdentity:     `"type": "verify_a2a_agent_config_identity"`,
	AgentRole:         `"type": "verify_a2a_role"`,
	AgentTrajectory:   `"type": "verify_a2a_trajectory"`,
	AgentProtocol:     `"type": "verify_a2a_core_protocol", "prompt_id": "hello"`,
	AgentMCP:          `"type": "verify_a2a_agent_mcp", "poll_interval_seconds": 1`,
	AgentSystemPrompt: `"type": "verify_a2a_system_prompt", "poll_interval_seconds": 1`,
	AgentSkills:       `"type": "verify_a2a_skill_config", "rubric_verifier_id": "rubric"`,
	AgentSnapshot:     `"type": "verify_a2a_snapshot", "rubric_verifier_id": "rubric", "rubric_criterion_id": "recall"`,
	AgentPeers:        `"type": "verify_a2a_peer_agents", "peer_prompt_id": "hello", "expected_token": "hello"`,
	AgentModalities:   `"type": "verify_a2a_modalities", "probes": [{"modality": "text", "prompt_id": "hello", "expected": "HELLO"}]`,
	AgentInstall:      `"type": "verify_a2a_install", "rubric_verifier_id": "rubric"`,
}

// validated makes a validation and answers what failed: "criterion: why".
func validated(t *testing.T, r *steptest.Rig, name, fields string) (failed []string) {
	t.Helper()
	var typ struct{ Type string }
	text := `{"id": "v", "a2a_agent_id": "@local/obedient", ` + fields + `}`
	if err := json.Unmarshal([]byte(text), &typ); err != nil {
		t.Fatal(err)
	}
	r.Must(NewAgentValidators(r.Agents)[typ.Type], text)
	v := r.Verification(name)
	for _, row := range v.Results {
		if row["skipped"] != true && row["result"] != true {
			failed = append(failed, fmt.Sprintf("%s: %s", row["criterion"], row["justification"]))
		}
	}
	if (v.Score == 1) != (len(failed) == 0) || len(v.Results) == 0 {
		t.Errorf("%s: %v %s", name, v.Score, told(v))
	}
	return failed
}

func TestGoodAgent(t *testing.T) {
	r, _ := agentRig(t)
	appendTo(r, step.AgentSnapshotsPath, map[string]string{"agent_name": step.DefaultAgent})
	for _, name := range slices.Sorted(maps.Keys(agentSteps)) {
		if failed := validated(t, r, name, agentSteps[name]); failed != nil {
			t.Errorf("%s: %s", name, failed)
		}
	}
	// The agent is what it was before.
	a, err := r.Agents.Agent(steptest.Run, step.DefaultAgent)
	if err != nil {
		t.Fatal(err)
	}
	c, _, _ := a.A2A()
	card, err := c.Card(t.Context())
	if err != nil || card.Name != "obedient" || card.Description != "Does as it is told." {
		t.Errorf("%s %s %v", card.Name, card.Description, err)
	}
	var got struct{ Config map[string]any }
	if err := c.Operation(t.Context(), &card, wire.URNAgentConfig, "get", nil, &got, false); err != nil || got.Config["role"] != "clerk" {
		t.Errorf("%v %v", got, err)
	}
	var peers struct{ Peers []any }
	if err := c.Operation(t.Context(), &card, wire.URNPeerAgents, "list", nil, &peers, false); err != nil || len(peers.Peers) != 0 {
		t.Errorf("%v %v", peers, err)
	}
	prompted(t, r, "after", question)
	if s := string(r.View().List(step.PromptsPath)[1]); !strings.Contains(s, `"response":"echo: `) {
		t.Errorf("the system prompt stayed: %s", s)
	}
}

// TestBrokenAgent: each fault of the agent fails the row that is about it.
func TestBrokenAgent(t *testing.T) {
	r, x := agentRig(t)
	appendTo(r, step.AgentSnapshotsPath, map[string]string{"agent_name": step.DefaultAgent})
	const card = "GET /.well-known"
	for _, tt := range []struct {
		name, want string
		f          fault
	}{
		{AgentCard, "agent card: both paths, the same", fault{when: []string{"GET /.well-known/agent-card.json"}, status: 404}},
		{AgentCard, "its url is where messages are sent", fault{when: []string{card}, old: `"url":"/a2a"`, new: `"url":"ftp://x/a2a"`}},
		{AgentCard, "its transport is JSONRPC", fault{when: []string{card}, old: `"JSONRPC"`, new: `"GRPC"`}},
		{AgentCard, "its skills can be told apart", fault{when: []string{card}, old: `"skills":[`, new: `"skills":[{"id":"skill-notes","name":"x","description":"y","tags":[]},`}},
		{AgentCard, "its extensions can be called", fault{when: []string{card}, old: `"/ext/agent-config"`, new: `"http://elsewhere/ext"`}},
		{AgentCard, "its extensions can be called", fault{when: []string{card}, old: wire.URNSnapshot, new: wire.URNPeerAgents}},
		{AgentCard, "it says what a card must say", fault{when: []string{card}, old: `"defaultOutputModes":["text"]`, new: `"defaultOutputModes":[]`}},
		{AgentCard, "the card can be read", fault{when: []string{card}, status: 500}},
		{AgentIdentity, "it takes a name and a description", fault{when: []string{"POST /ext/agent-config", "Identity"}, status: 400}},
		{AgentIdentity, "its card says them", fault{when: []string{card}, old: "IdentityName", new: "Other"}},
		{AgentIdentity, "the card can be read", fault{when: []string{card}, status: 500}},
		{AgentRole, "it takes a role", fault{when: []string{"POST /ext/agent-config"}, status: 400}},
		{AgentRole, "it tells its configuration", fault{when: []string{"GET /ext/agent-config"}, status: 405}},
		{AgentRole, "it has the role then", fault{when: []string{"GET /ext/agent-config"}, old: "validator-role", new: "no-role"}},
		{AgentTrajectory, "that of a task that ended", fault{when: []string{"POST /ext/trajectory"}, old: `"trajectory":[{`, new: `"trajectory":[],"x":[{`}},
		{AgentTrajectory, "in pages", fault{when: []string{"POST /ext/trajectory", "after"}, old: `"next":1`, new: `"next":2`}},
		{AgentTrajectory, "in pages", fault{when: []string{"POST /ext/trajectory", "after"}, old: `"completed"`, new: `"running"`}},
		{AgentTrajectory, "that of no task is refused", fault{when: []string{"POST /ext/trajectory", "00000000-"}, status: 200}},
		{AgentProtocol, "tasks/get: an ended task keeps its reply", fault{when: []string{"tasks/get"}, old: `"role":"agent"`, new: `"role":"user"`}},
		{AgentProtocol, "tasks/get: an ended task keeps its reply", fault{when: []string{"tasks/get"}, old: `"completed"`, new: `"working"`}},
		{AgentProtocol, "tasks/cancel: an ended task is refused", fault{when: []string{"tasks/cancel"}, old: "-32002", new: "-32603"}},
		{AgentProtocol, "message/send: a message without parts is refused", fault{when: []string{`"parts":[]`}, old: "-32602", new: "-32603"}},
		{AgentProtocol, "any: an unknown task", fault{when: []string{"tasks/get", "00000000-"}, old: "-32001", new: "-32002"}},
		{AgentMCP, "it takes MCP servers", fault{when: []string{"GET /ext/mcp-config"}, status: 404}},
		{AgentMCP, "it calls the tool that it is asked to call", fault{when: []string{"tasks/get"}, old: `"completed"`, new: `"failed"`}},
		{AgentMCP, "it calls the tool that it is asked to call", fault{when: []string{"message/send"}, status: 400}},
		{AgentMCP, "it calls the tool that it is asked to call", fault{when: []string{"message/send"}, asks: true, old: "Call the tool", new: "Look at"}},
		{AgentSystemPrompt, "the system prompt reaches its model", fault{when: []string{"POST /ext/agent-config"}, asks: true, old: "VALIDATOR-SP", new: "OTHER"}},
		{AgentSkills, "it lists them", fault{when: []string{"GET /ext/skill-config"}, old: `"skills":{"notes"`, new: `"skills":{},"x":{"y"`}},
		{AgentPeers, "peers are set", fault{when: []string{"POST /ext/peer-agents", "probe"}, status: 400}},
		{AgentPeers, "they are listed", fault{when: []string{"GET /ext/peer-agents"}, old: `"probe"`, new: `"other"`}},
		{AgentPeers, "it calls them by tools of its own", fault{when: []string{"GET /ext/mcp-config"}, old: "/ext/peer-agents/mcp", new: "/other"}},
	} {
		t.Run(tt.name+"/"+tt.want, func(t *testing.T) {
			x.set(&tt.f)
			defer x.set(nil)
			failed := validated(t, r, tt.name, agentSteps[tt.name])
			if !slices.ContainsFunc(failed, func(s string) bool { return strings.HasPrefix(s, tt.want+": ") }) {
				t.Errorf("%q", failed)
			}
		})
	}
	// What steps before left says the rest.
	for _, tt := range []struct{ name, fields, want string }{
		{AgentProtocol, `"type": "verify_a2a_core_protocol", "prompt_id": "none"`, "message/send: the prompt was taken: no step before has the reply to the prompt 'none'"},
		{AgentProtocol, `"type": "verify_a2a_core_protocol", "prompt_id": "bad"`, "tasks/get: the task ended with a reply: agent_error: x: y"},
		{AgentSkills, `"type": "verify_a2a_skill_config", "rubric_verifier_id": "none"`, "a skill given as text counts: no step before left the verification 'none'"},
		{AgentSnapshot, `"type": "verify_a2a_snapshot", "rubric_verifier_id": "rubric", "rubric_criterion_id": "half"`, "an agent made of it remembers: the judge scored 'half' 0.5"},
		{AgentSnapshot, `"type": "verify_a2a_snapshot", "rubric_verifier_id": "rubric", "rubric_criterion_id": "no"`, "an agent made of it remembers: the verification 'rubric' says nothing of 'no'"},
		{AgentPeers, `"type": "verify_a2a_peer_agents", "peer_prompt_id": "hello", "expected_token": "T"`, "a peer's word reaches the reply: the reply doesn't hold 'T': echo: hello"},
		{AgentModalities, `"type": "verify_a2a_modalities", "probes": [{"modality": "image/png", "prompt_id": "hello", "expected": "red"}]`, "it reads image/png: the reply doesn't hold 'red': echo: hello"},
		{AgentModalities, `"type": "verify_a2a_modalities", "probes": [{"modality": "audio/wav", "prompt_id": "bad", "expected": "red"}]`, "it reads audio/wav: agent_error: x: y"},
		{AgentModalities, `"type": "verify_a2a_modalities", "probes": [{"modality": "video/mp4", "prompt_id": "none", "expected": "red"}]`, "it reads video/mp4: no step before has the reply to the prompt 'none'"},
		{AgentInstall, `"type": "verify_a2a_install", "agent_name": "nobody"`, "it was installed: no step before left an agent 'nobody'"},
	} {
		if tt.name == AgentProtocol || tt.name == AgentModalities {
			appendTo(r, step.PromptsPath, step.PromptResponse{ID: "bad", Agent: step.DefaultAgent, ErrorType: "agent_error", ErrorCode: "x", ErrorMessage: "y"})
		}
		if failed := validated(t, r, tt.name, tt.fields); !slices.Equal(failed, []string{tt.want}) {
			t.Errorf("%s: %q\nwant %q", tt.name, failed, tt.want)
		}
	}
}

// TestNoAgent: a validator fails when there is nothing to look at, and an agent of the program's own is checked as far as that goes.
func TestNoAgent(t *testing.T) {
	r := steptest.New(t, fake.Options{})
	all := NewAgentValidators(r.Agents)
	if err := r.Do(all["verify_a2a_role"], `{"id": "v", "type": "verify_a2a_role", "a2a_agent_id": "loop"}`); steptest.ErrorType(err) != "NotFoundError" || !strings.Contains(err.Error(), "deploy_agent") {
		t.Error(err)
	}
	deployed(t, r, deploy.AgentRequest{Run: steptest.Run, Step: "agent", Attempt: 1, Trial: 1, Name: "a", ID: "loop"})
	for name, want := range map[string]string{
		AgentCard: "the agent's card: skipped (" + inProcess + ")", AgentRole: "it takes a role: skipped (" + inProcess + ")",
		AgentIdentity: "it takes a name and a description: skipped (" + inProcess + ")",
	} {
		r.Must(all["verify_"+name], `{"id": "v", "a2a_agent_id": "loop", `+agentSteps[name]+`}`)
		if v := r.Verification(name); told(v) != want || v.Score != 1 {
			t.Errorf("%s: %s", name, told(v))
		}
	}
	for _, name := range []string{AgentTrajectory, AgentMCP} {
		if err := r.Do(all["verify_"+name], `{"id": "v", "a2a_agent_id": "loop", `+agentSteps[name]+`}`); steptest.ErrorType(err) != "NotFoundError" {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.PutFile("@local/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[{"say":"I have none."}]}]}`})
	r.Settings.Default = "scripted:@local/talk"
	r.Must(all["verify_a2a_system_prompt"], `{"id": "v", "a2a_agent_id": "loop", `+agentSteps[AgentSystemPrompt]+`}`)
	if v := r.Verification(AgentSystemPrompt); v.Score != 0 || !strings.HasSuffix(told(v), "the system prompt reaches its model: the reply doesn't hold the token: I have none.") {
		t.Error(told(v))
	}
}

func TestEasiest(t *testing.T) {
	var tools []json.RawMessage
	for _, s := range []string{`{"name":"z","inputSchema":{}}`, `{"name":"b","inputSchema":{"required":["x"]},"annotations":{"readOnlyHint":true}}`, `7`, `{"name":"d","annotations":{"destructiveHint":true}}`, `{"name":"m"}`} {
		tools = append(tools, json.RawMessage(s))
		want := map[int]string{1: "z", 4: "z", 5: "m"}[len(tools)]
		if got := easiest(tools); want != "" && got != want {
			t.Errorf("of %s: %s, want %s", tools, got, want)
		}
	}
}

func FuzzCountCalls(f *testing.F) {
	f.Add([]byte("{\"event_type\":\"tool_call\",\"role\":\"clerk\"}\n{\"event_type\":\"tool_call\",\"role\":\"boss\"}\n{\"event"))
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := countCalls(bytes.NewReader(b), "clerk")
		if err != nil || n > bytes.Count(b, []byte("\n")) {
			t.Error(n, err)
		}
	})
}

func FuzzCardRows(f *testing.F) {
	f.Add([]byte(`{"url":"/a2a","skills":[{"id":"x"}],"capabilities":{"extensions":[{"uri":"urn:agentenv:role/v1","params":{"endpoint":"x","methods":{"a":{"method":"PATCH"}}}}]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := wire.ParseAgentCard(b)
		if err != nil {
			return
		}
		for _, row := range cardRowsOf(&c) {
			if (row["result"] == true) != (row["justification"] == "") {
				t.Error(row)
			}
		}
	})
}
