package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

// TestCompat: every command that docs/compat.md names exists with the flags named there, each of the peer's commands has one row, and what the page says isn't here yet isn't.
func TestCompat(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "compat.md"))
	if err != nil {
		t.Fatal(err)
	}
	s, _, _ := term.Buffers("")
	root := newRoot(verb.NewProgram(s, func(string) (string, bool) { return "", false }))
	named := 0
	for _, m := range regexp.MustCompile("`agent-env ([^`]+)`").FindAllStringSubmatch(string(page), -1) {
		words := strings.Fields(m[1])
		if words[0] == "help" {
			continue
		}
		named++
		cmd, rest, err := root.Find(words)
		if err != nil || cmd == root || len(rest) > 0 && cmd.HasSubCommands() {
			t.Errorf("docs/compat.md names agent-env %s, which doesn't exist: %v", m[1], err)
			continue
		}
		for _, w := range rest {
			if flag, ok := strings.CutPrefix(w, "--"); ok && cmd.Flags().Lookup(flag) == nil {
				t.Errorf("docs/compat.md: agent-env %s has no flag %s", m[1], w)
			}
		}
	}
	rows := regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\|$").FindAllStringSubmatch(string(page), -1)
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r[1]] {
			t.Errorf("two rows are about %s", r[1])
		}
		seen[r[1]] = true
		cmd, rest, err := root.Find(strings.Fields(r[1]))
		here := err == nil && cmd != root && len(rest) == 0 && cmd.Runnable() && !cmd.HasSubCommands()
		if here && strings.HasPrefix(r[2], "not ") {
			t.Errorf("%s is here: tell so in docs/compat.md, not %q", r[1], r[2])
		}
		if strings.Contains(r[2], "the same") && !strings.HasPrefix(r[2], "`agent-env "+r[1]+"`") && r[1] != "config debug" {
			t.Errorf("%s: %q names another command as the same", r[1], r[2])
		}
	}
	if len(seen) != 61 || named < 40 {
		t.Errorf("%d commands, of which %d name one here", len(seen), named)
	}
}
