// Package session brings up a desktop without root and without a monitor: an X server on memory, a window manager, the driver in front of both, and a
// program on it where one is wanted. It looks after them: servers that die are started again, and what the desktop's programs leave behind ends with it.
//
// The package knows nothing of what the driver serves; it starts this program in that role.
package session

import (
	"io"
	"log/slog"
)

// Config says what to bring up.
type Config struct {
	Width, Height       int       // of the screen at first
	MaxWidth, MaxHeight int       // that it can be set to; at least the size at first
	Home                string    // of the user; "" is what Environ says
	OwnHome             bool      // RunAs gives the home, when it is there already, with all in it to the user
	Environ             []string  // of everything that is started
	Manager             []string  // the window manager's argv; none: no window manager
	Command             []string  // a program on the desktop; none: nothing
	Output              io.Writer // takes what they all print
	Log                 *slog.Logger
}
