package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestEnvironmentsPage: the environment of docs/environments.md works, and the commands shown there print what is shown.
func TestEnvironmentsPage(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("python3"); err != nil {
		if os.Getenv("REQUIRE") != "" {
			t.Fatal("python3 is missing")
		}
		t.Skip("needs python3")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "environments.md"))
	if err != nil {
		t.Fatal(err)
	}
	home := newHome(t)
	layOut(t, home, filesOf(t, string(page)))
	cmds := sessions(string(page))
	if len(cmds) < 9 {
		t.Fatalf("the page shows %d commands", len(cmds))
	}
	play(t, home, "docs/environments.md", cmds)
}
