package artifact

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

type versionsOptions struct {
	id     *string
	page   verb.Page
	after  string
	asJSON *bool
}

func newVersions(p *verb.Program) *cobra.Command {
	var o versionsOptions
	cmd := &cobra.Command{
		Use:               "versions ID",
		Short:             "List the versions of an artifact, newest first",
		Example:           "  agent-env artifact versions @local/agentenv-framework/hello/greeting",
		Args:              cobra.ArbitraryArgs, // ID tells of too many and too few
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := verb.ID(cmd, args, *o.id)
			if err != nil {
				return err
			}
			return versions(cmd.Context(), p, id, o)
		},
	}
	o.id = verb.IDFlag(cmd, "`ID` of the artifact, in place of the argument")
	completeID(p, cmd)
	pageFlags(cmd, &o.page, &o.after, "versions")
	o.asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// versionListing is what --json prints.
type versionListing struct {
	verb.Format
	ID       string               `json:"id"`
	Versions []artifactstore.Info `json:"versions"`
	More     bool                 `json:"more"`
	Next     string               `json:"next,omitempty"`
}

func versions(ctx context.Context, p *verb.Program, id string, o versionsOptions) error {
	if err := checkPage(o.page, o.after); err != nil {
		return err
	}
	_, l, err := open(ctx, p)
	if err != nil {
		return err
	}
	found, err := l.Versions(ctx, id, artifactstore.Query{Limit: o.page.Limit, Offset: o.page.Offset, After: o.after})
	if err != nil {
		return err
	}
	if *o.asJSON {
		return p.Streams.JSON(versionListing{verb.V1(), id, append([]artifactstore.Info{}, found.Artifacts...), found.Next != "", found.Next})
	}
	t := term.NewTable("VERSION", "TYPE", "CREATED", "BUNDLE", "ABOUT")
	for _, i := range found.Artifacts {
		t.Row("v"+strconv.Itoa(i.Version), i.Type, verb.Time(p.Streams, i.Created), i.Bundle, short(i.About))
	}
	if err := t.Print(p.Streams); err != nil {
		return err
	}
	more(p, found.Next, o.page.Offset+len(found.Artifacts), o.after)
	return nil
}
