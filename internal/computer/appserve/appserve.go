// Package appserve runs the server of a computer app whose folder says what the app is: ours, with the programs of the folder as hooks, or the app's own.
//
// What a folder may say is appdir's; the contract around data calls is that of sdk/computer/app.
package appserve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"agentenv.internal/agentenv/internal/computer/appdir"
	"agentenv.internal/agentenv/sdk/computer/app"
	"agentenv.internal/agentenv/sdk/computer/home"
	"agentenv.internal/agentenv/sdk/wire"
)

// Config is how an app is served.
type Config struct {
	Folder  string               // of the app
	Home    string               // of the session's user
	Socket  string               // "" is <home>/.agentenv/apps/<name>.sock
	Port    int                  // of 127.0.0.1 in place of the socket, 0 for one that is free; below 0: the socket
	Launch  bool                 // launch the app too
	Environ []string             // of the app and its programs
	Output  io.Writer            // what a server of the app's own says
	Log     *slog.Logger         // nil: tells nothing
	Serving func(address string) // is told once the server answers; may be nil
}

// Serve serves an app until ctx ends, and stops it then.
func Serve(ctx context.Context, a *appdir.App, c Config) error {
	var err error
	if c.Folder, err = filepath.Abs(c.Folder); err == nil {
		c.Home, err = filepath.Abs(c.Home)
	}
	if err == nil {
		c.Home, err = filepath.EvalSymlinks(c.Home)
	}
	if err != nil {
		return fmt.Errorf("serve the app %s: %w", a.Name, err)
	}
	if c.Serving == nil {
		c.Serving = func(string) {}
	}
	if c.Socket == "" {
		c.Socket = filepath.Join(c.Home, home.Private, "apps", a.Name+".sock")
	}
	if a.Server != nil {
		return serveOwn(ctx, a, c)
	}
	s, err := app.Open(ctx, author(a, c), app.Options{Home: c.Home, Socket: c.Socket, Log: c.Log, Environ: c.Environ})
	if err != nil {
		return err
	}
	l, address, err := listen(ctx, s, c.Port)
	if err == nil && c.Launch && a.Launch != nil {
		if err = s.Launch(ctx); err != nil {
			err = errors.Join(fmt.Errorf("launch the app %s: %w", a.Name, err), l.Close())
		}
	}
	if err != nil {
		return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	c.Serving(address)
	return s.ServeListener(ctx, l)
}

func listen(ctx context.Context, s *app.Server, port int) (net.Listener, string, error) {
	if port < 0 {
		l, err := s.Listen(ctx)
		return l, "unix:" + s.Socket(), err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return nil, "", fmt.Errorf("serve the app %s: %w", s.Name(), err)
	}
	return l, "http://" + l.Addr().String(), nil
}

// author is the app as the author of a folder says it.
func author(a *appdir.App, c Config) app.App {
	h := &hooks{app: a, folder: c.Folder, home: c.Home, environ: environ(a, c)}
	out := app.App{Name: a.Name, Paths: a.Paths, Launch: a.Launch, Dir: c.Folder, Timeout: a.Timeout}
	if a.Hooks.Add != nil {
		out.Add = h.add
	}
	if a.Hooks.Get != nil {
		out.Get = h.get
	}
	if a.Hooks.Reset != nil {
		out.Reset = h.reset
	}
	if a.Skill != "" {
		out.Skill = &app.Skill{Name: a.Front.Name, Description: a.Front.Description, Folder: sub(c.Folder, a.Skill)}
	}
	return out
}

func sub(folder, dir string) fs.FS { return os.DirFS(filepath.Join(folder, filepath.FromSlash(dir))) }

// environ is what an app's programs see; of what is named twice, the last counts.
func environ(a *appdir.App, c Config) []string {
	return append(slices.Clip(c.Environ), "HOME="+c.Home, app.HomeVariable+"="+c.Home, app.NameVariable+"="+a.Name, wire.NameVariable+"="+a.Name)
}
