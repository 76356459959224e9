package computer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/computer/appdir"
	"agentenv.internal/agentenv/internal/computer/x11"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/computer"
)

type driverOptions struct {
	wait    time.Duration
	size    string
	skill   string
	declare bool
}

func newDriver(p *verb.Program) *cobra.Command {
	var o driverOptions
	cmd := &cobra.Command{
		Use:   "driver",
		Short: "Serve the desktop of an X server",
		Long: `Serves the desktop that DISPLAY names, until it is told to end. It runs as the user of the session: commands and files are that user's.

  MCP_HOST, MCP_PORT            where to listen: every interface at port 18765
  ENVIRONMENT_NAME              the name on the card: computer
  AGENTENV_COMPUTER_SETTINGS    a JSON object: data_paths, default_space, default_norm_scale, queue_wait_s, tap_hold_ms, type_delay_ms, max_hold_ms,
                                layout, drag_duration_ms, exec_output_bytes, exec_timeout_s
  AGENTENV_COMPUTER_APPS        a JSON list of the apps in front of which it stands: name, socket, paths

It asks nobody who they are: whoever reaches the port sees the screen and can run commands.`,
		Example: "  DISPLAY=:1 MCP_HOST=127.0.0.1 agent-env computer driver",
		Args:    verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.declare {
				return declare(cmd.Context(), p)
			}
			return driver(cmd.Context(), p, o)
		},
	}
	cmd.Flags().StringVar(&o.size, "size", "", "set the screen to this `SIZE` first, and again when the X server was started again")
	cmd.Flags().StringVar(&o.skill, "skill", "", "serve the skill of this `FOLDER`, which holds SKILL.md")
	cmd.Flags().BoolVar(&o.declare, "declare", false, "print what the driver serves on each platform, as a JSON object, and end; no display is needed")
	cmd.Flags().DurationVar(&o.wait, "wait", 30*time.Second, "how `LONG` to wait for the X server to answer")
	return cmd
}

func driver(ctx context.Context, p *verb.Program, o driverOptions) error {
	w, h := 0, 0
	if o.size != "" {
		var err error
		if w, h, err = size("size", o.size); err != nil {
			return err
		}
	}
	skill, err := readSkill(o.skill)
	if err != nil {
		return err
	}
	display, _ := p.Env("DISPLAY")
	d, err := open(ctx, display, authority(p.Env), o.wait)
	if err != nil {
		return err
	}
	defer d.Close()
	if o.size != "" {
		if _, err := d.SetDisplay(ctx, computer.Display{Width: w, Height: h, Scale: 1}); err != nil {
			return err
		}
	}
	// A capture is megabytes that are garbage at once, and desktops run by the dozen: memory is worth more than the time of collecting it.
	debug.SetGCPercent(10)
	var png x11.Encoder
	c, err := computer.New(d, computer.Options{Lookup: p.Env, EncodePNG: png.Encode, Log: p.Logger(), Supports: supports(), Skill: skill})
	if err != nil {
		return err
	}
	const started = 2 * time.Second
	defer time.AfterFunc(started, func() { _ = forget() }).Stop() // what isn't gained isn't lost
	return c.Serve(ctx)
}

func supports() []computer.Support {
	return []computer.Support{{OS: computer.SupportOS{Type: "linux", Display: []string{"x11"}}, Arch: []string{"amd64", "arm64"}}}
}

// declare prints what an env that holds this driver records of it.
func declare(ctx context.Context, p *verb.Program) error {
	nothing := func(string) (string, bool) { return "", false } // what is chosen for one computer isn't the driver's
	d, err := computer.Declare(ctx, x11.Undriven(), computer.Options{Lookup: nothing, Supports: supports()})
	if err != nil {
		return err
	}
	return p.Streams.JSON(d)
}

// readSkill is the skill of a folder; "" is none.
func readSkill(folder string) (*computer.Skill, error) {
	if folder == "" {
		return nil, nil
	}
	files := os.DirFS(folder)
	front, l := appdir.Skill(files, folder, ".", diag.Pos{File: folder})
	if err := l.Err(); err != nil {
		return nil, err
	}
	return &computer.Skill{Name: front.Name, Description: front.Description, Folder: files}, nil
}

// open connects to a display that may still be starting.
func open(ctx context.Context, display, auth string, wait time.Duration) (*x11.Driver, error) {
	if display == "" {
		return nil, errors.New("DISPLAY names no display: start an X server, or use agent-env computer session")
	}
	give := time.NewTimer(wait)
	defer give.Stop()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		d, err := x11.Open(display, auth)
		if err == nil {
			return d, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-give.C:
			return nil, err
		case <-again.C:
		}
	}
}

// authority is the file that holds what clients of displays show.
func authority(lookup func(string) (string, bool)) string {
	if path, ok := lookup("XAUTHORITY"); ok && path != "" {
		return path
	}
	home, _ := lookup("HOME")
	return filepath.Join(home, ".Xauthority")
}
