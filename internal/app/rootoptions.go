package app

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/host"
)

// RootOption is an option that a plugin adds to the command line of agent-env itself.
type RootOption struct {
	dist.Option
	By  string // "agentenv-acme 1.2.0"
	run func(ctx context.Context, args []string, stdio [3]*os.File, env []string) (int, error)
}

// Through is what Run answers when the command may go on.
const Through = -1

// Run calls the option's callback, with what people wrote of it, which may be nothing. Every other answer than Through is an exit code.
func (o RootOption) Run(ctx context.Context, args []string, stdio [3]*os.File, env []string) (int, error) {
	return o.run(ctx, args, stdio, env)
}

// HasRootOptions tells whether plugins add options to the command line, without an App: where there is no plugin environment nothing is opened, else one
// small file is.
func HasRootOptions(env func(string) (string, bool)) bool {
	root := config.StateRoot(env)
	return root != "" && dist.RootOptions(filepath.Join(root, "plugins"))
}

// RootOptions are the options that plugins add to the command line, and what of their options and commands can't be used. commands tells which commands
// and flags are taken.
func (a *App) RootOptions(ctx context.Context, commands dist.Names) ([]RootOption, []dist.Contribution, error) {
	all, err := a.running(ctx)
	if err != nil {
		return nil, nil, err
	}
	e, err := a.PluginEnvironment(ctx)
	if err != nil {
		return nil, nil, err
	}
	remember := rememberingLoader{pluginLoader{a: a, e: e}, filepath.Join(a.Config().StateRoot(), "plugin-options.json"), e.Generation()}
	r, err := e.Report(ctx, dist.ReportOptions{Builtin: a.builtinNames(commands), Loader: remember, Only: []string{dist.GroupOptions, dist.GroupCommands}})
	if err != nil {
		return nil, nil, err
	}
	var out []RootOption
	var bad []dist.Contribution
	for _, p := range r.Plugins {
		for _, c := range p.Contributions {
			switch {
			case c.Status != dist.Active:
				bad = append(bad, c)
			case c.Group == dist.GroupOptions && c.Code == "" && c.Option() != nil:
				out = append(out, RootOption{*c.Option(), fmt.Sprintf("%s %s", c.Package, c.Version), func(ctx context.Context, args []string, stdio [3]*os.File, env []string) (int, error) {
					return all.Command(ctx, c, args, host.Terminal{Dir: a.opt.Dir, Env: env, Stdio: stdio})
				}})
			}
		}
	}
	return out, bad, nil
}

// rememberingLoader remembers what loads made of claims, for one generation, in a file. What failed isn't remembered: it may work the next time.
type rememberingLoader struct {
	dist.Loader
	path       string
	generation string
}

type rememberedLoads struct {
	Format     int           `json:"format_version"`
	Generation string        `json:"generation"`
	Claims     []dist.Claim  `json:"claims"`
	Loaded     []dist.Loaded `json:"loaded"`
}

func (l rememberingLoader) Load(ctx context.Context, claims []dist.Claim) ([]dist.Loaded, error) {
	var r rememberedLoads
	if b, err := os.ReadFile(l.path); err == nil && json.Unmarshal(b, &r) == nil &&
		r.Format == 1 && r.Generation == l.generation && slices.Equal(r.Claims, claims) && len(r.Loaded) == len(claims) {
		return r.Loaded, nil
	}
	loaded, err := l.Loader.Load(ctx, claims)
	if err != nil || slices.ContainsFunc(loaded, func(l dist.Loaded) bool { return l.Status != dist.Active }) {
		return loaded, err
	}
	b, err := json.Marshal(rememberedLoads{1, l.generation, claims, loaded})
	if err == nil {
		_ = atomicfile.WriteBytes(l.path, 0o600, append(b, '\n')) // else they are loaded again
	}
	return loaded, nil
}
