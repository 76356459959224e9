package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"agentenv.internal/agentenv/internal/term"
)

func TestLast(t *testing.T) {
	for _, tc := range []struct {
		in   string
		n    int
		want string
	}{
		{"a\nb\nc\n", -1, "a\nb\nc\n"},
		{"a\nb\nc\n", 0, ""},
		{"a\nb\nc\n", 1, "c\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc", 2, "b\nc"},
		{"a\nb\n", 9, "a\nb\n"},
		{"", 3, ""},
		{"\n\n", 1, "\n"},
	} {
		if got := string(last([]byte(tc.in), tc.n)); got != tc.want {
			t.Errorf("the last %d of %q are %q, want %q", tc.n, tc.in, got, tc.want)
		}
	}
}

// TestFollowOutput: what comes while somebody looks is printed once, also what comes last, and after an output lost its older half.
func TestFollowOutput(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, out, _ := term.Buffers("")
	looks := 0
	there := func() bool {
		looks++
		switch looks {
		case 1:
			write("one\n")
		case 2:
			write("one\ntwo\n")
		case 3:
			write("new\n")
		default:
			write("new\nend\n")
			return false
		}
		return true
	}
	if err := followOutput(t.Context(), s, path, 0, there); err != nil || out.String() != "one\ntwo\nnew\nend\n" {
		t.Errorf("%q, %v", out, err)
	}
}
