package image

import (
	"context"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/term"
)

func newList(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the images that are here",
		Long: `Lists the images that sandboxes can start from without a download. Images share layers: OWN is what removing an image gives back,
SIZE what all its files take.`,
		Example: "  agent-env image list\n  agent-env image list --json",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), p, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// listing is what --json prints.
type listing struct {
	verb.Format
	Images []image.Entry `json:"images"`
}

func list(ctx context.Context, p *verb.Program, asJSON bool) error {
	s, err := open(ctx, p)
	if err != nil {
		return err
	}
	all, err := s.List(ctx)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(listing{verb.V1(), append([]image.Entry{}, all...)})
	}
	if len(all) == 0 {
		p.Streams.Note("There are no images.")
		return nil
	}
	t := term.NewTable("IMAGE", "DIGEST", "LAYERS", "SIZE", "OWN", "USED")
	for _, e := range all {
		used := time.Since(e.LastUsed).Round(time.Minute).String() + " ago"
		switch {
		case e.InUse:
			used = "now"
		case time.Since(e.LastUsed) < time.Minute:
			used = "just now"
		}
		refs := append([]string{}, e.Refs...)
		if len(refs) == 0 {
			refs = []string{"-"}
		}
		for _, r := range refs {
			t.Row(r, short(e.Digest), strconv.Itoa(e.Layers), term.Size(e.Bytes), term.Size(e.Own), used)
		}
	}
	return t.Print(p.Streams)
}

// short is what tells a digest apart for people.
func short(digest string) string {
	const shown = len("sha256:") + 12
	return digest[:min(len(digest), shown)]
}
