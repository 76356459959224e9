package env

import (
	"bytes"
	"encoding/json"
	"testing"

	"agentenv.internal/agentenv/internal/term"
)

func TestContentOfTools(t *testing.T) {
	const text = "one\ttab\n\x1b]0;title\atwo\x1b[2J\n"
	var r toolResult
	if err := json.Unmarshal([]byte(`{"content":[{"type":"text","text":"one\ttab\n\u001b]0;title\u0007two\u001b[2J\n"},{"type":"im\u001bage"}]}`), &r); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		tty  bool
		want string
	}{
		{false, text + "\n(im\\x1bage)\n"}, // as it is, for a program
		{true, "one    tab\n\\x1b]0;title\\atwo\\x1b[2J\n\n(im\\x1bage)\n"},
	} {
		var out bytes.Buffer
		printContent(&term.Streams{Out: &out, OutTTY: c.tty}, r)
		if out.String() != c.want {
			t.Errorf("on a terminal %v:\n%q, want\n%q", c.tty, out.String(), c.want)
		}
	}
}
