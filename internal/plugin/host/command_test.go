package host_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/sdk/plugin"
)

// playCommand is a command that says what only providers of sandboxes say, and what nobody says, and exits with 7.
func playCommand() int {
	conn := os.NewFile(3, "host")
	in := bufio.NewReader(conn)
	answer := func(result string) {
		var m struct {
			ID json.RawMessage `json:"id"`
		}
		line, err := in.ReadBytes('\n')
		if err != nil || json.Unmarshal(line, &m) != nil {
			os.Exit(1)
		}
		_, _ = fmt.Fprintf(conn, `{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", m.ID, result)
	}
	answer(`{"protocol_version":1,"plugin":{"name":"x","version":"1"}}`)
	for _, said := range []string{
		`"sandbox/exit","params":{"exec":"h1"}`, `"sandbox/accepted","params":{"listener":"h1","stream":"p1"}`, `"stream/data","params":{"stream":"p1","data":"AAAA"}`, `"nothing"`,
	} {
		_, _ = fmt.Fprintln(conn, `{"jsonrpc":"2.0","method":`+said+`}`)
	}
	answer(`{"exit_code":7}`)
	return 7
}

// TestACommandSaysWhatSandboxesSay: notifications that a command has no business with are passed over.
func TestACommandSaysWhatSandboxesSay(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p := host.OpenPlugins(t.Context(), shelf{}, host.Setup{
		Options: host.Options{Log: slog.New(slog.DiscardHandler), TempDir: t.TempDir()}, Builtin: func(string, string) bool { return false },
		Beside: func(context.Context) []host.Beside {
			return []host.Beside{{
				ID: "acme", Version: "1.2.0", Where: "https://example.org/acme", Dir: t.TempDir(), Argv: []string{self}, Env: []string{role + "=command"},
				Types: []plugin.Type{{Group: plugin.GroupCommands, Name: "acme"}},
			}}
		},
	})
	t.Cleanup(func() { _ = p.Close(context.WithoutCancel(t.Context())) })
	var c []dist.Contribution
	for _, got := range p.Contributions(plugin.GroupCommands) {
		if got.Name == "acme" && got.Usable() {
			c = append(c, got)
		}
	}
	if len(c) != 1 {
		t.Fatalf("%d commands", len(c))
	}
	code, err := p.Command(t.Context(), c[0], nil, host.Terminal{Dir: t.TempDir(), Stdio: [3]*os.File{null, null, null}})
	if err != nil || code != 7 {
		t.Errorf("%d, %v", code, err)
	}
}
