package sandbox

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/term"
)

type listOptions struct {
	limit, offset int
	json          *bool
}

func newList(p *verb.Program) *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List sandboxes, newest first",
		Example: "  agent-env sandbox list\n  agent-env sandbox list --json",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), p, o) },
	}
	cmd.Flags().IntVar(&o.limit, "limit", 100, "at most `N` sandboxes")
	cmd.Flags().IntVar(&o.offset, "offset", 0, "leave out the newest `N` sandboxes")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// listing is what --json prints.
type listing struct {
	verb.Format
	Boxes []sandbox.Info `json:"sandboxes"`
	More  bool           `json:"more"`
}

func list(ctx context.Context, p *verb.Program, o listOptions) error {
	if o.limit < 1 || o.offset < 0 {
		return verb.Usagef("--limit is at least 1, --offset at least 0")
	}
	a, err := open(ctx, p)
	if err != nil {
		return err
	}
	boxes, err := a.Boxes(ctx)
	if err != nil {
		return err
	}
	boxes = boxes[min(o.offset, len(boxes)):]
	out := listing{Format: verb.V1(), Boxes: append([]sandbox.Info{}, boxes[:min(o.limit, len(boxes))]...), More: len(boxes) > o.limit}
	if *o.json {
		return p.Streams.JSON(out)
	}
	if len(out.Boxes) == 0 {
		p.Streams.Note("There are no sandboxes.")
		return nil
	}
	t := term.NewTable("SANDBOX", "PROVIDER", "NAME", "STATE", "LIVES", "RUN")
	for _, b := range out.Boxes {
		t.Row(b.ID, b.Provider, b.Name, state(b), lives(b, time.Now()), b.Run)
	}
	return t.Print(p.Streams)
}

// state says of a dead sandbox what it died of.
func state(b sandbox.Info) string {
	if b.Cause == "" {
		return b.State
	}
	return b.State + " (" + b.Cause + ")"
}

// lives says how long a sandbox goes on.
func lives(b sandbox.Info, now time.Time) string {
	switch {
	case b.State == sandbox.StateDead:
		return ""
	case b.Tied:
		return fmt.Sprintf("with process %d", b.OwnerPID)
	case b.Expires.IsZero():
		return ""
	default:
		return max(b.Expires.Sub(now).Round(time.Second), 0).String()
	}
}
