package cli_test

import (
	"os"
	"path/filepath"
	"testing"
)

// TestGitPluginsPage: the commands of docs/git-plugins.md print what is shown there.
func TestGitPluginsPage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "git-plugins.md"))
	if err != nil {
		t.Fatal(err)
	}
	cmds := sessions(string(page))
	if len(cmds) < 12 {
		t.Fatalf("the page shows %d commands", len(cmds))
	}
	play(t, newHome(t), "docs/git-plugins.md", cmds)
}
