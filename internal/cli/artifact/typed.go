package artifact

import (
	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/cli/verb"
)

// typedPut is `put` of one type: its id comes as --id or as the first argument, its paths as the other arguments or by a flag. what is how the
// arguments are called.
func typedPut(p *verb.Program, name, what, short string, put *artifactstore.Put, more func(cmd *cobra.Command) (paths func() []string)) *cobra.Command {
	var id *string
	var asJSON *bool
	var flagged func() []string
	cmd := &cobra.Command{
		Use:   name + " [ID] " + what,
		Short: short,
		Long:  short + ". It does what agent-env artifact put " + put.Type + " does; see there what is kept and how references are written.",
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			put.ID = *id
			if put.ID == "" {
				if len(args) == 0 {
					return verb.Usagef("%s needs an id, as its first argument or by --id; see %s --help", cmd.CommandPath(), cmd.CommandPath())
				}
				put.ID, args = args[0], args[1:]
			}
			put.Paths = args
			for _, path := range flagged() {
				if path != "" {
					put.Paths = append(put.Paths, path)
				}
			}
			return store(cmd.Context(), p, *put, *asJSON)
		},
	}
	id = verb.IDFlag(cmd, "`ID` of the artifact, in place of the first argument")
	completeID(p, cmd)
	flagged = more(cmd)
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// none are the paths of a type that has no flag for them.
func none() []string { return nil }

// folderFlag is a flag that names the folder to put.
func folderFlag(cmd *cobra.Command, name string) func() []string {
	dir := cmd.Flags().String(name, "", "the `DIR` to store, in place of an argument")
	return func() []string { return []string{*dir} }
}

func environment(p *verb.Program) *cobra.Command {
	put := artifactstore.Put{Type: artifact.Environment}
	return verb.Group("environment", "Store data for one environment",
		typedPut(p, "put", "FILE", "Store a file, or a folder packed into one, as data for an environment", &put, func(cmd *cobra.Command) func() []string {
			f := cmd.Flags()
			f.StringVar(&put.EnvironmentName, "environment-name", "", "the `NAME` of the environment that the data is for")
			f.StringVar(&put.Description, "description", "", "what the file is, as `TEXT`; its name when left out")
			f.StringVar(&put.Tree, "tree", "", "a `DIR` that is packed into one file, in place of FILE")
			f.StringVar(&put.File, "file", "", "a stored file as `ID[:VERSION]`, in place of FILE")
			return none
		}))
}

func universe(p *verb.Program) *cobra.Command {
	put := artifactstore.Put{Type: artifact.EnvironmentUniverse}
	return verb.Group("environment-universe", "Store and fetch environments that belong together",
		typedPut(p, "put", "[DIR]", "Store a folder of environments, stored environments, or both as a universe", &put, func(cmd *cobra.Command) func() []string {
			f := cmd.Flags()
			f.StringArrayVar(&put.Environments, "environment-artifact", nil, "a stored environment as `ID[:VERSION]`; repeatable")
			f.StringArrayVar(&put.Metadata, "metadata", nil, "a file of the metadata as `KEY=FILE`; repeatable")
			return none
		}),
		newGet(p, "environment universe"))
}

func files(p *verb.Program) *cobra.Command {
	folder := artifactstore.Put{Type: artifact.FileUniverse}
	members := artifactstore.Put{Type: artifact.FileUniverse}
	return verb.Group("file-artifact-universe", "Store and fetch files that belong together",
		typedPut(p, "put", "[PATH…]", "Store files, folders, or stored files as a universe", &members, func(cmd *cobra.Command) func() []string {
			cmd.Flags().StringArrayVar(&members.Members, "file-artifact", nil, "a stored file as `ID[:VERSION]`, in place of paths; repeatable")
			return none
		}),
		typedPut(p, "put-bundled", "DIR", "Store what a folder holds as a universe", &folder, func(cmd *cobra.Command) func() []string {
			return folderFlag(cmd, "file-dir")
		}),
		newGet(p, "universe of files"), newGetMany(p), newList(p, artifact.FileUniverse))
}

func skill(p *verb.Program) *cobra.Command {
	put := artifactstore.Put{Type: artifact.Skill}
	return verb.Group("skill", "Store and fetch skills",
		typedPut(p, "put", "DIR", "Store a folder with SKILL.md as a skill", &put, func(cmd *cobra.Command) func() []string { return folderFlag(cmd, "skill-dir") }),
		newGet(p, "artifact of type skill"))
}

func command(p *verb.Program) *cobra.Command {
	put := artifactstore.Put{Type: artifact.CLI}
	return verb.Group("cli", "Store and fetch commands that agents get",
		typedPut(p, "put", "DIR", "Store a folder with a command", &put, func(cmd *cobra.Command) func() []string {
			f := cmd.Flags()
			f.StringVar(&put.Entrypoint, "entrypoint", "", "the `FILE` of the folder that the command runs")
			f.StringVar(&put.Command, "command-name", "", "the `NAME` that the command gets")
			f.StringVar(&put.Env, "env-id", "", "the environment that it was made from, as `ID[:VERSION]`")
			return folderFlag(cmd, "cli-dir")
		}),
		newGet(p, "artifact of type cli"))
}
