package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
)

func loadText(t *testing.T, text string) (*Config, diag.List) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".agentenv"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, Name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Load(Options{Dir: dir, Env: func(name string) (string, bool) {
		v, ok := map[string]string{"HOME": dir, "TOKEN": "t"}[name]
		return v, ok
	}})
}

func TestMCPServers(t *testing.T) {
	c, l := loadText(t, `
[[mcp.servers]]
name = "hub"
url = "https://hub.example/mcp"
headers = { Authorization = "env:TOKEN" }
[[mcp.servers]]
name = "local"
command = "tool"
args = ["serve"]
[[mcp.servers]]
name = "off"
url = "env:MISSING"
enabled = false
`)
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	got, err := c.MCPServers(t.Context(), nil)
	if err != nil || len(got) != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got[0].Transport != "http" || got[0].Headers["Authorization"] != "t" || got[1].Transport != "stdio" || strings.Join(got[1].Command, " ") != "tool serve" {
		t.Errorf("%+v", got)
	}
	off, l := loadText(t, "[mcp]\nenabled = false\n[[mcp.servers]]\nname = 'x'\nurl = 'u'\n")
	if got, err := off.MCPServers(t.Context(), nil); len(got) != 0 || err != nil || l.HasErrors() {
		t.Errorf("off: %+v, %v, %v", got, err, l)
	}
	for _, bad := range []string{"name='a'", "name='a'\nurl='u'\ncommand='c'", "name='a'\nurl='u'\ntransport='stdio'", "name='a'\nurl='u'\n[[mcp.servers]]\nname='a'\nurl='u'"} {
		if _, l := loadText(t, "[[mcp.servers]]\n"+bad+"\n"); !l.HasErrors() {
			t.Errorf("accepted:\n%s", bad)
		}
	}
}
