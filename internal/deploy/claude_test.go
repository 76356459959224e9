package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ClaudeScript is what stands in a box for the command claude: the test's program in that role.
const ClaudeScript = "#!/bin/sh\nTEST_ARGS=\"$*\" exec agent-env serve claude\n"

// playClaude is one run of a command that keeps a session in its folder, as claude does, and does what it is told: "keep X", "recall", "think X" by its model,
// "ask NAME X" of another agent.
func playClaude(ctx context.Context) error {
	args := os.Getenv("TEST_ARGS")
	if args == "--version" {
		fmt.Println("2.1.280 (Claude Code)")
		return nil
	}
	prompt, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	state := os.Getenv("CLAUDE_CONFIG_DIR")
	session := "s-" + filepath.Base(state)
	if _, after, ok := strings.Cut(args, "--resume "); ok {
		session, _, _ = strings.Cut(after, " ")
		if _, err := os.Stat(filepath.Join(state, session)); err != nil {
			return errors.New("no conversation found with session " + session)
		}
	}
	before, _ := os.ReadFile(filepath.Join(state, session)) // none begins one
	text, err := claudeDoes(ctx, string(prompt), state, string(before))
	if err != nil {
		text = "failed: " + err.Error()
	}
	if err := os.WriteFile(filepath.Join(state, session), []byte(string(before)+string(prompt)+"\n"), 0o600); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"type": "result", "subtype": "success", "session_id": session, "result": text})
}

func claudeDoes(ctx context.Context, prompt, state, before string) (string, error) {
	word, rest, _ := strings.Cut(strings.TrimSpace(prompt), " ")
	switch word {
	case "keep":
		return "kept", errors.Join(os.WriteFile("/root/kept", []byte(rest), 0o600), os.WriteFile("/root/binary", []byte("\x00"+rest), 0o600))
	case "recall":
		kept, err := os.ReadFile("/root/kept")
		_, berr := os.Stat("/root/binary")
		return fmt.Sprintf("%s then %s, binary %v", strings.Join(strings.Fields(before), " "), kept, berr == nil), err
	case "think":
		body, err := json.Marshal(map[string]any{"model": "big", "max_tokens": 9, "messages": []any{map[string]any{"role": "user", "content": rest}}})
		if err != nil {
			return "", err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, os.Getenv("ANTHROPIC_BASE_URL")+"/v1/messages", bytes.NewReader(body))
		if err != nil {
			return "", err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return "", err
		}
		defer resp.Body.Close()
		var out struct{ Content []struct{ Text string } }
		if err := json.NewDecoder(resp.Body).Decode(&out); err != nil || len(out.Content) == 0 {
			return "", fmt.Errorf("the model answered %d: %w", resp.StatusCode, err)
		}
		return out.Content[0].Text, nil
	case "ask":
		name, text, _ := strings.Cut(rest, " ")
		b, err := os.ReadFile(filepath.Join(state, "mcp.json"))
		if err != nil {
			return "", err
		}
		var config struct {
			Servers map[string]struct{ URL string } `json:"mcpServers"`
		}
		if err := json.Unmarshal(b, &config); err != nil {
			return "", err
		}
		c, err := mcp.NewClient(&mcp.Implementation{Name: "claude", Version: "1"}, nil).Connect(ctx, &mcp.StreamableClientTransport{Endpoint: config.Servers["peer_agents"].URL}, nil)
		if err != nil {
			return "", err
		}
		defer c.Close()
		r, err := c.CallTool(ctx, &mcp.CallToolParams{Name: "peer_send_message", Arguments: map[string]any{"name": name, "prompt": text}})
		if err != nil {
			return "", err
		}
		return r.Content[0].(*mcp.TextContent).Text, nil
	}
	return "", errors.New("no such word: " + word)
}
