package image

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/image"
)

func newRemove(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "rm REF…",
		Short: "Remove images",
		Long: `Removes images by reference, digest, or the first 12 characters of a digest, with the layers that no other image has.
An image that a sandbox runs on is refused.`,
		Example:           "  agent-env image rm debian:12",
		Args:              verb.Args("REF…"),
		ValidArgsFunction: complete(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return remove(cmd.Context(), p, args, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func remove(ctx context.Context, p *verb.Program, refs []string, asJSON bool) error {
	s, err := open(ctx, p)
	if err != nil {
		return err
	}
	out := removed{verb.V1(), []image.Entry{}, []image.Entry{}, 0, 0}
	var errs []error
	for _, ref := range refs {
		gone, err := s.Remove(ctx, ref)
		out.add(gone)
		errs = append(errs, err)
		for _, e := range gone.Images {
			if !asJSON {
				p.Streams.Printf("removed %s\n", name(e))
			}
		}
	}
	if asJSON {
		errs = append(errs, p.Streams.JSON(out))
	}
	return errors.Join(errs...)
}
