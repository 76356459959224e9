package task

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/term"
)

func newList(p *verb.Program) *cobra.Command {
	var page verb.Page
	var prefix string
	var asJSON *bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List stored tasks, newest first",
		Long:    "Lists the latest version of each stored task, newest first: those that bundles wrote, and those of task create.",
		Example: "  agent-env task list --prefix @local/agentenv-framework/\n  agent-env task list --json",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), p, prefix, page, *asJSON) },
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only ids that begin with this `TEXT`")
	verb.PageFlags(cmd, &page, "tasks")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// listing is what --json prints.
type listing struct {
	verb.Format
	Tasks []listed `json:"tasks"`
	More  bool     `json:"more"` // older tasks than these exist
}

type listed struct {
	ID      string    `json:"id"`
	Version int       `json:"version"`
	Steps   int       `json:"steps"`
	Created time.Time `json:"created"`
	Bundle  string    `json:"bundle,omitempty"`
}

func list(ctx context.Context, p *verb.Program, prefix string, page verb.Page, asJSON bool) error {
	if err := page.Check(); err != nil {
		return err
	}
	_, s, err := open(ctx, p)
	if err != nil {
		return err
	}
	found, more, err := s.List(ctx, store.Task, prefix, page.Offset, page.Limit)
	if err != nil {
		return err
	}
	out := listing{Format: verb.V1(), Tasks: []listed{}, More: more}
	t := term.NewTable("TASK", "VERSION", ">STEPS", "CREATED", "BUNDLE")
	for _, x := range found {
		out.Tasks = append(out.Tasks, listed{x.ID, x.Version, x.List.Len(), x.Created, x.Owner})
		t.Row(x.ID, "v"+strconv.Itoa(x.Version), strconv.Itoa(x.List.Len()), verb.Time(p.Streams, x.Created), x.Owner)
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	if len(found) == 0 {
		p.Streams.Note("There are no such tasks. Store one with: agent-env task create FILE --id ID")
		return nil
	}
	if err := t.Print(p.Streams); err != nil {
		return err
	}
	if more {
		p.Streams.Note("There are older tasks: --offset %d shows them.", page.Offset+len(found))
	}
	return nil
}
