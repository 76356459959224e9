//go:build soak

package cli_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSoakKills kills runs at random moments for $SOAK_TIME (two minutes): each time nothing stays, what was written is whole, and the next run passes.
func TestSoakKills(t *testing.T) {
	limit := 2 * time.Minute
	if d, err := time.ParseDuration(os.Getenv("SOAK_TIME")); err == nil {
		limit = d
	}
	home := sleeper(t)
	task := filepath.Join(home, "b", "tasks", "t.json")
	text := strings.ReplaceAll(read(t, task), "sleep 100", "sleep 0.05")
	kills := 0
	for end := time.Now().Add(limit); time.Now().Before(end); kills++ {
		// A change makes every run write.
		changed := strings.ReplaceAll(text, `"sleeps"`, `"sleeps `+time.Now().Format(time.RFC3339Nano)+`"`)
		if err := os.WriteFile(task, []byte(changed), 0o644); err != nil {
			t.Fatal(err)
		}
		after := rand.N(150 * time.Millisecond)
		r := start(t, home, "run", "./b")
		time.AfterFunc(after, func() { _ = r.cmd.Process.Kill() })
		r.end(t, 10*time.Second)
		swept(t, home)
		next := start(t, home, "run", "./b")
		if code := next.end(t, 30*time.Second); code != 0 {
			t.Fatalf("after a kill at %v the next run ends with %d:\n%s\n%s", after, code, strings.Join(next.out, "\n"), next.stderr.String())
		}
	}
	t.Logf("%d kills", kills)
}
