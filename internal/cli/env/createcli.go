package env

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/cli/verb"
)

type createOptions struct {
	id, command, providers string
	version                int
	force                  bool
	json                   *bool
}

// newMCPServer holds the verb that is about servers with tools alone.
func newMCPServer(p *verb.Program) *cobra.Command {
	return verb.Group("mcp-server", "Make commands of the tools of environments", newCreateCLI(p))
}

func newCreateCLI(p *verb.Program) *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create-cli --id ENV",
		Short: "Store a command that calls the tools of a stored environment",
		Long: `Deploys a stored environment for itself, makes a command of its tools, one subcommand each, stores it as the artifact ID__cli, and takes the environment down. The
command is one file that is run by this program, in a sandbox or anywhere that has it.

In a task, load_artifact with env_id and agent_name installs the command into the agent's sandbox, where it talks to the environment in the agent's role. By hand, it takes
the URL of a deployed environment from AGENT_ENV_GATEWAY_URL.`,
		Example: "  agent-env env mcp-server create-cli --id mail --command-name mail\n  agent-env artifact cli get --id @local/desk/mail__cli --output-dir ./mail-cli",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return createCLI(cmd.Context(), p, o) },
	}
	f := cmd.Flags()
	f.StringVar(&o.id, "id", "", "the environment's `ID`, or the last part of it")
	f.IntVar(&o.version, "version", 0, "the `VERSION` of the environment; the latest when left out")
	f.StringVar(&o.command, "command-name", "", "the `NAME` of the command; the environment's when left out")
	f.StringVar(&o.providers, "sandbox", "", "the `PROVIDER`s to try, comma-separated")
	f.BoolVar(&o.force, "force", false, "store a new version also when the latest one says the same")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// created is what --json prints.
type created struct {
	verb.Format
	ID      string `json:"id"`
	Version int    `json:"version"`
	Command string `json:"command_name"`
	New     bool   `json:"new"`
	Env     string `json:"env_id"`
	EnvV    int    `json:"env_version"`
}

func createCLI(ctx context.Context, p *verb.Program, o createOptions) error {
	switch {
	case o.id == "":
		return verb.Usagef("--id names the environment")
	case o.command != "" && !artifact.IsCommand(o.command):
		return verb.Usagef("--command-name takes letters, digits, . _ and -, with no . or - in front, not %q", o.command)
	}
	a, _, err := open(ctx, p)
	if err != nil {
		return err
	}
	e, err := a.StoredEnv(ctx, o.id, o.version)
	if err != nil {
		return err
	}
	if err := a.CheckEnv(ctx, e, o.providers); err != nil {
		return err
	}
	working, end := verb.Working(ctx, p)
	made, err := a.MakeCommand(ctx, e, o.providers, o.command, o.force, working)
	end()
	if err != nil {
		return err
	}
	if *o.json {
		return p.Streams.JSON(created{verb.V1(), made.ID, made.Version, made.Command, made.New, e.ID, e.Version})
	}
	word := "new"
	if !made.New {
		word = "unchanged"
	}
	p.Streams.Printf("%s: v%d (%s)\n", made.ID, made.Version, word)
	return nil
}
