package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// command is a line that a text shows after "$ ", with the lines it shows as the answer.
type command struct {
	line  int
	input string
	want  []string
}

// sessions takes the commands out of the console blocks of a text. Lines that begin with "> " go on with the command.
func sessions(text string) []command {
	var out []command
	inside := false
	for i, line := range strings.Split(text, "\n") {
		switch {
		case strings.HasPrefix(line, "```"):
			inside = strings.HasPrefix(line, "```console")
		case !inside:
		case strings.HasPrefix(line, "$ "):
			out = append(out, command{line: i + 1, input: line[2:]})
		case strings.HasPrefix(line, "> "):
			out[len(out)-1].input += "\n" + line[2:]
		default:
			out[len(out)-1].want = append(out[len(out)-1].want, line)
		}
	}
	return out
}

var (
	seconds  = regexp.MustCompile(`\b\d+\.\d+s\b`)
	instance = regexp.MustCompile(`(instance \S+-)[a-z0-9]{8}\b`)
)

// steady drops what differs from run to run.
func steady(s string) string {
	return instance.ReplaceAllString(seconds.ReplaceAllString(s, "<t>"), "${1}<id>")
}

// TestReadmeSession: what the README shows is what happens.
func TestReadmeSession(t *testing.T) {
	t.Parallel()
	readme, err := os.ReadFile(filepath.Join("..", "..", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	cmds := sessions(string(readme))
	if len(cmds) < 5 {
		t.Fatalf("the README shows %d commands", len(cmds))
	}
	home := newHome(t)
	for _, c := range cmds {
		cmd := exec.CommandContext(t.Context(), "bash", "-c", c.input)
		cmd.Dir = home
		cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+filepath.Join(home, "state"))
		var stderr strings.Builder
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("README.md:%d: %s: %v\n%s%s", c.line, c.input, err, out, stderr.String())
		}
		want := strings.Join(c.want, "\n")
		if got := strings.TrimSuffix(string(out), "\n"); steady(got) != steady(want) {
			t.Errorf("README.md:%d: %s prints\n%s\nthe README says\n%s", c.line, c.input, got, want)
		}
	}
}
