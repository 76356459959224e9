package cli_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestAgentsPage: the agents of docs/agents.md work, and the commands shown there print what is shown.
func TestAgentsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "agents.md"))
	if err != nil {
		t.Fatal(err)
	}
	home := newHome(t)
	layOut(t, home, filesOf(t, string(page)))
	cmds := sessions(string(page))
	if len(cmds) < 8 {
		t.Fatalf("the page shows %d commands", len(cmds))
	}
	play(t, home, "docs/agents.md", cmds)
}
