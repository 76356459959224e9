package computer

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/computer/appdir"
	"agentenv.internal/agentenv/internal/computer/appserve"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/sdk/computer/app"
)

func newApp(p *verb.Program) *cobra.Command {
	cmd := verb.Group("app", "Programs on a desktop with data of their own", newAppServe(p))
	cmd.Long = `An app is a program on a desktop that keeps data. Its server loads, exports and resets them, and the desktop's driver stands in front of it.`
	return cmd
}

type appOptions struct {
	name, home, socket, skill string
	port                      int
	launch                    bool
	json                      *bool
}

// served is what --json prints.
type served struct {
	verb.Format
	Name    string `json:"name"`
	Address string `json:"address"` // unix:PATH, or http://HOST:PORT
}

func newAppServe(p *verb.Program) *cobra.Command {
	var o appOptions
	cmd := &cobra.Command{
		Use:   "serve FOLDER",
		Short: "Serve the app of a folder",
		Long: `Serves the app that app.toml of a folder describes, until it is told to end; then the app is stopped too. It runs as the user of the session. What
app.toml may say is told by docs/computer-apps.md.

It serves at a socket that only the user can reach: --socket, else AGENTENV_APP_SOCKET, else .agentenv/apps/NAME.sock in the home. Once it answers, it
prints where.`,
		Example: "  agent-env computer app serve envs/notes --launch",
		Args:    verb.Args("FOLDER"),
		RunE:    func(cmd *cobra.Command, args []string) error { return serveApp(cmd.Context(), p, o, args[0]) },
	}
	o.json = verb.JSONFlag(cmd, "print the name and where it serves as JSON")
	f := cmd.Flags()
	f.StringVar(&o.name, "name", "", "the app's `NAME`: environment_name of its env.toml, or its folder's, unless given")
	f.StringVar(&o.skill, "skill", "", "the `FOLDER` of the app's that holds the SKILL.md to serve: that which its files name unless given")
	f.StringVar(&o.home, "home", "", "the `FOLDER` that is the user's home: HOME unless given")
	f.StringVar(&o.socket, "socket", "", "serve at this `PATH`")
	f.IntVar(&o.port, "port", -1, "serve at this `PORT` of 127.0.0.1 in place of a socket, 0 for one that is free; anyone on the machine reaches it")
	f.BoolVar(&o.launch, "launch", false, "launch the app too")
	return cmd
}

func serveApp(ctx context.Context, p *verb.Program, o appOptions, folder string) error {
	abs, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	a, l := appdir.ReadFolder(os.DirFS(abs), folder, filepath.Base(abs), o.name)
	if o.skill != "" && a != nil && !l.HasErrors() {
		l.Add(a.SetSkill(os.DirFS(abs), folder, doc.Build(o.skill))...)
	}
	if err := l.Err(); err != nil {
		return err
	}
	if o.home == "" {
		if o.home, _ = p.Env("HOME"); o.home == "" {
			return verb.Usagef("HOME is not set: say with --home which folder is the user's home")
		}
	}
	if o.socket == "" && o.port < 0 {
		o.socket, _ = p.Env(app.SocketVariable)
	}
	var told error
	err = appserve.Serve(ctx, a, appserve.Config{
		Folder: abs, Home: o.home, Socket: o.socket, Port: o.port, Launch: o.launch, Environ: os.Environ(), Output: p.Streams.Err, Log: p.Logger(),
		Serving: func(address string) { told = o.tell(p, a.Name, address) },
	})
	return errors.Join(err, told)
}

func (o *appOptions) tell(p *verb.Program, name, address string) error {
	if *o.json {
		return p.Streams.JSON(served{verb.V1(), name, address})
	}
	p.Streams.Println(address)
	return nil
}
