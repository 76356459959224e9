package computer

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/computer/appdir"
	"agentenv.internal/agentenv/internal/computer/session"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/computer"
)

type sessionOptions struct {
	size, largest, user, manager, home, skill string
	apps, appSkills, driver                   []string
	ownHome                                   bool
}

func newSession(p *verb.Program) *cobra.Command {
	var o sessionOptions
	cmd := &cobra.Command{
		Use:   "session [-- COMMAND...]",
		Short: "Bring up a desktop: X server, window manager, driver",
		Long: `Starts Xvfb on a display of its own, a window manager on it, and the driver, which serves as "computer driver" says; then COMMAND, where one is
given, on that desktop. With --app, the server of that folder is brought up as well: its app.toml says what is installed into the home first, and
how the app is served; the driver stands in front of it at /svc/NAME/. It all lasts until it is told to end, or the driver ends. An X server, a window
manager or an app's server that dies is started again.

Nothing here needs root, and the desktop never runs as root: started as root, all of it runs as --user, or, in a namespace where there is no such
user, as an ordinary user of its own that is root outside. Where there is one user alone, who is root inside and an ordinary one outside, as in sandboxes
that ordinary users start, it runs as that.`,
		Example: "  agent-env computer session --size 1280x800\n  agent-env computer session --app ./envs/notes --app clock=./envs/alarms",
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, args []string) error { return bringUp(cmd.Context(), p, o, args) },
	}
	f := cmd.Flags()
	f.StringVar(&o.size, "size", "1280x800", "the screen's `SIZE` at first")
	f.StringVar(&o.largest, "max-size", "1920x1200", "the largest `SIZE` that the screen can be set to")
	f.StringVar(&o.user, "user", "1000", "the `USER`, a name or number, that the desktop runs as when started as root")
	f.StringVar(&o.home, "home", "", "the `FOLDER` that is the user's home; the user's own unless given")
	f.BoolVar(&o.ownHome, "own-home", false, "when started as root, give the folder of --home with all in it to the user first")
	f.StringVar(&o.manager, "window-manager", "openbox", "the `PROGRAM` that manages windows; none for none")
	f.StringArrayVar(&o.apps, "app", nil, "the `FOLDER` of an app, or NAME=FOLDER, whose server is brought up too; repeatable")
	f.StringArrayVar(&o.appSkills, "app-skill", nil, "NAME=`FOLDER`, the folder in that of the app NAME with the skill that is served; that which its files name unless given; repeatable")
	f.StringArrayVar(&o.driver, "driver", nil, "a `WORD` of the command that serves the driver, in place of this program's own; repeatable")
	f.StringVar(&o.skill, "skill", "", "the `FOLDER` with the skill that this program's driver serves")
	return cmd
}

func bringUp(ctx context.Context, p *verb.Program, o sessionOptions, args []string) error {
	w, h, err := size("size", o.size)
	if err != nil {
		return err
	}
	mw, mh, err := size("max-size", o.largest)
	if err != nil {
		return err
	}
	c := session.Config{
		Width: w, Height: h, MaxWidth: max(w, mw), MaxHeight: max(h, mh), Home: o.home, OwnHome: o.ownHome, Command: args, Environ: os.Environ(),
		Output: p.Streams.Err, Log: p.Logger(), Driver: o.driver, Skill: o.skill,
	}
	if c.Apps, err = apps(o.apps, o.appSkills); err != nil {
		return err
	}
	if o.ownHome && o.home == "" {
		return verb.Usagef("--own-home takes a folder from --home: name it")
	}
	if o.manager != "none" {
		c.Manager = strings.Fields(o.manager)
	}
	if os.Geteuid() == 0 {
		return session.RunAs(ctx, o.user, c)
	}
	return session.Run(ctx, c)
}

// size reads WIDTHxHEIGHT.
func size(flag, text string) (w, h int, err error) {
	const most = 16384
	if n, err := fmt.Sscanf(text, "%dx%d", &w, &h); err != nil || n != 2 || fmt.Sprintf("%dx%d", w, h) != text || w < 1 || h < 1 || w > most || h > most {
		return 0, 0, verb.Usagef("--%s takes a size such as 1280x800, not %q", flag, text)
	}
	return w, h, nil
}

// apps reads the folders of apps; everything that is wrong with them is in one error.
func apps(flags, skills []string) ([]session.App, error) {
	var out []session.App
	var l diag.List
	var seen []computer.App
	for _, text := range flags {
		name, folder, named := strings.Cut(text, "=")
		if !named || strings.Contains(name, "/") {
			name, folder = "", text
		}
		dir, err := filepath.Abs(folder)
		if err != nil {
			return nil, err
		}
		a, more := appdir.ReadFolder(os.DirFS(dir), folder, filepath.Base(dir), name)
		l.Add(more...)
		if a == nil || more.HasErrors() {
			continue
		}
		out = append(out, session.App{Name: a.Name, Dir: dir, Install: a.Install, Server: a.Server, Paths: a.Paths})
		seen = append(seen, computer.App{Name: a.Name, Socket: "a", Paths: a.Paths})
	}
	if err := l.Err(); err != nil {
		return nil, err
	}
	for _, text := range skills {
		name, folder, ok := strings.Cut(text, "=")
		i := slices.IndexFunc(out, func(a session.App) bool { return a.Name == name })
		if !ok || folder == "" || i < 0 {
			return nil, verb.Usagef("--app-skill takes NAME=FOLDER with the NAME of an app that --app names, not %q", text)
		}
		out[i].Skill = folder
	}
	return out, computer.CheckApps(seen)
}
