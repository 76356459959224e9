package deploy_test

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/modeltest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/control"
	"agentenv.internal/agentenv/internal/step/data"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/trajectory/live"
	"agentenv.internal/agentenv/sdk/wire"
)

// command deploys claude-code as a command that stands in a sandbox of the run.
func (b *agentBench) command(name, fields string) {
	b.T.Helper()
	if _, err := b.Deploy.Create(b.T.Context(), deploy.Request{Run: steptest.Run, Step: "box", Attempt: 1, Name: "of " + name, Spec: sandbox.Spec{Self: true}}); err != nil {
		b.T.Fatal(err)
	}
	box, err := b.Deploy.Box(b.T.Context(), steptest.Run, "of "+name)
	if err != nil {
		b.T.Fatal(err)
	}
	if err := guest.Put(b.T.Context(), box, "/usr/local/bin", []guest.PutFile{guest.PutBytes("claude", 0o755, []byte(deploy.ClaudeScript))}); err != nil {
		b.T.Fatal(err)
	}
	b.Must(b.start, fmt.Sprintf(`{"id": "deploy-%s", "type": "deploy_agent", "agent_name": %q, "a2a_agent_id": "claude-code", "sandbox_name": "of %s"%s}`, name, name, name, fields))
}

// endpoint serves the model of a bench.
func (b *agentBench) endpoint(answer func(modeltest.Asked) modeltest.Answer) *modeltest.Server {
	s := modeltest.New(b.T, answer)
	b.Settings.Endpoint, b.Settings.Default = model.Endpoint{BaseURL: s.URL, Key: "k"}, "big"
	return s
}

// Prompts of several conversations are made side by side by agents in sandboxes, and each has its own cost and record; those of one conversation wait.
func TestBoxedPromptsTogether(t *testing.T) {
	b := agents(t)
	b.up("talker", "")
	b.command("claude", "")
	const together = 3
	for _, name := range []string{"talker", "claude"} {
		var mu sync.Mutex
		here, all := 0, make(chan struct{})
		b.endpoint(func(q modeltest.Asked) modeltest.Answer {
			mu.Lock()
			if here++; here == together {
				close(all)
			}
			mu.Unlock()
			select {
			case <-all:
			case <-time.After(time.Minute):
				t.Errorf("%s: prompts wait for each other", name)
			}
			a := modeltest.Say("heard " + q.Flat())
			a.Usage = model.Usage{Input: int64(len(q.Flat())), Output: 1}
			return a
		})
		a, err := b.Agents.Agent(steptest.Run, name)
		if err != nil {
			t.Fatal(err)
		}
		queued := make(chan struct{}, 1)
		var wg sync.WaitGroup
		ask := func(conversation, text string, waits func()) {
			wg.Go(func() {
				record, err := live.Open(live.Options{})
				if err != nil {
					t.Error(err)
					return
				}
				defer record.Close()
				out, err := a.Runner.Prompt(t.Context(), deploy.Prompt{
					Settings: deploy.Settings{Model: "big"}, Parts: []wire.Part{wire.TextPart("think " + text)}, Context: conversation, Task: conversation + text, Record: record,
					Poll: 10 * time.Millisecond, Queued: waits,
				})
				if err != nil || !strings.Contains(out.Text, "heard") || !strings.Contains(out.Text, text) || strings.Contains(string(out.Exchanges), "of another") != strings.Contains(text, "of another") {
					t.Errorf("%s: %+v %v", name, out, err)
				}
				if lines := strings.Count(string(out.Exchanges), "\n"); lines != 1 || !strings.Contains(string(out.Exchanges), text) || out.Usage.Output != 1 {
					t.Errorf("%s: %s has %d exchanges, %+v:\n%s", name, text, lines, out.Usage, out.Exchanges)
				}
			})
		}
		ask("one", "of one", nil)
		ask("two", "of another two", nil)
		for { // the first of a conversation is under way before the next one comes
			mu.Lock()
			n := here
			mu.Unlock()
			if n == 2 {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		ask("one", "of one again", func() { queued <- struct{}{} })
		<-queued
		ask("three", "of a third", nil)
		wg.Wait()
	}
	gone(t, b.Rig)
}

// An installed command asks other agents by the tools of a server at a door of its own, and is asked by them.
func TestCommandPeers(t *testing.T) {
	b := agents(t)
	b.endpoint(func(modeltest.Asked) modeltest.Answer { return modeltest.Say("x") })
	b.up("talker", "")
	b.command("claude", "")
	p, err := b.ask("claude", "ask talker say x", `, "model": "big"`)
	if err != nil || !strings.Contains(p.Response, "failed") {
		t.Errorf("before it was told of anybody: %q %v", p.Response, err)
	}
	b.Must(control.NewPeerAgents(b.Agents), `{"id": "peer", "type": "peer_agents", "peerings": [{"source_agent_name": "claude", "peer_agent_names": ["talker"]},
		{"source_agent_name": "talker", "peer_agent_names": ["claude"]}]}`)
	p = b.says("claude", "ask talker say hello there", "hello there", `, "model": "big"`)
	if len(p.Turns) != 1 || len(p.Turns[0].Peers) != 1 || p.Turns[0].Peers[0].Agent != "talker" || p.Turns[0].Peers[0].Message != "say hello there" || p.Turns[0].Peers[0].Trajectory == nil {
		t.Errorf("%+v", p.Turns)
	}
	b.says("talker", "ask claude keep this", "kept", `, "model": "big"`)
	b.says("claude", "ask nobody say x", "there is no peer", `, "model": "big"`)
	b.says("claude", "ask talker ask claude keep x", "waiting for your answer", `, "model": "big"`)
	gone(t, b.Rig)
}

// An installed command's conversation goes on elsewhere, with its session and its files, and no secret is in what is saved.
func TestCommandSnapshot(t *testing.T) {
	const secret = "s3cret-of-the-run"
	b := agents(t)
	b.endpoint(func(modeltest.Asked) modeltest.Answer { return modeltest.Say("x") })
	b.Redact.Add(secret)
	b.command("one", "")
	b.says("one", "keep plain "+secret, "kept", `, "context_id": "c", "prompt_id": "q", "model": "big"`)
	b.says("one", "keep other", "kept", `, "context_id": "beside", "model": "big"`)
	b.says("one", "keep last "+secret, "kept", `, "context_id": "c", "model": "big"`)
	save := data.NewSnapshotAgentState(b.Store, b.Agents, b.Envs)
	b.Must(save, `{"id": "save", "type": "snapshot_agent_state", "prompt_id": "q", "agent_name": "one", "artifact_id": "@local/saved"}`)
	d, err := b.Store.Get(t.Context(), store.Artifact, "@local/saved", 0)
	if err != nil {
		t.Fatal(err)
	}
	files, err := artifact.Files(d.Type, d.Body)
	if err != nil || len(files) != 2 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		r, _, err := b.Store.Open(t.Context(), f.Digest)
		if err != nil {
			t.Fatal(err)
		}
		text := new(strings.Builder)
		if _, err := io.Copy(text, r); err != nil {
			t.Fatal(err)
		}
		if strings.Contains(text.String(), secret) || f.Path == deploy.StateWorkspace && (!strings.Contains(text.String(), "last ***") || strings.Contains(text.String(), "other")) {
			t.Errorf("%s holds\n%q", f.Path, text)
		}
	}
	b.command("two", `, "agent_snapshot_files_artifact_id": "@local/saved", "agent_snapshot_target_context_id": "d"`)
	b.says("two", "recall", "keep plain *** keep last *** then last ***, binary false", `, "context_id": "d", "model": "big"`)
	// What another agent kept is refused by name.
	b.PutFile("@local/talk", steptest.File{Path: "t.json", Text: `{"variants":[{"turns":[{"say":"x"}]}]}`})
	b.Must(b.start, `{"id": "loop", "type": "deploy_agent", "agent_name": "loop", "a2a_agent_id": "loop"}`)
	b.says("loop", "go", "x", `, "context_id": "l", "prompt_id": "lq", "model": "scripted:@local/talk"`)
	b.Must(save, `{"id": "save2", "type": "snapshot_agent_state", "prompt_id": "lq", "agent_name": "loop", "artifact_id": "@local/looped"}`)
	err = b.Do(b.start, `{"id": "three", "type": "deploy_agent", "agent_name": "three", "a2a_agent_id": "claude-code", "sandbox_name": "of two", "agent_snapshot_files_artifact_id": "@local/looped"}`)
	if steptest.ErrorType(err) != "SnapshotError" || !strings.Contains(err.Error(), "no conversation of an installed command") {
		t.Error(err)
	}
	gone(t, b.Rig)
}

// TestAgentWithoutAnAnswerOfItsModel: an agent that says it is done although its model's endpoint gave it nothing but refusals, by a 200 too, has no result; one
// whose model answered first is believed.
func TestAgentWithoutAnAnswerOfItsModel(t *testing.T) {
	b := agents(t)
	refuse := true
	b.endpoint(func(modeltest.Asked) modeltest.Answer {
		if refuse {
			return modeltest.Answer{Raw: true, Text: `{"choices":[{"message":{"content":""}}],"content":[{"text":"rate limit"}],"error":{"message":"slow down","code":429}}`}
		}
		return modeltest.Say("fine")
	})
	b.up("talker", "")
	b.command("claude", "")
	for _, name := range []string{"talker", "claude"} {
		refuse = true
		err := b.Do(b.prompt, `{"id": "p`+name+`", "type": "prompt_agent", "agent_name": "`+name+`", "prompt": "think x", "model": "big"}`)
		if !step.IsInfra(err) || !strings.Contains(err.Error(), "slow down") {
			t.Errorf("%s: %v", name, err)
		}
		refuse = false
		b.says(name, "think x", "fine", `, "model": "big"`)
	}
	gone(t, b.Rig)
}

// TestDoorsOfOtherAgents: from another sandbox nothing answers at an agent's doors. In one that agents share, each reaches the doors of the others: that is told
// when they are deployed in different roles, and docs/security.md says why.
func TestDoorsOfOtherAgents(t *testing.T) {
	b := agents(t)
	b.endpoint(func(modeltest.Asked) modeltest.Answer { return modeltest.Say("x") })
	b.PutEnv("@local/mail", "mail", serveWords)
	stored, err := envstore.Read(t.Context(), b.Store, "@local/mail", 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Envs.Deploy(t.Context(), deploy.EnvRequest{Run: steptest.Run, Step: "up", Attempt: 1, Env: stored, CallLog: filepath.Join(t.TempDir(), "calls")}); err != nil {
		t.Fatal(err)
	}
	b.command("clerk", `, "env_ids": ["@local/mail"], "role": "clerk"`)
	b.command("outsider", "")
	tryDoors := func(box string) string {
		t.Helper()
		at, err := b.Deploy.Box(t.Context(), steptest.Run, box)
		if err != nil {
			t.Fatal(err)
		}
		const attempt = "for p in 18765 18766 18767 18768; do (exec 3<>/dev/tcp/127.0.0.1/$p) 2>/dev/null && echo -n $p' '; done; for pid in /proc/[0-9]*; do tr '\\0' '\\n' <$pid/cmdline; done 2>/dev/null | grep -c claude; ls /var/lib/agentenv/agent 2>/dev/null"
		res, err := guest.Output(t.Context(), at, guest.Command{Argv: []string{"bash", "-c", attempt}, Timeout: time.Minute}, guest.Limits{Stdout: 1 << 10, Stderr: 1 << 10})
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(res.Stdout.Head))
	}
	if got := tryDoors("of outsider"); strings.Contains(got, "18765") || strings.Contains(got, "18767") || strings.Contains(got, "clerk") {
		t.Errorf("from another sandbox: %q", got)
	}
	if got := tryDoors("of clerk"); !strings.HasPrefix(got, "18765 18766 ") {
		t.Errorf("from the agent's own: %q", got)
	}
	b.Must(b.start, `{"id": "deploy-guest", "type": "deploy_agent", "agent_name": "guest", "a2a_agent_id": "claude-code", "sandbox_name": "of clerk", "role": "guest"}`)
	if !strings.Contains(b.Log(), "each can act in the other's role") || strings.Count(b.Log(), "share a sandbox") != 1 {
		t.Errorf("not told of, or more than once:\n%s", b.Log())
	}
	gone(t, b.Rig)
}
