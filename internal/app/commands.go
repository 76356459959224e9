package app

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/ref"
)

// MadeCommand is a stored command that calls the tools of an environment.
type MadeCommand struct {
	artifact.Pin
	Command string
	New     bool // and not the latest version, which says the same
}

// MakeCommand deploys an environment for itself, stores a command that calls its tools, and takes it down. command "" is the environment's name; again
// stores a new version also where the latest one says the same. providers are those to try, comma-separated; "" is the configured chain. tell, which may be
// nil, is told of work that the deployment waits for.
func (a *App) MakeCommand(ctx context.Context, e envstore.Env, providers, command string, again bool, tell func(deploy.Work)) (out MadeCommand, err error) {
	envs, err := a.getEnvs(ctx)
	if err != nil {
		return out, err
	}
	w, err := a.getWorld(ctx)
	if err != nil {
		return out, err
	}
	s, err := a.Store(ctx)
	if err != nil {
		return out, err
	}
	run := e.ID + "-create-cli-" + strings.ToLower(rand.Text()[:8])
	w.deploy.Open(run, deploy.Policy{Tell: tell})
	defer func() {
		_, derr := w.deploy.Down(context.WithoutCancel(ctx), run)
		err = errors.Join(err, derr)
	}()
	v, err := envs.Deploy(ctx, deploy.EnvRequest{Run: run, Env: e, Type: providers, Lease: validationLease})
	if err != nil {
		return out, err
	}
	out.Command = command
	if command == "" {
		out.Command = v.CommandName()
	}
	out.Pin, out.New, err = v.StoreCommand(ctx, s, ref.Derived(e.ID, "cli"), out.Command, again)
	return out, err
}
