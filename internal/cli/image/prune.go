package image

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/term"
)

func newPrune(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var keep int64
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the images that were used longest ago",
		Long: `Removes images, those that were used longest ago first, until the rest takes at most --keep MB; those that nothing names any more, and
what broken downloads left, go in any case. An image that a sandbox runs on stays. Every pull does this with sandbox.images.cap_mb.`,
		Example: "  agent-env image prune --keep 10000\n  agent-env image prune",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return prune(cmd.Context(), p, keep, *asJSON) },
	}
	cmd.Flags().Int64Var(&keep, "keep", 0, "keep up to this much, in `MB`")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func prune(ctx context.Context, p *verb.Program, keep int64, asJSON bool) error {
	const most = 1 << 40 // MB, so that it can be counted in bytes
	if keep < 0 || keep > most {
		return verb.Usagef("--keep is a number of MB from 0 to %d", int64(most))
	}
	s, err := open(ctx, p)
	if err != nil {
		return err
	}
	gone, err := s.Prune(ctx, keep<<20)
	out := removed{verb.V1(), []image.Entry{}, []image.Entry{}, 0, 0}
	out.add(gone)
	if asJSON {
		return errors.Join(err, p.Streams.JSON(out))
	}
	for _, e := range gone.Images {
		p.Streams.Printf("removed %s\n", name(e))
	}
	for _, e := range gone.Busy {
		p.Streams.Note("%s stays: a sandbox runs on it.", name(e))
	}
	p.Streams.Note("Freed %s; %s of images are left.", term.Size(gone.Bytes), term.Size(gone.Left))
	return err
}
