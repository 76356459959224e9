package plugin

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

func newVendor(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "vendor DIR",
		Short: "Write the workspace's git plugins into a mirror",
		Long: `Writes the files of everything that plugins.lock names into a folder, each once, with an index of which commit of which source they are. Named as mirror in
[git_plugins.sources], by its absolute path or by the https:// address that it is served at, the folder is asked before any source: install, sync and update of what it has need no
network, and bring the same bytes. Several workspaces may share one.`,
		Example: "  agent-env plugin vendor /srv/plugins",
		Args:    verb.Args("DIR"),
		RunE:    func(cmd *cobra.Command, args []string) error { return vendor(cmd.Context(), p, args[0], *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// vendored is a row as vendor --json prints it.
type vendored struct {
	ID     string `json:"id"`
	Kind   string `json:"kind"` // plugin or bundle
	Source string `json:"source_url"`
	Ref    string `json:"requested_ref"`
	Commit string `json:"resolved_sha"`
	Tree   string `json:"tree_sha256"`
	Fresh  bool   `json:"written"` // its files weren't in the mirror yet
}

func vendor(ctx context.Context, p *verb.Program, dir string, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	done, err := a.Git().Vendor(ctx, dir)
	if err != nil {
		return err
	}
	rows := []vendored{}
	for _, v := range done {
		r := vendored{v.ID, "plugin", v.Source.String(), v.Ref, v.Commit, v.Tree, v.Fresh}
		if v.Bundle {
			r.Kind = "bundle"
		}
		rows = append(rows, r)
	}
	if asJSON {
		return p.Streams.JSON(struct {
			verb.Format
			Plugins []vendored `json:"plugins"`
		}{verb.V1(), rows})
	}
	for _, r := range rows {
		word := map[bool]string{true: "written", false: "there already"}[r.Fresh]
		p.Streams.Printf("%s: %s (%s)\n", term.Clean(r.ID), word, short(r.Commit))
	}
	if len(rows) == 0 {
		p.Streams.Note("Nothing is installed from git.")
	}
	return nil
}
