package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/agent"
	"agentenv.internal/agentenv/internal/cli/artifact"
	"agentenv.internal/agentenv/internal/cli/bundle"
	"agentenv.internal/agentenv/internal/cli/computer"
	"agentenv.internal/agentenv/internal/cli/config"
	"agentenv.internal/agentenv/internal/cli/env"
	"agentenv.internal/agentenv/internal/cli/eval"
	"agentenv.internal/agentenv/internal/cli/gateway"
	"agentenv.internal/agentenv/internal/cli/image"
	"agentenv.internal/agentenv/internal/cli/plugin"
	"agentenv.internal/agentenv/internal/cli/runs"
	"agentenv.internal/agentenv/internal/cli/sandbox"
	"agentenv.internal/agentenv/internal/cli/schema"
	"agentenv.internal/agentenv/internal/cli/task"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/cli/workspace"
)

// newRoot builds the whole command tree. Nothing is opened or read for it: a command that needs the program's parts asks p for them.
func newRoot(p *verb.Program) *cobra.Command {
	var version, verbose bool
	var color string
	root := &cobra.Command{
		Use:   "agent-env",
		Short: "Run agent environments in isolated sandboxes and score what happened",
		Long: `agent-env takes a folder (a bundle) of environments, data, agents and tasks, starts what its tasks need in isolated
sandboxes, and scores the outcome.

  agent-env run hello          runs a bundle that comes with this program
  agent-env run ./my-bundle    runs a folder
  agent-env doctor             tells what works on this machine`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			p.Streams.Verbose = verbose
			if verbose && p.Streams.Quiet {
				return verb.Usagef("--verbose and --quiet exclude each other")
			}
			if err := p.Streams.SetColor(color); err != nil {
				return verb.Usagef("%w", err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if version {
				p.Streams.Printf("agent-env %s (agentenv-framework %s, protocol %s)\n", app.Version, app.FrameworkVersion, app.ProtocolVersion)
				return nil
			}
			if len(args) > 0 {
				return verb.Unknown(cmd, args[0])
			}
			return cmd.Help()
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return verb.Usagef("%s; see %s --help", flagProblem(err), cmd.CommandPath())
	})
	root.Flags().BoolVar(&version, "version", false, "print the version and what it counts as for requirements")
	pf := root.PersistentFlags()
	pf.BoolVarP(&verbose, "verbose", "v", false, "say more about what is being done")
	pf.BoolVarP(&p.Streams.Quiet, "quiet", "q", false, "say nothing but results and problems")
	pf.StringVar(&color, "color", "auto", "colour the output `WHEN`: auto, always or never")
	offered := func(ctx context.Context) []app.OfferedCommand { return offeredCommands(ctx, p, root) }
	setHelp(root, p.Streams, offered)
	root.ValidArgsFunction = func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		var out []string
		if len(args) == 0 {
			for _, c := range offered(cmd.Context()) {
				out = append(out, c.Name+"\t"+c.About)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	root.AddCommand(commands(p)...)
	p.Install = plugin.Install(p, root)
	return root
}

// flagProblem says what is wrong with a flag; of a number that can't be read, in words of this program.
func flagProblem(err error) string {
	value, isValue := errors.AsType[*pflag.InvalidValueError](err)
	number, isNumber := errors.AsType[*strconv.NumError](err)
	if !isValue || !isNumber {
		return strings.TrimSuffix(err.Error(), ".")
	}
	kind := "a whole number"
	if strings.HasPrefix(value.GetFlag().Value.Type(), "float") {
		kind = "a number"
	}
	if errors.Is(number, strconv.ErrRange) {
		return fmt.Sprintf("--%s takes %s, and %s is too large or too small", value.GetFlag().Name, kind, value.GetValue())
	}
	return fmt.Sprintf("--%s takes %s, not %q", value.GetFlag().Name, kind, value.GetValue())
}

func commands(p *verb.Program) []*cobra.Command {
	return []*cobra.Command{
		newRun(p),
		bundle.New(p),
		artifact.New(p),
		task.New(p),
		eval.New(p),
		runs.New(p),
		agent.New(p),
		env.New(p),
		sandbox.New(p),
		image.New(p),
		gateway.New(p),
		computer.New(p),
		plugin.New(p),
		workspace.New(p),
		newUp(p),
		config.New(p),
		schema.New(p),
		newConform(p),
		newDoctor(p),
		newServe(p),
		newToolCommand(p),
		newCompletion(p),
	}
}
