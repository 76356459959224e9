package artifact

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

func newShow(p *verb.Program) *cobra.Command {
	var which verb.Which
	var asJSON *bool
	cmd := &cobra.Command{
		Use:               "show ID",
		Short:             "Show an artifact and the files that it holds",
		Long:              `Shows one version of an artifact: where it came from, and its files as artifact get lays them out. With --json the stored document is part of it.`,
		Example:           "  agent-env artifact show @local/agentenv-framework/hello/greeting --version 1",
		Args:              cobra.ArbitraryArgs, // ID tells of too many and too few
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := which.ID(cmd, args)
			if err != nil {
				return err
			}
			return show(cmd.Context(), p, id, *which.Version, *asJSON)
		},
	}
	which = p.WhichFlags(cmd, "artifact", newest)
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// shown is what --json prints.
type shown struct {
	verb.Format
	artifactstore.Shown
}

func show(ctx context.Context, p *verb.Program, id string, version int, asJSON bool) error {
	_, l, err := open(ctx, p)
	if err != nil {
		return err
	}
	out, err := l.Show(ctx, id, version)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(shown{verb.V1(), out})
	}
	s := p.Streams
	line := func(what, value string) {
		if value != "" {
			s.Printf("%-9s%s\n", what, term.Clean(value))
		}
	}
	line("artifact", out.ID)
	line("version", fmt.Sprint(out.Version))
	line("type", out.Type)
	line("created", verb.Time(s, out.Created))
	line("bundle", out.Bundle)
	line("about", out.About)
	if out.Layout != "" {
		s.Problem("Warning: its files can't be shown: %s", out.Layout)
	}
	if len(out.Files) == 0 {
		return nil
	}
	line("files", fmt.Sprintf("%d, %s", len(out.Files), term.Size(out.Size)))
	t := term.NewTable("MODE", ">SIZE", "PATH")
	for _, f := range out.Files {
		switch {
		case f.Link != "":
			t.Row("link", "", f.Path+" -> "+f.Link)
		case f.Folder:
			t.Row("folder", "", f.Path+"/")
		default:
			t.Row(fmt.Sprintf("%04o", f.Mode), term.Size(f.Size), f.Path)
		}
	}
	return t.Print(s)
}
