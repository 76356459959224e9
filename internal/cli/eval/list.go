package eval

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
		Short:   "List stored evals, newest first",
		Long:    "Lists the latest version of each stored eval, newest first: those that bundles wrote, and those of eval create.",
		Example: "  agent-env eval list --limit 5\n  agent-env eval list --json",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), p, prefix, page, *asJSON) },
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only ids that begin with this `TEXT`")
	verb.PageFlags(cmd, &page, "evals")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// listing is what --json prints.
type listing struct {
	verb.Format
	Evals []listed `json:"evals"`
	More  bool     `json:"more"` // older evals than these exist
}

type listed struct {
	ID      string    `json:"id"`
	Version int       `json:"version"`
	Tasks   int       `json:"tasks"`
	Created time.Time `json:"created"`
	Bundle  string    `json:"bundle,omitempty"`
}

func list(ctx context.Context, p *verb.Program, prefix string, page verb.Page, asJSON bool) error {
	if err := page.Check(); err != nil {
		return err
	}
	s, err := open(ctx, p)
	if err != nil {
		return err
	}
	found, more, err := s.List(ctx, store.Eval, prefix, page.Offset, page.Limit)
	if err != nil {
		return err
	}
	out := listing{Format: verb.V1(), Evals: []listed{}, More: more}
	t := term.NewTable("EVAL", "VERSION", ">TASKS", "CREATED", "BUNDLE")
	for _, x := range found {
		out.Evals = append(out.Evals, listed{x.ID, x.Version, x.List.Len(), x.Created, x.Owner})
		t.Row(x.ID, "v"+strconv.Itoa(x.Version), strconv.Itoa(x.List.Len()), verb.Time(p.Streams, x.Created), x.Owner)
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	if len(found) == 0 {
		p.Streams.Note("There are no such evals. Store one with: agent-env eval create FILE --id ID")
		return nil
	}
	if err := t.Print(p.Streams); err != nil {
		return err
	}
	if more {
		p.Streams.Note("There are older evals: --offset %d shows them.", page.Offset+len(found))
	}
	return nil
}
