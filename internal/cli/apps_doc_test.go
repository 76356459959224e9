package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestComputerAppsPage: the apps of docs/computer-apps.md work, and the commands shown there print what is shown.
func TestComputerAppsPage(t *testing.T) {
	for _, program := range []string{"curl", "python3"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("REQUIRE") != "" {
				t.Fatal(program + " is missing")
			}
			t.Skip("needs " + program)
		}
	}
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "computer-apps.md"))
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	layOut(t, home, filesOf(t, string(page)))
	cmds := sessions(string(page))
	if len(cmds) < 5 {
		t.Fatalf("the page shows %d commands", len(cmds))
	}
	play(t, home, "docs/computer-apps.md", cmds)
}
