package sandbox

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/term"
)

type logsOptions struct {
	follow bool
	tail   int
	json   *bool
}

func newLogs(p *verb.Program) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:   "logs SANDBOX",
		Short: "Print what the programs of a sandbox have written",
		Long: `Prints what the program of a sandbox has written to its output: the server of an environment, the program of an agent or of a container, as long as the sandbox
is there. The newest two to four megabytes are kept, and no secrets. Commands that agent-env sandbox exec runs write to their own terminal and not here; what the steps of a run
have done is in agent-env runs logs.`,
		Example:           "  agent-env sandbox logs 'env mail' --tail 20\n  agent-env sandbox logs b123 --follow",
		Args:              verb.Args("SANDBOX"),
		ValidArgsFunction: completeIDs(p, false),
		RunE:              func(cmd *cobra.Command, args []string) error { return logs(cmd.Context(), p, args[0], o) },
	}
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "wait for more until the sandbox has gone")
	cmd.Flags().IntVarP(&o.tail, "tail", "n", -1, "only the last `LINES`")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// written is what --json prints.
type written struct {
	verb.Format
	ID     string `json:"sandbox_id"`
	Output string `json:"output"`
}

func logs(ctx context.Context, p *verb.Program, text string, o logsOptions) error {
	if *o.json && o.follow {
		return verb.Usagef("--json prints what there is now; leave --follow out")
	}
	a, err := open(ctx, p)
	if err != nil {
		return err
	}
	info, path, err := a.BoxOutput(ctx, text)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	shown := last(b, o.tail)
	if *o.json {
		return p.Streams.JSON(written{verb.V1(), info.ID, strings.ToValidUTF8(string(shown), "\uFFFD")})
	}
	show(p.Streams, shown)
	if !o.follow {
		if len(b) == 0 {
			p.Streams.Note("Nothing was written.")
		}
		return nil
	}
	there := func() bool {
		now, _, err := a.BoxOutput(ctx, info.ID)
		return err == nil && now.State != sandbox.StateDead
	}
	return followOutput(ctx, p.Streams, path, int64(len(b)), there)
}

// last is the end of an output, as many lines as are asked for; fewer than none asks for all.
func last(b []byte, lines int) []byte {
	if lines < 0 {
		return b
	}
	end := len(bytes.TrimSuffix(b, []byte("\n")))
	at := end
	for range lines {
		if at < 0 {
			break
		}
		at = bytes.LastIndexByte(b[:at], '\n')
	}
	if lines == 0 {
		return nil
	}
	return b[at+1:]
}

// show prints an output as it is; to a terminal, which would obey what is hidden in it, escaped.
func show(s *term.Streams, b []byte) {
	if !s.OutTTY {
		s.Printf("%s", b)
		return
	}
	for line := range strings.Lines(strings.ToValidUTF8(string(b), "\uFFFD")) {
		s.Printf("%s\n", term.Clean(strings.TrimRight(strings.ReplaceAll(line, "\t", "    "), "\r\n")))
	}
}

// lookPause is how often an output is looked at.
const lookPause = 200 * time.Millisecond

// followOutput prints what comes after at until the sandbox has gone.
func followOutput(ctx context.Context, s *term.Streams, path string, at int64, there func() bool) error {
	for gone := false; ; {
		n, err := more(s, path, at)
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return err
		default:
			at = n
		}
		if gone {
			return nil
		}
		t := time.NewTimer(lookPause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
		gone = !there() // one look more, at what it wrote last
	}
}

// more prints what an output has from a position on, and answers where it ends. One that has become shorter has lost its older half: all of it is printed.
func more(s *term.Streams, path string, at int64) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return at, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return at, err
	}
	if info.Size() < at {
		at = 0
	}
	b, err := io.ReadAll(io.NewSectionReader(f, at, info.Size()-at))
	if err != nil {
		return at, err
	}
	show(s, b)
	return at + int64(len(b)), nil
}
