// Package computer is the commands of desktops: the driver of one that stands, and a whole session.
package computer

import (
	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
)

// New is the noun.
func New(p *verb.Program) *cobra.Command {
	cmd := verb.Group("computer", "Desktops that agents see and work with mouse and keyboard", newDriver(p), newSession(p), newRecord(p), newApp(p))
	cmd.Long = `A computer is an environment that is a whole desktop. Its driver is the server that captures the screen, sends input, runs commands and moves
files; a session is an X server, a window manager and the driver, without root and without a monitor; an app is a program on it with data of its own.`
	return cmd
}
