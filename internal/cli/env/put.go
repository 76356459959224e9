package env

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/env"
)

type putOptions struct {
	name           string
	fromDockerfile bool
	dryRun         bool
	json           *bool
}

func newPut(p *verb.Program) *cobra.Command {
	var o putOptions
	cmd := &cobra.Command{
		Use:   "put ID FOLDER",
		Short: "Store a folder as the next version of an environment",
		Long: `Stores a folder with a Dockerfile, or with an env.toml that says what it is made of, as an environment under a local id (@local/…): what a bundle with that folder in its
envs/ would write, by the same checks. A folder that has not changed is not written again.

With --process-from-dockerfile, a process.toml is written into the folder first, so that the server runs without an image: what its Dockerfile does, where that is simple.`,
		Example: "  agent-env env put @local/desk/mail ./mail\n  agent-env env put @local/desk/mail ./mail --process-from-dockerfile",
		Args:    verb.Args("ID", "FOLDER"),
		RunE:    func(cmd *cobra.Command, args []string) error { return put(cmd.Context(), p, args[0], args[1], o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.name, "environment-name", "", "the `NAME` of its server; that of its card in the sources when left out")
	f.BoolVar(&o.fromDockerfile, "process-from-dockerfile", false, "write process.toml from the folder's Dockerfile first")
	f.BoolVar(&o.dryRun, "dry-run", false, "check everything and tell what would be written; write nothing")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func put(ctx context.Context, p *verb.Program, id, folder string, o putOptions) error {
	f := verb.FolderPut{Group: "envs", What: "an environment", ID: id, Folder: folder, Flags: "--environment-name", DryRun: o.dryRun, JSON: *o.json}
	if err := f.CheckPut(); err != nil {
		return err
	}
	if o.fromDockerfile {
		if err := writeProcess(p, folder, o.dryRun); err != nil {
			return err
		}
	}
	a, _, err := open(ctx, p)
	if err != nil {
		return err
	}
	if o.name != "" {
		f.More = map[string][]byte{"env.toml": []byte("environment_name = " + strconv.Quote(o.name) + "\n")}
	}
	return p.PutFolder(ctx, a, f)
}

// writeProcess writes process.toml from the folder's Dockerfile, unless it is there.
func writeProcess(p *verb.Program, folder string, dryRun bool) error {
	to := filepath.Join(folder, env.ProcessFile)
	if _, err := os.Lstat(to); err == nil {
		return fmt.Errorf("%s is there already; take it away to write it anew", to)
	}
	from := filepath.Join(folder, "Dockerfile")
	src, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s has no Dockerfile", folder)
	}
	if err != nil {
		return err
	}
	text, l := env.ProcessOf(from, src)
	if err := l.Err(); err != nil {
		return err
	}
	if dryRun {
		p.Streams.Note("Would write %s:\n%s", to, text)
		return nil
	}
	if err := atomicfile.CreateBytes(to, 0o644, []byte(text)); err != nil {
		return err
	}
	p.Streams.Note("Wrote %s", to)
	return nil
}
