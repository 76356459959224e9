// Package hostcalls is what plugins may ask of the program while they work for it: secrets and settings, objects and stored things, the environments and
// sandboxes of the run that they work for (docs/plugin-protocol.md §6). It answers what a step of the same run could have; nothing of other runs.
//
// A plugin asks for a call that it was given: the run is that call's, never one that it names.
package hostcalls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// Config is the configuration as plugins see it.
type Config interface {
	// Granted tells whether a trusted configuration lets steps read the secret of this name.
	Granted(name string) bool
	Secret(ctx context.Context, name string) (string, bool, error)
	// Settings is the table of a distribution, with references to secrets resolved, and the values that are secret in it.
	Settings(ctx context.Context, distribution string) (settings any, secret []string, err error)
	// GitSettings is the same of a git plugin: its manifest's defaults, its settings and its secrets.
	GitSettings(ctx context.Context, id string) (settings any, secret []string, err error)
	// Value is a setting; nil for one that isn't set, and for secrets. The error is for people.
	Value(key string) (any, error)
}

// Keeper keeps a piece for as long as its run is on record.
type Keeper interface {
	Keep(ctx context.Context, run string, in io.Reader) (deploy.Piece, error)
}

// Options are what calls are answered from. What opens something is a function: it is called when a plugin first asks for it.
type Options struct {
	Config Config
	// Hide takes a value out of everything that is recorded or said from now on.
	Hide   func(value string)
	Store  func(ctx context.Context) (store.Store, error)
	Keeper func(ctx context.Context) (Keeper, error)
	// Runs are the runs of the store.
	Runs func(ctx context.Context) (runlog.Log, error)
	// Context is the context document that a run has left.
	Context func(ctx context.Context, run string) (json.RawMessage, error)
	// Image looks at an image of this machine and answers its reference with the digest, "docker-daemon:NAME@sha256:…".
	Image func(ctx context.Context, reference string) (string, error)
	Envs  func(ctx context.Context) (*deploy.Envs, error)
	Boxes func(ctx context.Context) (step.Boxes, error)
	// Agents are the agents that runs have deployed.
	Agents func(ctx context.Context) (*deploy.Agents, error)
}

// Calls are the calls by method. Close ends what they hold open.
type Calls struct {
	Options
	doors doors
}

// New makes the calls. The caller closes them.
func New(o Options) *Calls { return &Calls{Options: o} }

// Close ends what calls hold open.
func (c *Calls) Close(context.Context) error { return c.doors.close() }

// Funcs are the calls by method.
func (c *Calls) Funcs() map[string]host.Func {
	return map[string]host.Func{
		"host/secret.get":    serve(c.secret),
		"host/settings.get":  serve(c.settings),
		"host/config.get":    serve(c.config),
		"host/object.put":    serve(c.putObject),
		"host/object.get":    serve(c.getObject),
		"host/artifact.get":  serve(c.getArtifact),
		"host/artifact.list": serve(c.listArtifacts),
		"host/artifact.put":  serve(c.putArtifact),
		"host/runs.query":    serve(c.queryRuns),
		"host/agent.connect": serve(c.connectAgent),
		"host/env.connect":   serve(c.connect),
		"host/env.call":      serve(c.callTool),
		"host/env.data":      serve(c.data),
		"host/env.extension": serve(c.extension),
		"host/sandbox.exec":  serve(c.exec),
		"host/sandbox.read":  serve(c.readFile),
		"host/sandbox.write": serve(c.writeFile),
		"host/url.reach":     serve(c.reach),
	}
}

// serve decodes the parameters of a call.
func serve[In any](f func(context.Context, *host.Caller, In) (any, error)) host.Func {
	return func(ctx context.Context, by *host.Caller, params json.RawMessage) (any, error) {
		var in In
		if err := json.Unmarshal(params, &in); err != nil {
			return nil, rpc.Errorf(rpc.CodeParams, "the parameters can't be read: %v", err)
		}
		return f(ctx, by, in)
	}
}

func (c *Calls) secret(ctx context.Context, _ *host.Caller, in struct {
	Key string `json:"key"`
},
) (any, error) {
	if !c.Config.Granted(in.Key) {
		return nil, host.Refuse("the secret %s isn't granted to plugins: a trusted configuration has to name it in [sandbox] grants", diag.Repr(in.Key))
	}
	v, ok, err := c.Config.Secret(ctx, in.Key)
	switch {
	case err != nil:
		return nil, host.Refuse("the secret %s can't be read: %v", diag.Repr(in.Key), err)
	case !ok:
		return nil, host.Refuse("there is no secret %s", diag.Repr(in.Key))
	}
	c.Hide(v)
	return map[string]string{"value": v}, nil
}

func (c *Calls) settings(ctx context.Context, by *host.Caller, in struct {
	Distribution string `json:"distribution"`
},
) (any, error) {
	if by.Distribution != "" && !same(by.Distribution, in.Distribution) {
		return nil, host.Refuse("the settings of %s are not those of %s, which asks", diag.Repr(in.Distribution), by.Distribution)
	}
	read := c.Config.Settings
	if by.Git {
		read = c.Config.GitSettings
	}
	s, secret, err := read(ctx, in.Distribution)
	if err != nil {
		return nil, host.Refuse("%v", err)
	}
	for _, v := range secret {
		c.Hide(v)
	}
	return map[string]any{"settings": s}, nil
}

func (c *Calls) config(_ context.Context, _ *host.Caller, in struct {
	Key string `json:"key"`
},
) (any, error) {
	v, err := c.Config.Value(in.Key)
	if err != nil {
		return nil, host.Refuse("%v", err)
	}
	return map[string]any{"value": v}, nil
}

// content opens what a plugin hands in: a file, or a text. A file must be the plugin's own.
func content(file string, text *string) (io.ReadCloser, error) {
	switch {
	case file != "" && text != nil, file == "" && text == nil:
		return nil, rpc.Errorf(rpc.CodeParams, "give file or text, one of them")
	case text != nil:
		return io.NopCloser(strings.NewReader(*text)), nil
	case !filepath.IsAbs(file):
		return nil, rpc.Errorf(rpc.CodeParams, "file must be an absolute path")
	}
	info, err := os.Lstat(file)
	if err == nil && !info.Mode().IsRegular() {
		return nil, host.Refuse("%s is no file", diag.Repr(file))
	}
	if err != nil {
		return nil, host.Refuse("%s can't be read", diag.Repr(file))
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, host.Refuse("%s can't be read", diag.Repr(file))
	}
	return f, nil
}

// handOver writes bytes into a file of the plugin's, which removes it.
func handOver(by *host.Caller, in io.Reader) (path string, size int64, err error) {
	f, err := os.CreateTemp(by.Temp, "given-")
	if err != nil {
		return "", 0, err
	}
	size, err = io.Copy(f, in)
	if err = errors.Join(err, f.Close()); err != nil {
		return "", 0, errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), size, nil
}

// missing is an error of the store for people.
func missing(err error, what, id string) error {
	if errors.Is(err, store.ErrNotFound) {
		return host.Refuse("there is no %s %s", what, diag.Repr(id))
	}
	return fmt.Errorf("read %s: %w", diag.Repr(id), err)
}
