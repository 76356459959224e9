package deploy_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/act"
	"agentenv.internal/agentenv/internal/step/control"
	"agentenv.internal/agentenv/internal/step/data"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/step/world"
)

// agentBench is a bench with real sandboxes and a stored agent, @local/talker, written with sdk/agent.
type agentBench struct {
	*steptest.Rig
	start  *world.DeployAgent
	prompt *act.PromptAgent
	n      int
}

func agents(t *testing.T) *agentBench {
	t.Helper()
	r := steptest.With(t, localProvider(t, nil))
	r.PutAgent("@local/talker", `command = ["agent-env", "serve", "talker"]`)
	return &agentBench{Rig: r, start: world.NewDeployAgent(r.Agents, r.Store), prompt: act.NewPromptAgent(r.Agents, r.Envs, r.Objects(), r.Store)}
}

func (b *agentBench) up(name, fields string) {
	b.T.Helper()
	b.Must(b.start, fmt.Sprintf(`{"id": "deploy-%s", "type": "deploy_agent", "agent_name": %q, "a2a_agent_id": "@local/talker"%s}`, name, name, fields))
}

// ask prompts an agent and answers what is on record of it.
func (b *agentBench) ask(name, text, fields string) (step.PromptResponse, error) {
	b.T.Helper()
	b.n++
	err := b.Do(b.prompt, fmt.Sprintf(`{"id": "p%d", "type": "prompt_agent", "agent_name": %q, "prompt": %q, "poll_interval_seconds": 0.02%s}`, b.n, name, text, fields))
	all := b.View().List(step.PromptsPath)
	if len(all) == 0 {
		b.T.Fatalf("nothing is on record: %v", err)
	}
	var p step.PromptResponse
	if err := json.Unmarshal(all[len(all)-1], &p); err != nil {
		b.T.Fatal(err)
	}
	return p, err
}

func (b *agentBench) says(name, text, want, fields string) step.PromptResponse {
	b.T.Helper()
	p, err := b.ask(name, text, fields)
	if err != nil || !strings.Contains(p.Response, want) {
		b.T.Fatalf("%s: %q answered %q, want %q: %v\n%s", name, text, p.Response, want, err, b.Log())
	}
	return p
}

// list decodes the elements of a list of the context document.
func list[T any](b *agentBench, path string) (out []T) {
	b.T.Helper()
	for _, raw := range b.View().List(path) {
		var v T
		if err := json.Unmarshal(raw, &v); err != nil {
			b.T.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// Agents in sandboxes of their own ask each other, and the built-in one.
func TestPeers(t *testing.T) {
	b := agents(t)
	b.up("one", "")
	b.up("two", "")
	b.PutFile("@local/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[
		{"calls":[{"tool":"peer_list","args":{}}]},{"calls":[{"tool":"peer_send_message","args":{"name":"one","prompt":"say from the loop"}}]},{"say":"heard: ${last}"}]}]}`})
	b.Must(b.start, `{"id": "loop", "type": "deploy_agent", "agent_name": "loop", "a2a_agent_id": "loop"}`)
	peer := control.NewPeerAgents(b.Agents)
	for text, want := range map[string]string{
		`[{"source_agent_name": "none", "peer_agent_names": ["one"]}]`:                                                            "NotFoundError",
		`[{"source_agent_name": "one", "peer_agent_names": ["none"]}]`:                                                            "NotFoundError",
		`[{"source_agent_name": "one", "peer_agent_names": ["two"]}, {"source_agent_name": "one", "peer_agent_names": ["loop"]}]`: "ValueError",
	} {
		if err := b.Do(peer, `{"id": "peer", "type": "peer_agents", "peerings": `+text+`}`); steptest.ErrorType(err) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	b.Must(peer, `{"id": "peer", "type": "peer_agents", "peerings": [{"source_agent_name": "one", "peer_agent_names": ["two"]},
		{"source_agent_name": "two", "peer_agent_names": ["one"]}, {"source_agent_name": "loop", "peer_agent_names": ["one"]}]}`)
	if n := len(list[map[string]any](b, control.PeeringsPath)); n != 3 {
		t.Errorf("%d peerings", n)
	}
	p := b.says("one", "ask two say hello", "hello", "")
	if len(p.Turns) != 1 || len(p.Turns[0].Peers) != 1 {
		t.Fatalf("%+v", p)
	}
	if k := p.Turns[0].Peers[0]; k.Agent != "two" || k.Message != "say hello" || k.Reply != "hello" || k.Trajectory == nil || !strings.Contains(string(b.Read(k.Trajectory.ATIF)), "say hello") {
		t.Errorf("%+v", k)
	}
	// Two that would wait for each other are told so, and nobody hangs.
	b.says("one", "ask two ask one say x", "waiting for your answer", "")
	b.says("one", "ask nobody say x", "there is no peer", "")
	p = b.says("loop", "go", "heard: from the loop", `, "model": "scripted:@local/talk"`)
	if k := p.Turns[0].Peers; len(k) != 1 || k[0].Reply != "from the loop" {
		t.Errorf("%+v", k)
	}
	gone(t, b.Rig)
}

// An agent is saved and another one goes on from there, in a conversation of its own choice.
func TestAgentSnapshots(t *testing.T) {
	b := agents(t)
	b.up("one", "")
	b.says("one", "note first", "noted", `, "context_id": "c", "prompt_id": "q"`)
	b.says("one", "note second", "noted", `, "context_id": "c"`)
	save := data.NewSnapshotAgentState(b.Store, b.Agents, b.Envs)
	for text, want := range map[string]string{`"prompt_id": "none", "agent_name": "one"`: "NotFoundError", `"prompt_id": "q", "agent_name": "none"`: "NotFoundError"} {
		if err := b.Do(save, `{"id": "save", "type": "snapshot_agent_state", `+text+`}`); steptest.ErrorType(err) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	b.Must(save, `{"id": "save", "type": "snapshot_agent_state", "prompt_id": "q", "agent_name": "one", "artifact_id": "@local/saved"}`)
	b.Must(save, `{"id": "save it", "type": "snapshot_agent_state", "prompt_id": "q", "agent_name": "one"}`)
	rows := list[step.AgentSnapshot](b, step.AgentSnapshotsPath)
	if len(rows) != 2 || rows[0].ID != "@local/saved" || rows[0].Version != 1 || rows[0].Context != "c" || rows[1].ID != steptest.Run+"-save-it-agent-state" {
		t.Fatalf("%+v", rows)
	}
	b.says("one", "note third", "noted", `, "context_id": "c"`)
	b.up("two", `, "agent_snapshot_files_artifact_id": "@local/saved", "agent_snapshot_target_context_id": "d"`)
	b.says("two", "notes", "first,second second", `, "context_id": "d"`)
	if l := list[step.LoadedSnapshot](b, step.LoadedSnapshotsPath); len(l) != 1 || l[0].Context != "d" || l[0].ID != "@local/saved" || l[0].Version != 1 {
		t.Errorf("%+v", l)
	}
	// What is no snapshot is refused, and the agent is gone again.
	b.PutUniverse("@local/other", steptest.File{Path: "a", Text: "x"})
	err := b.Do(b.start, `{"id": "three", "type": "deploy_agent", "agent_name": "three", "a2a_agent_id": "@local/talker", "agent_snapshot_files_artifact_id": "@local/other"}`)
	if steptest.ErrorType(err) != "SnapshotError" || !strings.Contains(err.Error(), "no file trajectory") {
		t.Error(err)
	}
	if _, err := b.Agents.Agent(steptest.Run, "three"); err == nil {
		t.Error("an agent that could not be restored stands")
	}
	gone(t, b.Rig)
}

// The built-in agent is saved with its folder, and goes on elsewhere.
func TestLoopSnapshot(t *testing.T) {
	b := agents(t)
	b.PutFile("@local/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[
		{"calls":[{"tool":"write_file","args":{"path":"/root/w/a.txt","content":"kept"}}]},{"say":"written"},{"calls":[{"tool":"read_file","args":{"path":"w/a.txt"}}]},{"say":"it says ${last}"}]}]}`})
	for _, name := range []string{"one", "two"} {
		fields := ""
		if name == "two" {
			b.Must(data.NewSnapshotAgentState(b.Store, b.Agents, b.Envs), `{"id": "save", "type": "snapshot_agent_state", "prompt_id": "q", "agent_name": "one", "artifact_id": "@local/saved"}`)
			fields = `, "agent_snapshot_files_artifact_id": "@local/saved", "agent_snapshot_target_context_id": "c"`
		}
		b.Must(b.start, fmt.Sprintf(`{"id": %q, "type": "deploy_agent", "agent_name": %q, "a2a_agent_id": "loop"%s}`, name, name, fields))
		want := map[string]string{"one": "written", "two": "it says kept"}[name]
		b.says(name, "go", want, `, "context_id": "c", "prompt_id": "q", "model": "scripted:@local/talk"`)
	}
	gone(t, b.Rig)
}

// Rules speak for the user where they fire, and the user's agent where none does.
func TestAgentTriggers(t *testing.T) {
	b := agents(t)
	b.up("solver", "")
	b.up("user", "")
	register := control.NewRegisterAgentTriggers(b.Agents)
	const rules = `[{"id": "more", "when": {"type": "step", "turn": 1, "cmp": "eq"}, "actions": [{"type": "say", "text": "say two"}]},
		{"id": "end", "when": {"type": "conversational", "where": {"message": {"equals": "two"}}}, "actions": [{"type": "end"}]}]`
	for _, user := range []string{"user", "loop"} {
		if user == "loop" {
			b.Must(b.start, `{"id": "loop", "type": "deploy_agent", "agent_name": "loop", "a2a_agent_id": "loop"}`)
		}
		b.Must(register, `{"id": "rules", "type": "register_agent_triggers", "agent_name": "`+user+`", "triggers": `+rules+`}`)
		p := b.says("solver", "say one", "two", `, "max_conversation_turns": 5, "user_agent_name": "`+user+`"`)
		if len(p.Turns) != 2 || p.Turns[1].Message != "say two" || p.Turns[1].Reply != "two" || p.Turns[0].User != nil {
			t.Errorf("%s: %+v", user, p.Turns)
		}
		var fired []struct {
			Turn  int
			Fired []string
		}
		if ok, err := b.View().Get("metadata/agent_trigger_firings/"+p.Step, &fired); err != nil || !ok || len(fired) != 2 || fired[1].Fired[0] != "end" {
			t.Errorf("%s: %v %v %+v", user, ok, err, fired)
		}
		var log []any
		if ok, err := b.View().Get("metadata/agent_trigger_state/"+p.Step, &log); err != nil || !ok || len(log) == 0 {
			t.Errorf("%s: %v %v %+v", user, ok, err, log)
		}
	}
	for text, want := range map[string]string{
		`"agent_name": "none", "triggers": []`: "NotFoundError",
		`"agent_name": "user", "triggers": [{"id": "more", "when": {"type": "step", "turn": 2}, "actions": [{"type": "end"}]}]`:                                                            "TriggerError",
		`"agent_name": "user", "triggers": [{"id": "e", "when": {"type": "any", "of": [{"type": "env_trigger", "env_id": "@local/e", "trigger_id": "t"}]}, "actions": [{"type": "end"}]}]`: "ValueError",
	} {
		if err := b.Do(register, `{"id": "rules", "type": "register_agent_triggers", `+text+`}`); steptest.ErrorType(err) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	gone(t, b.Rig)
}

// An agent is installed into a sandbox of the task by the commands of its card, and works there.
func TestInstallAgent(t *testing.T) {
	b := agents(t)
	info, err := b.Deploy.Create(t.Context(), deploy.Request{Run: steptest.Run, Step: "box", Attempt: 1, Name: "box", Spec: sandbox.Spec{Self: true}})
	if err != nil {
		t.Fatal(err)
	}
	install := world.NewInstallAgent(b.Agents)
	for text, want := range map[string]string{
		`"sandbox_name": "none", "a2a_agent_id": "@local/talker"`:                       "NotFoundError",
		`"sandbox_name": "box", "container_name": "c", "a2a_agent_id": "@local/talker"`: "NotFoundError",
		`"sandbox_name": "box", "a2a_agent_id": "loop"`:                                 "DeploymentError",
	} {
		if err := b.Do(install, `{"id": "in", "type": "install_agent", "agent_name": "in", `+text+`}`); steptest.ErrorType(err) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
	b.Must(install, `{"id": "in", "type": "install_agent", "agent_name": "in it", "sandbox_name": "box", "a2a_agent_id": "@local/talker"}`)
	b.says("in it", "note x", "noted", "")
	box, err := b.Deploy.Box(t.Context(), steptest.Run, "box")
	if err != nil {
		t.Fatal(err)
	}
	if text, err := box.ReadFile(t.Context(), "/root/notes", 100); err != nil || string(text) != "x" {
		t.Errorf("%q %v: it works elsewhere", text, err)
	}
	// Another one beside it has a port and doors of its own.
	second := `{"id": "in3", "type": "install_agent", "agent_name": "beside", "sandbox_name": "box", "a2a_agent_id": "@local/talker"`
	if err := b.Do(install, second+`}`); err == nil || !strings.Contains(err.Error(), "serves at port 8021 already") || !strings.Contains(err.Error(), "a2a_port") {
		t.Error(err)
	}
	b.Must(install, second+`, "a2a_port": 8031}`)
	b.says("in it", "vars", "OPENAI_BASE_URL=http://127.0.0.1:18766/v1", "")
	b.says("beside", "vars", "OPENAI_BASE_URL=http://127.0.0.1:18767/v1", "")
	// One whose card knows only how it gets into a container by an engine.
	b.PutAgent("@local/contained", `command = ["agent-env", "serve", "container-talker"]`)
	if _, err := b.Deploy.Create(t.Context(), deploy.Request{Run: steptest.Run, Step: "other", Attempt: 1, Name: "other", Spec: sandbox.Spec{Self: true}}); err != nil {
		t.Fatal(err)
	}
	b.Must(install, `{"id": "in2", "type": "install_agent", "agent_name": "contained", "sandbox_name": "other", "a2a_agent_id": "@local/contained"}`)
	b.says("contained", "note y", "noted", "")
	if box, err = b.Deploy.Box(t.Context(), steptest.Run, "other"); err != nil {
		t.Fatal(err)
	}
	if text, err := box.ReadFile(t.Context(), "/root/notes", 100); err != nil || string(text) != "y" {
		t.Errorf("%q %v: it works elsewhere", text, err)
	}
	live := b.Deploy.Live(steptest.Run)
	if len(live) != 2 || live[0].Box.ID != info.ID {
		t.Errorf("the sandbox of the card stands: %+v", live)
	}
	if l := list[step.Agent](b, step.AgentsPath); len(l) != 3 || l[0].Name != "in it" || !strings.Contains(string(l[0].Card), "talker") {
		t.Errorf("%+v", l)
	}
	gone(t, b.Rig)
}

// A prompt keeps what the agent had done: between turns, every so often, and at its end.
func TestPromptSnapshots(t *testing.T) {
	b := agents(t)
	b.up("solver", "")
	b.up("user", "")
	b.Must(control.NewRegisterAgentTriggers(b.Agents), `{"id": "rules", "type": "register_agent_triggers", "agent_name": "user", "triggers": [
		{"id": "a", "when": {"type": "step", "turn": 1, "cmp": "eq"}, "actions": [{"type": "say", "text": "note two"}]},
		{"id": "b", "when": {"type": "step", "turn": 2, "cmp": "eq"}, "actions": [{"type": "say", "text": "note three"}]},
		{"id": "c", "when": {"type": "step", "turn": 3, "cmp": "eq"}, "actions": [{"type": "end"}]}]}`)
	p := b.says("solver", "note one", "noted", `, "max_conversation_turns": 5, "user_agent_name": "user", "snapshot_config": {"per_turn": true, "max_snapshots": 2}`)
	rows := list[step.AgentSnapshot](b, step.AgentSnapshotsPath)
	if len(rows) != 4 || rows[0].Turn != 1 || rows[1].Turn != 2 || rows[2].Reason != "limit_reached" || !rows[3].Final || rows[3].Version != 3 || rows[3].Status != step.SnapshotOK || rows[3].Context != p.Context {
		t.Fatalf("%+v", rows)
	}
	for version, want := range map[int]string{1: "one one", 3: "one,two,three three"} {
		name := fmt.Sprintf("v%d", version)
		b.up(name, fmt.Sprintf(`, "agent_snapshot_files_artifact_id": %q, "agent_snapshot_files_artifact_version": %d, "agent_snapshot_target_context_id": "d"`, rows[0].ID, version))
		b.says(name, "notes", want, `, "context_id": "d"`)
	}
	// While it works; a prompt that runs out of time is saved too.
	before := len(list[step.AgentSnapshot](b, step.AgentSnapshotsPath))
	if _, err := b.ask("solver", "wait", `, "timeout_seconds": 2, "snapshot_config": {"interval_seconds": 0.1, "max_snapshots": 2}`); steptest.ErrorType(err) != "agent_error" {
		t.Error(err)
	}
	rows = list[step.AgentSnapshot](b, step.AgentSnapshotsPath)[before:]
	if len(rows) != 4 || rows[0].Turn != 0 || rows[0].Version != 1 || rows[2].Reason != "limit_reached" || !rows[3].Final || rows[3].Version != 3 {
		t.Errorf("%+v", rows)
	}
	gone(t, b.Rig)
}

// What an agent changes is recorded, and another one goes on from the tool call that is named.
func TestAgentChangelog(t *testing.T) {
	b := agents(t)
	b.up("one", `, "enable_agent_changelog": true`)
	id := steptest.Run + "-deploy-one-agent-changelog"
	b.says("one", "say nothing", "nothing", "")
	b.says("one", "note first", "noted", `, "context_id": "c"`)
	b.says("one", "note second", "noted", `, "context_id": "c"`)
	rows := list[step.AgentChangelog](b, step.AgentChangelogPath)
	if len(rows) != 3 || rows[0].URL != "artifact:"+id || rows[0].Roots[0] != "/root/notes" || rows[1].Increments != 1 || rows[2].URL != "artifact:"+id+"@2" || rows[2].Increments != 2 || rows[2].Reason != "" {
		t.Fatalf("%+v", rows)
	}
	for name, tt := range map[string]struct{ fields, want string }{
		"all":    {fmt.Sprintf(`"agent_changelog_object_url": "artifact:%s"`, id), "first,second second"},
		"pinned": {fmt.Sprintf(`"agent_changelog_object_url": "artifact:%s@1"`, id), "first first"},
		"before": {fmt.Sprintf(`"agent_changelog_object_url": "artifact:%s", "agent_changelog_toolcall_position_exclusive": 1`, id), "first first"},
	} {
		b.up(name, `, "agent_snapshot_target_context_id": "d", `+tt.fields)
		b.says(name, "notes", tt.want, `, "context_id": "d"`)
	}
	for _, x := range list[step.ChangelogRewind](b, step.ChangelogRewindsPath) {
		if x.Context != "d" || x.Increments != map[string]int{"all": 2, "pinned": 1, "before": 1}[x.Agent] || (x.Before != nil) != (x.Agent == "before") {
			t.Errorf("%+v", x)
		}
	}
	// What is kept stays when the agent dies, and the row says that there may have been more.
	if _, err := b.ask("one", "die", ""); steptest.ErrorType(err) != "agent_error" {
		t.Error(err)
	}
	if rows = list[step.AgentChangelog](b, step.AgentChangelogPath); len(rows) != 4 || rows[3].Increments != 0 || !strings.Contains(rows[3].Reason, "the agent can't be reached") {
		t.Errorf("%+v", rows)
	}
	// Nothing before the first tool call: the agent begins anew.
	b.up("anew", fmt.Sprintf(`, "agent_changelog_object_url": "artifact:%s", "agent_changelog_toolcall_position_exclusive": 0`, id))
	b.PutUniverse("@local/other", steptest.File{Path: "a", Text: "x"})
	for fields, want := range map[string]string{
		`"a2a_agent_id": "@local/talker", "agent_changelog_object_url": "artifact:@local/other"`: "ChangelogError: agent 'three': '@local/other' version 1 is no changelog of an agent: it has a file 'a'",
		`"a2a_agent_id": "@local/talker", "agent_changelog_object_url": "artifact:@local/none"`:  "NotFoundError: changelog '@local/none'",
		`"a2a_agent_id": "loop", "enable_agent_changelog": true`:                                 "NotServedError: agent 'three' can't record its changes: enable-changelog of urn:agentenv:snapshot/v1",
	} {
		err := b.Do(b.start, `{"id": "three", "type": "deploy_agent", "agent_name": "three", `+fields+`}`)
		if err == nil || !strings.HasPrefix(steptest.ErrorType(err)+": "+err.Error(), want) {
			t.Errorf("%v; want %s", err, want)
		}
		if _, err := b.Agents.Agent(steptest.Run, "three"); err == nil {
			t.Error("an agent that could not be given its changes stands")
		}
	}
	gone(t, b.Rig)
}
