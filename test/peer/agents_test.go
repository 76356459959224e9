//go:build integration

package peer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/exampleserver"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
	"agentenv.internal/agentenv/sdk/wire"
)

// fakeModel answers as the validators' prompts want a good model to.
func fakeModel(q modeltest.Asked) modeltest.Answer {
	text := q.Flat()
	list, _ := q.Body["messages"].([]any)
	last, _ := list[len(list)-1].(map[string]any)
	said := fmt.Sprint(last["content"])
	tool := func(name, args string) modeltest.Answer {
		raw, err := json.Marshal(q.Body["tools"])
		if err != nil {
			panic(err)
		}
		full := regexp.MustCompile(`mcp__\w+__` + name).FindString(string(raw))
		return modeltest.Call("c1", full, args)
	}
	find := func(pattern string) modeltest.Answer {
		return modeltest.Say(regexp.MustCompile(pattern).FindString(text))
	}
	switch {
	case last["role"] == "tool":
		return modeltest.Say("The tool said: " + said)
	case strings.Contains(said, "validator code"):
		return find(`VALIDATOR-SP-\w+`)
	case strings.Contains(said, "search_emails"):
		return tool("search_emails", `{"query":"invoice"}`)
	case strings.Contains(said, "secret code"):
		return find(`SKILL-\d+`)
	case strings.Contains(said, "asked me to remember") || strings.Contains(said, "ask you to remember"):
		return find(`SNAPSHOT-TOKEN-\d+`)
	case strings.Contains(said, "Ask the peer"):
		return tool("peer_send_message", `{"name":"other","prompt":"What is your token?"}`)
	case strings.Contains(said, "your token"):
		return modeltest.Say("It is PEERTOKEN-9.")
	}
	return modeltest.Say("hello")
}

// goAgent serves an agent, plainly and over TLS, as a front end would: grants of the peer's stores name addresses of https alone.
func goAgent(t *testing.T, name string, m model.Model) (plain, secure string, cert []byte) {
	t.Helper()
	a := (&modelled{model: m, talks: map[string][]model.Message{}}).agent(name)
	h, err := a.Handler()
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(h)
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	front := httptest.NewTLSServer(httputil.NewSingleHostReverseProxy(u))
	t.Cleanup(func() {
		if err := a.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		front.Close()
		srv.Close()
	})
	return srv.URL, front.URL, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: front.Certificate().Raw})
}

// TestPeerValidatesGoAgent: the peer's own steps and validators, with a fake model's endpoint behind, find nothing wrong with an agent in Go.
func TestPeerValidatesGoAgent(t *testing.T) {
	endpoint := modeltest.New(t, fakeModel)
	m, err := model.New(model.Endpoint{Dialect: model.OpenAI, BaseURL: endpoint.URL}, model.Patience{})
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int64
	mail := exampleserver.New("mail-mcp", nothing)
	h, err := mail.Handler()
	if err != nil {
		t.Fatal(err)
	}
	env := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/calls" {
			fmt.Fprint(w, calls.Load())
			return
		}
		if strings.HasPrefix(r.URL.Path, "/mcp") && r.Method == http.MethodPost {
			calls.Add(1)
		}
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		if err := mail.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
		env.Close()
	})
	_, main, cert := goAgent(t, "main", m)
	otherPlain, _, _ := goAgent(t, "other", m)
	_, fresh, _ := goAgent(t, "fresh", m)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: trust(t, cert), DisableKeepAlives: true}}
	if resp, err := client.Post(main+"/ext/mcp-config", "application/json", strings.NewReader(`{"url":"`+env.URL+`/mcp","name":"mail"}`)); err != nil || resp.StatusCode != 200 {
		t.Fatal(resp, err)
	}
	home := t.TempDir()
	ca := filepath.Join(home, "ca.pem")
	if err := os.WriteFile(ca, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(peerBin(t), "python"), "testdata/validators.py", main, otherPlain, fresh, env.URL+"/calls")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+home, "XDG_CACHE_HOME="+home, "SSL_CERT_FILE="+ca, "PYTHONDONTWRITEBYTECODE=1")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	checkVerdicts(t, out, stderr.String())
}

func checkVerdicts(t *testing.T, out []byte, stderr string) {
	t.Helper()
	var got struct {
		Errors        map[string]string
		Verifications map[string]any
		Loaded        string
		Responses     map[string][]any
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for step, why := range got.Errors {
		t.Errorf("the step %s: %s", step, why)
	}
	at := func(path string) any {
		var v any = got.Verifications
		for k := range strings.SplitSeq(path, ".") {
			m, _ := v.(map[string]any)
			v = m[k]
		}
		return v
	}
	for _, path := range []string{
		"a2a_role.passed", "a2a_system_prompt.passed", "a2a_agent_mcp.passed", "a2a_trajectory.inline", "a2a_trajectory.objects",
		"a2a_core_protocol.message/send.supported", "a2a_core_protocol.tasks/get.supported", "a2a_skill_config.inline", "a2a_skill_config.bundle", "a2a_skill_config.list",
		"a2a_snapshot.extension_advertised", "a2a_snapshot.save", "a2a_peer_agents.supported", "a2a_modalities.input.text.supported", "a2a_install.advertised", "a2a_agent_config_identity.supported",
	} {
		if at(path) != true {
			t.Errorf("%s: %v", path, at(path))
		}
	}
	if got.Loaded != "SNAPSHOT-TOKEN-42" {
		t.Errorf("a loaded snapshot recalls %q", got.Loaded)
	}
	if t.Failed() {
		t.Logf("%s\n%s", out, stderr)
	}
}

// TestClientDrivesPeerAgent: our client asks an agent on the peer's SDK, cancels it, and uses its extensions.
func TestClientDrivesPeerAgent(t *testing.T) {
	c, err := a2a.New(pythonServer(t, filepath.Join("testdata", "agent.py")), nil)
	if err != nil {
		t.Fatal(err)
	}
	var card wire.AgentCard
	for end := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if card, err = c.Card(t.Context()); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil || card.Name != "told" || len(card.Missing()) > 0 {
		t.Fatalf("%+v %v", card, err)
	}
	ask := func(text string) (wire.Task, error) {
		return c.Ask(t.Context(), wire.Message{MessageID: text, Role: wire.RoleUser, Parts: []wire.Part{wire.TextPart(text)}, ContextID: "ctx"}, a2a.Wait{Every: 50 * time.Millisecond})
	}
	for text, want := range map[string]wire.Reply{"hello": {Text: "hello"}, "fail": {ErrorType: wire.AgentError, ErrorCode: "told.refused"}, "crash": {ErrorType: wire.InfraError}} {
		task, err := ask(text)
		if err != nil {
			t.Fatal(err)
		}
		if r := wire.ReadReply(task.Status.Message); want.Text != "" && r.Text != want.Text || r.ErrorType != want.ErrorType || want.ErrorCode != "" && r.ErrorCode != want.ErrorCode {
			t.Errorf("%s: %+v", text, r)
		}
	}
	slow, err := c.Send(t.Context(), wire.Message{MessageID: "s", Role: wire.RoleUser, Parts: []wire.Part{wire.TextPart("dawdle")}})
	if err != nil {
		t.Fatal(err)
	}
	if slow, err = c.Cancel(t.Context(), slow.ID); err != nil || slow.Status.State != wire.TaskCanceled {
		t.Errorf("%+v %v", slow.Status, err)
	}
	for _, op := range []struct {
		uri, name string
		in        map[string]any
	}{
		{wire.URNAgentConfig, "set", map[string]any{"role": "solver"}},
		{wire.URNMCPConfig, "add", map[string]any{"url": "http://127.0.0.1:9/mcp", "name": "mail"}},
		{wire.URNSkillConfig, "add", map[string]any{"name": "s", "description": "d", "skill_md": "# s"}},
		{wire.URNTrajectory, "get", map[string]any{"context_id": "ctx", "after": 0, "limit": 10}},
		{wire.URNTriggers, "state", nil},
	} {
		var out map[string]any
		if err := c.Operation(t.Context(), &card, op.uri, op.name, op.in, &out, false); err != nil || len(out) == 0 {
			t.Errorf("%s %s: %v %v", op.uri, op.name, out, err)
		}
	}
}

func trust(t *testing.T, cert []byte) *tls.Config {
	t.Helper()
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(cert) {
		t.Fatal("no certificate")
	}
	return &tls.Config{RootCAs: pool}
}
