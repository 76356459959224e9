package image

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/image"
)

func newPull(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "pull REF",
		Short: "Get an image, or its newest version",
		Long: `Gets an image and unpacks it for local sandboxes; layers that are here already are not fetched again. REF is one of
  NAME[:TAG][@DIGEST]        an image of a registry, signed in to as docker login and podman login do
  oci:DIR[:TAG]              an OCI layout
  docker-archive:FILE[:TAG]  what docker save writes, a layout in a tar, or a tar of a root's files
  docker-daemon:NAME         an image of the engine that DOCKER_HOST names
  ./PATH, /PATH              a layout or an archive, by what is there
A sandbox that starts from an image that is not here gets it by itself; this command also looks whether a tag names another image by now.`,
		Example: "  agent-env image pull debian:12\n  agent-env image pull ./build/app.tar",
		Args:    verb.Args("REF"),
		RunE:    func(cmd *cobra.Command, args []string) error { return pull(cmd.Context(), p, args[0], *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// pulled is what --json prints.
type pulled struct {
	verb.Format
	Ref    string       `json:"ref"` // with the digest
	Digest string       `json:"digest"`
	Layers int          `json:"layers"`
	Owners string       `json:"owners"`
	Config image.Config `json:"config"`
}

func pull(ctx context.Context, p *verb.Program, ref string, asJSON bool) error {
	s, err := open(ctx, p)
	if err != nil {
		return err
	}
	progress, done := verb.Download(ctx, p, ref)
	root, release, err := s.Pull(ctx, ref, progress)
	done()
	if err != nil {
		return err
	}
	defer release()
	if asJSON {
		return p.Streams.JSON(pulled{verb.V1(), root.Ref, root.Digest, len(root.Layers), root.Owners, root.Config})
	}
	p.Streams.Printf("%s\n", root.Ref)
	if root.Owners == image.OwnersOne && root.Unowned > 0 {
		p.Streams.Note("%s of it could not keep their owner: give yourself a range of ids in /etc/subuid and /etc/subgid and install the package uidmap, or use root.",
			diag.Count(root.Unowned, "file"))
	}
	return nil
}
