package task

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
		Short: "Print the steps of a stored task",
		Long: `Prints the steps of a task as JSON: what task create takes. With --json the object around them is printed, on one line, with the version and where it
came from.`,
		Example:           "  agent-env task get mail/smoke > smoke.json\n  agent-env task get mail/smoke --version 2 --json",
		Args:              cobra.ArbitraryArgs, // ID tells of too many and too few
		ValidArgsFunction: completeIDs(p, cobra.ShellCompDirectiveNoFileComp),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := which.ID(cmd, args)
			if err != nil {
				return err
			}
			return get(cmd.Context(), p, id, *which.Version, *asJSON)
		},
	}
	which = p.WhichFlags(cmd, "task", verb.Stored(store.Task))
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
	Steps   json.RawMessage `json:"steps"`
}

func get(ctx context.Context, p *verb.Program, id string, version int, asJSON bool) error {
	_, s, err := open(ctx, p)
	if err != nil {
		return err
	}
	t, err := s.Get(ctx, store.Task, id, version)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(got{verb.V1(), t.ID, t.Version, t.Created, t.Owner, doc.JSON(t.List)})
	}
	steps := make([]any, 0, t.List.Len())
	for _, step := range t.List.Items() {
		steps = append(steps, headed(step))
	}
	p.Streams.Printf("%s\n", doc.JSONIndent(doc.Build(steps)))
	return nil
}

// headed is a step with its id and type in front, for people: stored documents have the names of members sorted.
func headed(step doc.Node) doc.Node {
	var out doc.Node
	for _, name := range []string{"id", "type"} {
		if v := step.Get(name); v.Exists() {
			out = out.With(name, v)
		}
	}
	for name, v := range step.Members() {
		if name != "id" && name != "type" {
			out = out.With(name, v)
		}
	}
	return out
}
