package cli

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
)

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
