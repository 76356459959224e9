package verb

import (
	"bytes"
	"errors"
	"testing"

	"agentenv.internal/agentenv/internal/term"
)

func TestWarningsAreForPeople(t *testing.T) {
	for _, tt := range []struct {
		verbose bool
		want    string
	}{{false, "Warning: release the run: the disk is full (run b/t-1, tries 2)\n"}, {true, "level=WARN"}} {
		var out, err bytes.Buffer
		s := &term.Streams{Out: &out, Err: &err, Verbose: tt.verbose}
		log := NewProgram(s, nil).Logger()
		log.Info("not for people")
		log.With("run", "b/t-1").Warn("release the run", "error", errors.New("the disk is full"), "tries", 2)
		got := err.String()
		if tt.verbose && !bytes.Contains(err.Bytes(), []byte(tt.want)) || !tt.verbose && got != tt.want {
			t.Errorf("verbose %v: %q, want %q", tt.verbose, got, tt.want)
		}
	}
}
