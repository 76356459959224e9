package cli

import (
	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
)

func newCompletion(p *verb.Program) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a shell's completion script",
		Long: `Prints a script that makes the shell complete commands, flags, bundle names and ids.

For bash, add this line to ~/.bashrc; for zsh and fish do the same with their name and start-up file:

  source <(agent-env completion bash)`,
		Example:   "  agent-env completion bash > /etc/bash_completion.d/agent-env\n  agent-env completion fish > ~/.config/fish/completions/agent-env.fish",
		Args:      verb.Args("SHELL"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch args[0] {
			case "bash":
				return cmd.Root().GenBashCompletionV2(p.Streams.Out, true)
			case "zsh":
				return cmd.Root().GenZshCompletion(p.Streams.Out)
			case "fish":
				return cmd.Root().GenFishCompletion(p.Streams.Out, true)
			default:
				return verb.Usagef("completion knows bash, zsh and fish, not %q", args[0])
			}
		},
	}
}
