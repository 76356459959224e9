//go:build integration

package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPluginsPage: the plugins of docs/plugins.md are built and installed, and the commands shown there print what is shown. Nothing reaches a network.
func TestPluginsPage(t *testing.T) {
	for _, tool := range []string{"python3", "uv", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			if os.Getenv("REQUIRE") != "" {
				t.Fatalf("%s is missing", tool)
			}
			t.Skipf("%s is missing", tool)
		}
	}
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	home := newHome(t)
	text := strings.ReplaceAll(string(page), "$HOME", home)
	_, shell, _ := strings.Cut(text, "```sh\n")
	_, after, ok := strings.Cut(shell, "```\n") // what reaches an index isn't run
	if !ok {
		t.Fatal("the page shows no way to install")
	}
	text = after
	layOut(t, home, filesOf(t, text))
	// The reader's module requires the SDK; this one stands for it.
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(mod), "\n")
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	layOut(t, home, []shown{
		{"go.mod", "module toss.example/plugins\n" + rest + "\nrequire agentenv.internal/agentenv v0.0.0\nreplace agentenv.internal/agentenv => " + root + "\n"},
		{"go.sum", string(sums)},
	})
	cache := func(name string) string {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(string(out))
	}
	for name, value := range map[string]string{
		"GOMODCACHE": cache("GOMODCACHE"), "GOCACHE": cache("GOCACHE"), "GOFLAGS": "-mod=mod", "GOPROXY": "off", "CGO_ENABLED": "0", "GOWORK": "off",
		"UV_OFFLINE": "1", "UV_CACHE_DIR": filepath.Join(home, "cache"),
	} {
		t.Setenv(name, value)
	}
	cmds := sessions(text)
	if len(cmds) < 9 {
		t.Fatalf("the page shows %d commands", len(cmds))
	}
	play(t, home, "docs/plugins.md", cmds)
}
