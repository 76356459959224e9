package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/plugin/pyhost"
	"agentenv.internal/agentenv/sdk/plugin"
)

// pluginLoader loads the plugins of an environment, each in processes of their own, which end with the load.
type pluginLoader struct {
	a         *App
	e         *dist.Environment
	callbacks bool                   // those of options of the command line are called too
	beside    map[string]host.Beside // git plugins, by their folders
	trusting  bool                   // git plugins are taken at their word: only their names count
}

// Load imports what is written in Python, and asks executables what they serve.
func (l pluginLoader) Load(ctx context.Context, claims []dist.Claim) ([]dist.Loaded, error) {
	out := make([]dist.Loaded, len(claims))
	var entries []pyhost.Entry
	var where []int
	programs := map[[2]string]served{} // by metadata and executable
	for i, c := range claims {
		if l.trusting && c.Git != "" {
			out[i] = dist.Loaded{Status: dist.Active, Type: c.Name}
			continue
		}
		if !c.Exec {
			entries, where = append(entries, pyhost.Entry{Group: c.Group, Name: c.Name, Value: c.Value}), append(where, i)
			continue
		}
		key := [2]string{c.Dir, c.Value}
		s, asked := programs[key]
		if !asked {
			s = l.ask(ctx, c)
			programs[key] = s
		}
		out[i] = s.loaded(c)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
	}
	if len(entries) == 0 {
		return out, nil
	}
	if l.e.Python() == "" {
		return nil, errors.New("there is no plugin environment to load classes in: add a plugin first")
	}
	loaded, err := pyhost.Loader{Python: l.e.Python(), Callbacks: l.callbacks}.Load(ctx, entries)
	if err != nil {
		return nil, err
	}
	for n, i := range where {
		r := loaded[n]
		out[i] = dist.Loaded{Status: dist.Status(r.Status), Code: r.Code, Reason: r.Reason}
		described(r.Type, &out[i])
	}
	return out, nil
}

// described takes over what a load says of a type.
func described(raw json.RawMessage, l *dist.Loaded) {
	var t struct {
		Name   string       `json:"name"`
		Option *dist.Option `json:"option"`
		Alias  string       `json:"alias_of"`
	}
	if json.Unmarshal(raw, &t) == nil {
		l.Type, l.Option, l.Alias = t.Name, t.Option, t.Alias
	}
}

// askTime is how long an executable has to say what it serves, its start included.
const askTime = 30 * time.Second

// served is what an executable says that it serves, or why it doesn't say.
type served struct {
	types   []plugin.Type
	missing string
	err     error
}

// ask starts the executable of a claim, asks what it serves, and ends it.
func (l pluginLoader) ask(ctx context.Context, c dist.Claim) served {
	if b, ok := l.beside[c.Dir]; ok && c.Git != "" {
		types, err := l.a.askTypes(ctx, b.Program())
		return served{types: types, err: err}
	}
	path := l.e.Script(c.Value)
	if path == "" {
		return served{missing: "it installed no executable " + diag.Repr(c.Value)}
	}
	prog := host.Program{Name: c.Package + " " + c.Version, Distribution: &plugin.Named{Name: c.Package, Version: c.Version}, Argv: []string{path}}
	if lock := l.e.Lock(); lock != nil {
		prog.Extra = []*os.File{lock}
	}
	types, err := l.a.askTypes(ctx, prog)
	return served{types: types, err: err}
}

// askTypes starts a program, asks which types it serves, and ends it.
func (a *App) askTypes(ctx context.Context, prog host.Program) ([]plugin.Type, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	p := host.New(prog, host.Options{Host: plugin.Named{Name: "agent-env", Version: Version}, Env: a.opt.Env, Log: a.opt.Log, Keeper: a.keeper()})
	var out struct {
		Types []plugin.Type `json:"types"`
	}
	err := p.Call(ctx, plugin.MethodTypes, nil, func(string) any { return struct{}{} }, &out)
	return out.Types, errors.Join(err, p.Close(context.WithoutCancel(ctx)))
}

// loaded is what came of one claim on the executable.
func (s served) loaded(c dist.Claim) dist.Loaded {
	out := dist.Loaded{Status: dist.Active, Type: c.Name}
	fail := func(code, reason string) dist.Loaded {
		return dist.Loaded{Status: dist.Failed, Code: code, Reason: "failed to load: " + diag.Clean(reason)}
	}
	switch {
	case s.missing != "":
		return fail(dist.CodeLoadFailed, s.missing)
	case s.err != nil:
		return fail(dist.CodeLoadFailed, s.err.Error())
	case c.Group == dist.GroupExec: // its manifest can't be read, which is told apart
		return out
	case !slices.ContainsFunc(s.types, func(t plugin.Type) bool { return t.Group == c.Group && t.Name == c.Name }):
		return fail(dist.CodeInvalid, fmt.Sprintf("%s promises it, and the executable %s doesn't list it", dist.Manifest, diag.Repr(c.Value)))
	}
	return out
}
