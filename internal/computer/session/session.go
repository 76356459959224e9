// Package session brings up a desktop without root and without a monitor: an X server on memory, a window manager, the driver in front of both, and a
// program on it where one is wanted. It looks after them: servers that die are started again, and what the desktop's programs leave behind ends with it.
//
// Apps are installed into the home and their servers started beside the driver, which is told where they answer.
//
// The package knows nothing of what the driver and the apps serve; it starts this program in those roles.
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
	Driver              []string  // the driver's argv; none: this program's own
	Skill               string    // the folder of the skill that this program's driver serves; "" for none
	Apps                []App     // in the order in which they are installed and started
	Output              io.Writer // takes what they all print
	Log                 *slog.Logger
}

// App is an app of the desktop: a server, which the driver stands in front of. It is started again when it dies.
type App struct {
	Name    string   // of its environment
	Dir     string   // its folder, where its programs start
	Install []string // run once in a home, before the server is started the first time; none: nothing
	Server  []string // the server's argv; none: this program's, which serves the folder
	Paths   []string // of its data, relative to the home
	Skill   string   // the folder below Dir of the skill that this program's server serves; "": that which the folder's files name
}
