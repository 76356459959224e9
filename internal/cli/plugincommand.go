package cli

import (
	"context"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
)

// offeredCommands are the commands of plugins that don't stand behind one of the program's own.
func offeredCommands(ctx context.Context, p *verb.Program, root *cobra.Command) []app.OfferedCommand {
	a, err := p.App()
	if err != nil {
		return nil // whoever runs one is told
	}
	return slices.DeleteFunc(a.PluginCommands(ctx), func(c app.OfferedCommand) bool {
		found, _, err := root.Find([]string{c.Name})
		return err == nil && found != root
	})
}

// pluginCommand runs a command of a plugin; done is false for what no plugin has. Nothing is looked for when the program itself knows the command.
func pluginCommand(ctx context.Context, p *verb.Program, root *cobra.Command, options *rootOptions, args []string) (done bool, err error) {
	if len(args) == 0 || args[0] == "" || strings.HasPrefix(args[0], "-") || strings.HasPrefix(args[0], "__") || args[0] == "help" {
		return false, nil
	}
	if found, _, err := root.Find(args); err != nil || found != root {
		return false, nil //nolint:nilerr // cobra tells of it
	}
	a, err := p.App()
	if err != nil {
		return false, nil //nolint:nilerr // the command is unknown all the same
	}
	if err := options.call(ctx); err != nil {
		return true, err
	}
	code, found, err := a.PluginCommand(ctx, args[0], args[1:], [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, os.Environ())
	if !found || err != nil || code == 0 {
		return found, err
	}
	return true, verb.Exit(code)
}
