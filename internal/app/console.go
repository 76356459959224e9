package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/console"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/fleet"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/workspace"
)

// ConsoleOptions are how the console is served.
type ConsoleOptions struct {
	Token string
	Names []string // host names that it is asked by, beside the loopback's
	// TakeOver lets people use the mouse and the keyboard of computers that they watch.
	TakeOver bool
	// Environ is the environment of the agents of workspaces that are started here, and Program what starts them; "" is this program.
	Environ []string
	Program string
}

// Console is the console of the workspace here; folder.ErrNone where there is none. Each of its requests reads the configuration anew.
func (a *App) Console(o ConsoleOptions) (*console.Server, error) {
	if _, err := a.WorkspaceFolder(); err != nil {
		return nil, err
	}
	log := a.opt.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	agents := fleet.New(fleet.Options{Keeper: a.keeper(), Command: func(ctx context.Context) (*exec.Cmd, error) { return agentCommand(ctx, o) }})
	a.onClose(agents.Close)
	return console.New(console.Options{
		Agents: agents, Token: o.Token, Names: o.Names, FetchOnly: a.fetchOnly(), TakeOver: o.TakeOver, Version: Version, Log: log,
		Open: func(ctx context.Context) (*gitplugins.Plugins, func(context.Context) error, error) {
			in := New(a.opt)
			if err := in.ConfigProblems().Err(); err != nil {
				return nil, nil, errors.Join(err, in.Close(ctx))
			}
			return in.Git(), in.Close, nil
		},
		Computers: func(ctx context.Context) (console.Computers, func(context.Context) error, error) {
			in := New(a.opt)
			w, err := in.getWorld(ctx)
			if err != nil {
				return nil, nil, errors.Join(err, in.Close(ctx))
			}
			return computers{w.deploy, in.handsDir()}, in.Close, nil
		},
		Create: func(ctx context.Context, o workspace.Order) (_ *workspace.Created, err error) {
			in := New(a.opt)
			defer func() { err = errors.Join(err, in.Close(ctx)) }()
			return in.CreateWorkspace(ctx, o)
		},
		Workspaces: func(ctx context.Context) ([]workspace.Workspace, error) {
			r, err := a.Workspaces()
			if err != nil {
				return nil, err
			}
			return r.List(ctx)
		},
		Remove: func(ctx context.Context, name string, purge bool) error {
			r, err := a.Workspaces()
			if err != nil {
				return err
			}
			return r.Remove(ctx, name, purge)
		},
		Deps: func(ctx context.Context, id string, dry bool) (_ console.Deps, err error) {
			in := New(a.opt)
			defer func() { err = errors.Join(err, in.Close(ctx)) }()
			out, err := in.InstallGitDeps(ctx, GitDeps{ID: id, DryRun: dry}, dist.Talk{})
			if errors.Is(err, dist.ErrProblems) {
				err = fmt.Errorf("%w:\n%s", err, strings.Join(out.Problems, "\n"))
			}
			return console.Deps{Packages: out.Packages, Left: out.Left, Plan: out.Plan, Changed: out.Changed}, err
		},
	}), nil
}

// agentCommand serves the agent of the workspace in whose folder it is started.
func agentCommand(ctx context.Context, o ConsoleOptions) (*exec.Cmd, error) {
	program := o.Program
	if program == "" {
		var err error
		if program, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find this program to start agents with it: %w", err)
		}
	}
	cmd := exec.CommandContext(ctx, program, "workspace", "run", "--json", "--inherited-listener")
	cmd.Env = slices.DeleteFunc(slices.Clone(o.Environ), func(v string) bool { return strings.HasPrefix(v, "AGENT_ENV_CONFIG=") }) // it has its own
	return cmd, nil
}

// fetchOnly tells whether what the console installs stays off.
func (a *App) fetchOnly() bool {
	for _, name := range []string{"AGENT_ENV_PLUGIN_INSTALL_NO_ENABLE", "PROTOAGENT_PLUGIN_INSTALL_NO_ENABLE"} {
		if v, ok := a.opt.Env(name); ok && slices.Contains([]string{"1", "true", "yes"}, strings.ToLower(strings.TrimSpace(v))) {
			return true
		}
	}
	return false
}

// computers are those that stand on this machine.
type computers struct {
	*deploy.Deployments
	hands string
}

// Open reaches one.
func (c computers) Open(ctx context.Context, id string) (console.Screen, error) {
	return c.OpenDesktop(ctx, id, c.hands)
}
