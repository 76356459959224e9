package cli

import (
	"errors"
	"fmt"
	"testing"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

// TestReport: "Error: " once, whatever an error is made of, and nothing of it lost.
func TestReport(t *testing.T) {
	list := diag.List{{Summary: "b"}, {Summary: "a"}, {Severity: diag.Warning, Summary: "w"}, {Severity: diag.Hint, Summary: "h"}}
	for _, c := range []struct {
		err  error
		code int
		want string
	}{
		{nil, 0, ""},
		{verb.Exit(3), 3, ""},
		{errors.New("x"), 1, "Error: x\n"},
		{verb.Usagef("say more"), 2, "Error: say more\n"},
		{list.Err(), 1, "Warning: w\nError: a\nb\nHint: h\n"},
		{fmt.Errorf("while: %w", errors.New("x")), 1, "Error: while: x\n"},
		{errors.Join(errors.New("x"), errors.Join(nil, errors.New("y"))), 1, "Error: x\ny\n"},
		{errors.Join(verb.Exit(3), errors.New("close the store")), 3, "Error: close the store\n"},
	} {
		s, out, stderr := term.Buffers("")
		if code := report(s, c.err); code != c.code || stderr.String() != c.want || out.Len() > 0 {
			t.Errorf("%v: %d and %q, want %d and %q", c.err, code, stderr.String(), c.code, c.want)
		}
	}
}
