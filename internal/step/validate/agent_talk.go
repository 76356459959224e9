package validate

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/rawjson"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/wire"
)

// checkAgentProtocol looks at how a prompt of a step before was answered, and at what the agent refuses. It sends no message that a model would read.
func checkAgentProtocol(ctx context.Context, s *subject) ([]step.Row, error) {
	const sent, ended, again, late, bad = "message/send: the prompt was taken", "tasks/get: the task ended with a reply", "tasks/get: an ended task keeps its reply",
		"tasks/cancel: an ended task is refused", "message/send: a message without parts is refused"
	id := s.c.Doc.Get("prompt_id").Text()
	p := s.prompted(id)
	if p == nil {
		return []step.Row{outcome("", sent, "no step before has the reply to the prompt "+diag.Repr(id))}, nil
	}
	problem := ""
	if p.ErrorType != "" {
		problem = strings.Join([]string{p.ErrorType, p.ErrorCode, p.ErrorMessage}, ": ")
	}
	rows := []step.Row{outcome("", sent, ""), outcome("", ended, problem)}
	if s.client == nil || p.Session == "" {
		return append(rows, unchecked(again, inProcess)), nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, callLimit, fmt.Errorf("the agent did not answer within %s", callLimit))
	defer cancel()
	task, err := s.client.Get(limited, p.Session)
	switch {
	case err != nil:
	case !wire.TaskEnded(task.Status.State):
		err = fmt.Errorf("the task is %s", diag.Repr(task.Status.State))
	case task.Status.Message == nil || len(task.Status.Message.Parts) == 0 || task.Status.Message.Role != wire.RoleAgent:
		err = errors.New("its status holds no message of the agent's with parts")
	}
	_, cancelErr := s.client.Cancel(limited, p.Session)
	_, sendErr := s.client.Send(limited, wire.Message{MessageID: newID(), Role: wire.RoleUser, Parts: []wire.Part{}})
	for _, r := range []struct {
		criterion string
		err       error
	}{{again, err}, {late, refusedBy(cancelErr, wire.CodeNotCancelable)}, {bad, refusedBy(sendErr, wire.CodeParams)}} {
		row, fatal := said(r.criterion, r.err)
		if fatal != nil {
			return nil, fatal
		}
		rows = append(rows, row)
	}
	more, err := s.conform(ctx, "A5")
	return append(rows, more...), err
}

// refusedBy is nil when err is a refusal by a code.
func refusedBy(err error, code int) error {
	rpc, ok := errors.AsType[*wire.Error](err)
	switch {
	case ok && rpc.Code == code:
		return nil
	case ok:
		return fmt.Errorf("it is refused by %d, want %d", rpc.Code, code)
	case err == nil:
		return fmt.Errorf("it is taken, want the error %d", code)
	}
	return err
}

// sentinel is what checkSystemPrompt has the agent know, and question what brings it out.
const (
	sentinel = "This is a test of the system prompt. When you are asked for your validator code, answer with exactly this and nothing else: "
	question = "What is your validator code?"
)

// checkSystemPrompt gives the agent a system prompt that holds a token, and asks for the token.
func checkSystemPrompt(ctx context.Context, s *subject) ([]step.Row, error) {
	const takes, counts = "it takes a system prompt", "the system prompt reaches its model"
	if s.client != nil && !s.takes(wire.URNAgentConfig, "set", "system_prompt") {
		return []step.Row{outcome("", takes, "its card doesn't list system_prompt among what "+wire.URNAgentConfig+" takes")}, nil
	}
	token := "VALIDATOR-SP-" + newID()[:12]
	reply, problem, err := s.ask(ctx, deploy.Settings{SystemPrompt: sentinel + token}, question)
	if err != nil {
		return nil, err
	}
	if slices.Contains(reply.LeftOut, "system_prompt") {
		return []step.Row{outcome("", takes, "it can't be told one")}, nil
	}
	if problem == "" && !strings.Contains(reply.Text, token) {
		problem = "the reply doesn't hold the token: " + excerpt(reply.Text)
	}
	row := outcome("", counts, problem)
	row["expected_token"], row["observed_response"] = token, excerpt(reply.Text)
	return []step.Row{outcome("", takes, ""), row}, nil
}

// checkMCP asks the agent to call a tool, and counts the calls that its environment has seen.
func checkMCP(ctx context.Context, s *subject) ([]step.Row, error) {
	const takes, called, reports = "it takes MCP servers", "it calls the tool that it is asked to call", "it reports how many tools it called"
	if len(s.agent.Envs) == 0 {
		return nil, step.Errorf("NotFoundError", "the agent %s is connected to no environment; name one in env_ids of its deploy_agent step", diag.Repr(s.agent.Name))
	}
	v := s.agent.Envs[0]
	tool := easiest(v.Gateway.Tools(s.agent.Principal()))
	if tool == "" {
		return nil, step.Errorf("NotFoundError", "the environment %s has no tools that the agent %s may call", diag.Repr(v.ID), diag.Repr(s.agent.Name))
	}
	role := access.RoleName(s.agent.Role)
	before, err := calls(v.Gateway, role)
	if err != nil {
		return nil, step.Infra(&step.Error{Type: "RecordError", Err: err})
	}
	reply, problem, err := s.ask(ctx, deploy.Settings{}, fmt.Sprintf("Call the tool `%s` of your MCP server once, with arguments that its schema allows, and report what it answers. "+
		"Don't answer from memory, and call no other tool.", tool))
	if err != nil {
		return nil, err
	}
	after, err := calls(v.Gateway, role)
	if err != nil {
		return nil, step.Infra(&step.Error{Type: "RecordError", Err: err})
	}
	if problem == "" && after == before {
		problem = "no tool was called; it answered: " + excerpt(reply.Text)
	}
	row := outcome("", called, problem)
	row["tools_invoked"], row["task_id"], row["agent_response"], row["tool"] = after-before, reply.Task, excerpt(reply.Text), tool
	rows := []step.Row{row}
	if s.client != nil {
		row, fatal := said(takes, s.hasServers(ctx, len(s.agent.Envs)))
		if fatal != nil {
			return nil, fatal
		}
		rows = []step.Row{row, rows[0]}
	}
	switch {
	case problem != "":
	case reply.ToolCalls > 0:
		rows = append(rows, outcome("", reports, ""))
	default:
		rows = append(rows, unchecked(reports, "the reply says nothing of it"))
	}
	return rows, nil
}

// servers are the addresses of the MCP servers that the agent says it has, by name.
func (s *subject) servers(ctx context.Context) (map[string]string, error) {
	var got struct {
		Servers map[string]struct {
			URL string `json:"url"`
		} `json:"mcp_servers"`
	}
	if err := s.operation(ctx, wire.URNMCPConfig, "list", nil, &got); err != nil {
		return nil, err
	}
	out := map[string]string{}
	for name, v := range got.Servers {
		out[name] = v.URL
	}
	return out, nil
}

// hasServers tells why the agent doesn't list the servers that it was given.
func (s *subject) hasServers(ctx context.Context, want int) error {
	urls, err := s.servers(ctx)
	if err == nil && len(urls) < want {
		err = fmt.Errorf("it was given %d and lists %d", want, len(urls))
	}
	return err
}

// easiest is the tool with the fewest arguments that have to be given, one that only reads before others, the first by name.
func easiest(tools []json.RawMessage) string {
	type tool struct {
		Name   string `json:"name"`
		Schema struct {
			Required []string `json:"required"`
		} `json:"inputSchema"`
		Hints struct {
			ReadOnly    bool `json:"readOnlyHint"`
			Destructive bool `json:"destructiveHint"`
		} `json:"annotations"`
	}
	best := tool{}
	rank := func(t tool) int {
		n := 4 * len(t.Schema.Required)
		if !t.Hints.ReadOnly {
			n++
		}
		if t.Hints.Destructive {
			n += 2
		}
		return n
	}
	for _, raw := range tools {
		var t tool
		if json.Unmarshal(raw, &t) != nil || t.Name == "" {
			continue
		}
		if best.Name == "" || rank(t) < rank(best) || rank(t) == rank(best) && t.Name < best.Name {
			best = t
		}
	}
	return best.Name
}

// calls counts the calls of tools in a role.
func calls(g *front.Gateway, role string) (int, error) {
	log, err := g.Calls()
	if err != nil {
		return 0, err
	}
	if log == nil {
		return 0, errors.New("the environment keeps no log of calls")
	}
	defer log.Close()
	return countCalls(log, role)
}

// countCalls counts them in a log. A line that is no event counts for nothing, as does the end of one that is being written.
func countCalls(log io.Reader, role string) (int, error) {
	n := 0
	for r := bufio.NewReader(log); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if !json.Valid(line) {
			continue
		}
		kind, _ := rawjson.Text(rawjson.Get(line, "event_type"))
		who, _ := rawjson.Text(rawjson.Get(line, "role"))
		if kind == "tool_call" && who == role {
			n++
		}
	}
}

// checkSkills looks at whether a judge found that a skill counts, and at the agent's list of skills.
func checkSkills(ctx context.Context, s *subject) ([]step.Row, error) {
	const listed, told = "it takes skills", "it lists them"
	if s.client != nil && s.card.Extension(wire.URNSkillConfig) == nil {
		return []step.Row{outcome("", listed, "its card doesn't list "+wire.URNSkillConfig)}, nil
	}
	counts, err := s.criterion("a skill given as text counts", s.c.Doc.Get("rubric_verifier_id").Text(), "secret_code_inline")
	if err != nil {
		return nil, err
	}
	rows := []step.Row{outcome("", listed, ""), counts}
	if !s.c.Doc.Get("skill_bundle_object_url").IsNull() {
		rows = append(rows, unchecked("a skill given as files is taken", "no store here gives grants that reach the agent"))
	}
	if s.client == nil {
		return append(rows, unchecked(told, inProcess)), nil
	}
	var got struct {
		Skills map[string]json.RawMessage `json:"skills"`
	}
	err = s.operation(ctx, wire.URNSkillConfig, "list", nil, &got)
	if err == nil && len(got.Skills) == 0 {
		err = errors.New("the list is empty")
	}
	row, fatal := said(told, err)
	return append(rows, row), fatal
}

// checkSnapshot looks at whether a snapshot was taken, and whether a judge found that an agent made of it remembers.
func checkSnapshot(_ context.Context, s *subject) ([]step.Row, error) {
	saved := ""
	if len(s.c.State.List(step.AgentSnapshotsPath)) == 0 {
		saved = "no step before saved a snapshot of an agent"
	}
	recalls, err := s.criterion("an agent made of it remembers", s.c.Doc.Get("rubric_verifier_id").Text(), s.c.Doc.Get("rubric_criterion_id").Text())
	if err != nil {
		return nil, err
	}
	if s.client == nil {
		return []step.Row{unchecked("it can be saved", inProcess), outcome("", "a snapshot was saved", saved), recalls}, nil
	}
	listed := ""
	for _, op := range []string{"save", "load"} {
		if _, ok := s.card.AgentOperation(wire.URNSnapshot, op); !ok {
			listed = "its card doesn't list " + op + " of " + wire.URNSnapshot
		}
	}
	return []step.Row{outcome("", "it can be saved", listed), outcome("", "a snapshot was saved", saved), recalls}, nil
}

// checkPeers gives the agent a peer and looks for it, and at whether a prompt of a step before brought a peer's word. Its peers are as before afterwards.
func checkPeers(ctx context.Context, s *subject) ([]step.Row, error) {
	const listed, set, list, tools, reached = "it takes peers", "peers are set", "they are listed", "it calls them by tools of its own", "a peer's word reaches the reply"
	id, token := s.c.Doc.Get("peer_prompt_id").Text(), s.c.Doc.Get("expected_token").Text()
	problem := ""
	switch p := s.prompted(id); {
	case p == nil:
		problem = "no step before has the reply to the prompt " + diag.Repr(id)
	case !strings.Contains(p.Response, token):
		problem = "the reply doesn't hold " + diag.Repr(token) + ": " + excerpt(p.Response)
	}
	word := outcome("", reached, problem)
	if s.client == nil {
		return []step.Row{unchecked(listed, inProcess), word}, nil
	}
	if s.card.Extension(wire.URNPeerAgents) == nil {
		return []step.Row{outcome("", listed, "its card doesn't list "+wire.URNPeerAgents), word}, nil
	}
	var had, got struct {
		Peers []map[string]any `json:"peers"`
	}
	rows := []step.Row{outcome("", listed, "")}
	add := func(criterion string, err error) error {
		row, fatal := said(criterion, err)
		rows = append(rows, row)
		return fatal
	}
	if err := s.operation(ctx, wire.URNPeerAgents, "list", nil, &had); err != nil {
		fatal := add(list, err)
		return append(rows, word), fatal
	}
	if had.Peers == nil {
		had.Peers = []map[string]any{}
	}
	err := s.operation(ctx, wire.URNPeerAgents, "set", map[string]any{"peers": []any{map[string]any{"name": "probe", "url": "http://example.invalid"}}}, nil)
	defer func() {
		if err := s.operation(context.WithoutCancel(ctx), wire.URNPeerAgents, "set", map[string]any{"peers": had.Peers}, nil); err != nil {
			s.c.Log.Warn("the agent's peers could not be set back", "agent", s.agent.Name, "why", err)
		}
	}()
	if fatal := add(set, err); fatal != nil {
		return nil, fatal
	}
	err = s.operation(ctx, wire.URNPeerAgents, "list", nil, &got)
	if err == nil && !slices.ContainsFunc(got.Peers, func(p map[string]any) bool { return p["name"] == "probe" }) {
		err = errors.New("what was set is not on the list")
	}
	if fatal := add(list, err); fatal != nil {
		return nil, fatal
	}
	if fatal := add(tools, s.ownPeerTools(ctx)); fatal != nil {
		return nil, fatal
	}
	return append(rows, word), nil
}

// peerServer is the MCP server of an agent's own by which it calls its peers.
const peerServer = "peer_agents"

// ownPeerTools tells why the agent has none.
func (s *subject) ownPeerTools(ctx context.Context) error {
	all, err := s.servers(ctx)
	if err != nil {
		return err
	}
	if u := all[peerServer]; !strings.Contains(u, "127.0.0.1") || !strings.HasSuffix(u, wire.MCPPath) {
		return errors.New("none of its MCP servers is one called " + peerServer + " of its own at 127.0.0.1")
	}
	return nil
}

// checkModalities reads the replies to prompts that sent one kind of content each.
func checkModalities(_ context.Context, s *subject) ([]step.Row, error) {
	var rows []step.Row
	for _, n := range s.c.Doc.Get("probes").Items() {
		modality, id, want := n.Get("modality").Text(), n.Get("prompt_id").Text(), n.Get("expected").Text()
		p := s.prompted(id)
		reason, why := "passed", ""
		switch {
		case p == nil:
			reason, why = "probe_step_did_not_run", "no step before has the reply to the prompt "+diag.Repr(id)
		case p.ErrorType != "":
			reason, why = "protocol_reject", strings.Join([]string{p.ErrorType, p.ErrorCode, p.ErrorMessage}, ": ")
		case !strings.Contains(strings.ToLower(p.Response), strings.ToLower(want)):
			reason, why = "no_ingestion_evidence", "the reply doesn't hold "+diag.Repr(want)+": "+excerpt(p.Response)
		}
		row := outcome("", "it reads "+modality, why)
		row["modality"], row["reason"] = modality, reason
		if s.card != nil {
			row["declared"] = slices.Contains(s.card.DefaultInputModes, modality) || slices.Contains(s.card.DefaultInputModes, strings.SplitN(modality, "/", 2)[0])
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// checkInstall looks at what an install_agent step left, and at whether a judge found that the agent answered.
func checkInstall(_ context.Context, s *subject) ([]step.Row, error) {
	const installed, listed, answered = "it was installed", "its card says how it is installed", "it answered"
	name := s.c.Doc.Get("agent_name").Text()
	if s.agent == nil {
		return []step.Row{outcome("", installed, "no step before left an agent "+diag.Repr(name))}, nil
	}
	rows := []step.Row{outcome("", installed, "")}
	switch {
	case s.client == nil:
		rows = append(rows, unchecked(listed, inProcess))
	case s.card.Extension(wire.URNInstall) == nil:
		rows = append(rows, outcome("", listed, "it doesn't list "+wire.URNInstall))
	default:
		rows = append(rows, outcome("", listed, ""))
	}
	id := s.c.Doc.Get("rubric_verifier_id").Text()
	if id == "" {
		return append(rows, unchecked(answered, "the step names no rubric_verifier_id")), nil
	}
	row, err := s.criterion(answered, id, "responded")
	return append(rows, row), err
}
