package eval

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/store"
)

func newGet(p *verb.Program) *cobra.Command {
	var which verb.Which
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "get ID",
		Short: "Print the tasks of a stored eval",
		Long: `Prints the tasks of an eval as JSON: what eval create takes. With --json the object around them is printed, on one line, with the version and where it
came from.`,
		Example:           "  agent-env eval get mail/nightly > nightly.json\n  agent-env eval get mail/nightly --version 2 --json",
		Args:              cobra.ArbitraryArgs, // ID tells of too many and too few
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := which.ID(cmd, args)
			if err != nil {
				return err
			}
			return get(cmd.Context(), p, id, *which.Version, *asJSON)
		},
	}
	which = p.WhichFlags(cmd, "eval", verb.Stored(store.Eval))
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// got is what --json prints.
type got struct {
	verb.Format
	ID      string          `json:"id"`
	Version int             `json:"version"`
	Created time.Time       `json:"created"`
	Bundle  string          `json:"bundle,omitempty"` // that wrote it
	Tasks   json.RawMessage `json:"tasks"`
}

func get(ctx context.Context, p *verb.Program, id string, version int, asJSON bool) error {
	s, err := open(ctx, p)
	if err != nil {
		return err
	}
	e, err := s.Get(ctx, store.Eval, id, version)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(got{verb.V1(), e.ID, e.Version, e.Created, e.Owner, doc.JSON(e.List)})
	}
	p.Streams.Printf("%s\n", doc.JSONIndent(e.List))
	return nil
}
