package deploy

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"agentenv.internal/agentenv/sdk/agent"
)

// talker is an agent that does what it is told, without a model: "say X", "note X", "notes", "ask NAME X", "tool NAME" of its first environment, "think X" by its model, "ponder N" times and die, and "vars".
type talker struct {
	mu    sync.Mutex
	notes map[string][]string // by context
	log   *agent.Uploads      // where increments go; nil: nowhere
	seq   int64
}

// onMachine is how a talker is installed on a machine, and byEngine how it is into a container by an engine beside it.
func onMachine() map[string]any {
	return map[string]any{
		"a2a_port": 8021, "required_params_host": []string{"agent_ctx_tar", "work_dir", "a2a_port", "agent_name", "litellm_base_url"},
		"install_commands_host": []string{
			"mkdir -p {work_dir}/src && tar -xzf {agent_ctx_tar} -C {work_dir}/src",
			"test -f {work_dir}/src/process.toml && A2A_HOST=127.0.0.1 A2A_PORT={a2a_port} OPENAI_BASE_URL={litellm_base_url}/v1 setsid agent-env serve talker >/tmp/{agent_name}.log 2>&1 </dev/null &",
		},
	}
}

func byEngine() map[string]any {
	const docker = "$(sudo -n true 2>/dev/null && echo sudo) docker "
	return map[string]any{
		"a2a_port": 8022, "required_params": []string{"container", "agent_ctx_tar", "a2a_port", "litellm_api_key", "litellm_base_url"},
		"install_commands": []string{
			docker + "cp {agent_ctx_tar} {container}:/tmp/ctx.tar.gz",
			docker + "exec {container} sh -c 'mkdir -p /opt/talker && tar -xzf /tmp/ctx.tar.gz -C /opt/talker && rm /tmp/ctx.tar.gz && cat'",
			docker + "exec -i {container} sh -c 'umask 077 && cat >/opt/talker/env' <<'END'\nLITELLM_API_KEY={litellm_api_key}\nLITELLM_BASE_URL={litellm_base_url}\nEND",
			docker + "exec -w /opt/talker {container} sh -c 'test -f process.toml && . ./env && test \"$LITELLM_BASE_URL\" = http://127.0.0.1:18766'",
			docker + "exec -d -e A2A_PORT={a2a_port} -e A2A_HOST=127.0.0.1 -u root {container} agent-env serve talker",
		},
	}
}

const notesFile = "/root/notes"

func newTalker(install map[string]any) *agent.Agent {
	t := &talker{notes: map[string][]string{}}
	return agent.New("talker", t.run, agent.WithDescription("Does what it is told."), agent.WithConfig(struct {
		SystemPrompt string `json:"system_prompt"`
	}{}), agent.WithMCP(), agent.WithSkills("", nil), agent.WithTrajectory(), agent.WithPeers(), agent.WithTriggers(), agent.WithSnapshots(t.save, t.load), agent.WithChangelog(t.follow, t.apply),
		agent.WithInstall(install))
}

func (k *talker) run(ctx context.Context, t *agent.Turn) (agent.Result, error) {
	word, rest, _ := strings.Cut(t.Text(), " ")
	switch word {
	case "say":
		return agent.Text(rest), nil
	case "note":
		k.mu.Lock()
		k.notes[t.ContextID] = append(k.notes[t.ContextID], rest)
		log, seq := k.log, k.seq
		k.seq++
		k.mu.Unlock()
		if log != nil {
			if err := log.Upload(ctx, seq, ".txt", strings.NewReader(rest)); err != nil {
				return agent.Result{}, err
			}
		}
		return agent.Text("noted"), os.WriteFile(notesFile, []byte(rest), 0o600)
	case "notes":
		k.mu.Lock()
		defer k.mu.Unlock()
		b, err := os.ReadFile(notesFile)
		if err != nil {
			return agent.Result{}, err
		}
		return agent.Text(strings.Join(k.notes[t.ContextID], ",") + " " + string(b)), nil
	case "ask":
		name, text, _ := strings.Cut(rest, " ")
		return ask(ctx, t, name, text)
	case "tool":
		return call(ctx, t, t.Servers[0].Name, rest, map[string]any{})
	case "think":
		return think(ctx, rest)
	case "ponder": // so many thoughts, then it dies as by a kill
		n, err := strconv.Atoi(rest)
		for i := range n {
			if _, err = think(ctx, "thought "+strconv.Itoa(i)); err != nil {
				return agent.Result{}, err
			}
		}
		return agent.Result{}, errors.Join(err, syscall.Kill(os.Getpid(), syscall.SIGKILL))
	case "vars":
		return agent.Text(strings.Join(os.Environ(), "\n")), nil
	case "die":
		os.Exit(3)
	case "wait":
		<-ctx.Done()
		return agent.Result{}, ctx.Err()
	}
	return agent.Result{}, agent.Fail("talker.word", "no such word: %s", word)
}

func ask(ctx context.Context, t *agent.Turn, name, text string) (agent.Result, error) {
	return call(ctx, t, agent.PeerServer, "peer_send_message", map[string]any{"name": name, "prompt": text})
}

// think asks the model at the address that agents find in their environment.
func think(ctx context.Context, text string) (agent.Result, error) {
	body, err := json.Marshal(map[string]any{"model": "big", "messages": []any{map[string]any{"role": "user", "content": text}}})
	if err != nil {
		return agent.Result{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("OPENAI_BASE_URL")+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return agent.Result{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+os.Getenv("OPENAI_API_KEY"))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return agent.Result{}, err
	}
	defer resp.Body.Close()
	var out struct {
		Choices []struct{ Message struct{ Content string } }
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return agent.Result{}, err
	}
	if err := json.Unmarshal(b, &out); err != nil || len(out.Choices) == 0 {
		return agent.Result{}, agent.Fail("talker.model", "%d: %s", resp.StatusCode, b)
	}
	return agent.Text(out.Choices[0].Message.Content), nil
}

// call calls a tool of a server.
func call(ctx context.Context, t *agent.Turn, server, tool string, args map[string]any) (agent.Result, error) {
	for _, s := range t.Servers {
		if s.Name != server {
			continue
		}
		tr := &http.Transport{}
		defer tr.CloseIdleConnections()
		c, err := mcp.NewClient(&mcp.Implementation{Name: "talker", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{
			Endpoint: s.URL, HTTPClient: &http.Client{Transport: tr},
		}, nil)
		if err != nil {
			return agent.Result{}, err
		}
		defer c.Close()
		r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: args})
		if err != nil {
			return agent.Result{}, err
		}
		return agent.Text(r.Content[0].(*mcp.TextContent).Text), nil
	}
	return agent.Result{}, errors.New("it has no server " + server)
}

func (k *talker) save(ctx context.Context, s *agent.Snapshot) error {
	k.mu.Lock()
	b, err := json.Marshal(k.notes[s.ContextID])
	k.mu.Unlock()
	if err != nil {
		return err
	}
	if err := s.Trajectory.Write(ctx, bytes.NewReader(b)); err != nil || s.Workspace == nil {
		return err
	}
	var tree bytes.Buffer
	w := tar.NewWriter(&tree)
	if b, err = os.ReadFile(notesFile); err == nil {
		err = w.WriteHeader(&tar.Header{Name: "notes", Mode: 0o600, Size: int64(len(b))})
	}
	if err == nil {
		_, err = w.Write(b)
	}
	if err := errors.Join(err, w.Close()); err != nil {
		return err
	}
	return s.Workspace.Write(ctx, bytes.NewReader(tree.Bytes()))
}

func (k *talker) load(ctx context.Context, s *agent.Saved) (string, error) {
	b, err := s.Trajectory.Bytes(ctx, 1<<20)
	if err != nil {
		return "", err
	}
	var notes []string
	if err := json.Unmarshal(b, &notes); err != nil {
		return "", err
	}
	if b, err = s.Workspace.Bytes(ctx, 1<<20); err != nil {
		return "", err
	}
	r := tar.NewReader(bytes.NewReader(b))
	if _, err = r.Next(); err == nil {
		b, err = io.ReadAll(r)
	}
	if err != nil {
		return "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notes[s.TargetContextID] = notes
	return s.TargetContextID, os.WriteFile(notesFile, b, 0o600)
}

// follow sends every note as an increment from now on.
func (k *talker) follow(_ context.Context, to *agent.Uploads, _ []string) ([]string, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.log = to
	return []string{notesFile}, nil
}

func (k *talker) apply(ctx context.Context, c *agent.Changes) (string, error) {
	var notes []string
	for _, x := range c.Increments {
		b, err := x.Source.Bytes(ctx, 1<<20)
		if err != nil {
			return "", err
		}
		notes = append(notes, string(b))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.notes[c.TargetContextID] = notes
	return c.TargetContextID, os.WriteFile(notesFile, []byte(notes[len(notes)-1]), 0o600)
}
