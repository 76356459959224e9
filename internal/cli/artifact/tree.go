package artifact

import (
	"context"
	"os"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/term"
)

func tree(p *verb.Program) *cobra.Command {
	return verb.Group("tree", "Pack folders into one file for environments that take files", newPack(p))
}

type packOptions struct {
	output string
	force  bool
	asJSON *bool
}

func newPack(p *verb.Program) *cobra.Command {
	var o packOptions
	cmd := &cobra.Command{
		Use:   "pack DIR -o FILE",
		Short: "Pack a folder into one file that is loaded as the files in it",
		Long: `Packs what a folder holds, links and modes included, into a file that a bundle's artifacts/<name>/ can hold and an environment loads as the files in it. Equal
folders make equal bytes, wherever and whenever they are packed. End the name of FILE with .tree.zip: that is how it is known.`,
		Example: "  agent-env artifact tree pack ./notes -o artifacts/notes/notes.tree.zip",
		Args:    verb.Args("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.output == "" {
				return verb.Usagef("%s needs -o FILE", cmd.CommandPath())
			}
			return pack(cmd.Context(), p, args[0], o)
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "write to this `FILE`")
	cmd.Flags().BoolVar(&o.force, "force", false, "replace FILE when it is there")
	o.asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// packed is what --json prints.
type packed struct {
	verb.Format
	File string `json:"file"`
	Size int64  `json:"size"`
}

func pack(ctx context.Context, p *verb.Program, dir string, o packOptions) error {
	if err := artifactstore.PackTreeFile(ctx, dir, o.output, o.force); err != nil {
		return err
	}
	fi, err := os.Stat(o.output)
	if err != nil {
		return err
	}
	if *o.asJSON {
		return p.Streams.JSON(packed{verb.V1(), o.output, fi.Size()})
	}
	p.Streams.Printf("%s (%s)\n", term.Clean(o.output), term.Size(fi.Size()))
	return nil
}
