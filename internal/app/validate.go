package app

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/validate"
)

// Check is what one check of an environment or of an agent found.
type Check struct {
	Name string `json:"name"`
	step.Verification
}

// Skipped tells whether there was nothing to check.
func (c Check) Skipped() bool {
	for _, r := range c.Results {
		if r["skipped"] != true {
			return false
		}
	}
	return true
}

// validationLease is how long a deployment that is only checked lives at most.
const validationLease = time.Hour

// ValidateEnv deploys an environment, checks it and takes it down. providers are those to try, comma-separated; "" is the configured chain. universe is
// data to load and export, nil for none. tell, which may be nil, is told of work that the deployment waits for. The error tells that it could not be
// deployed or asked.
func (a *App) ValidateEnv(ctx context.Context, e envstore.Env, providers string, universe *envstore.Data, tell func(deploy.Work)) (out []Check, err error) {
	envs, err := a.getEnvs(ctx)
	if err != nil {
		return nil, err
	}
	w, err := a.getWorld(ctx)
	if err != nil {
		return nil, err
	}
	s, err := a.Store(ctx)
	if err != nil {
		return nil, err
	}
	run := e.ID + "-validate-" + strings.ToLower(rand.Text()[:8])
	w.deploy.Open(run, deploy.Policy{Tell: tell})
	defer func() {
		_, derr := w.deploy.Down(context.WithoutCancel(ctx), run)
		err = errors.Join(err, derr)
	}()
	v, err := envs.Deploy(ctx, deploy.EnvRequest{Run: run, Env: e, Type: providers, Lease: validationLease})
	if err != nil {
		return nil, err
	}
	checks := []struct {
		name  string
		check validate.Check
	}{
		{validate.EnvCard, validate.CheckCard},
		{validate.ToolSchema, validate.CheckTools},
		{validate.SpecConformance, validate.CheckSpec},
		{validate.CoreProtocol, validate.CheckCoreProtocol},
	}
	if _, ok := v.Computer(); ok {
		checks = append(checks, struct {
			name  string
			check validate.Check
		}{validate.ComputerBoot, func(ctx context.Context, v *deploy.Env) ([]step.Row, error) { return validate.BootComputer(ctx, v, s) }})
	}
	if universe != nil {
		checks = append(checks, struct {
			name  string
			check validate.Check
		}{validate.RoundTrip, func(ctx context.Context, v *deploy.Env) ([]step.Row, error) {
			return validate.CheckRoundTrip(ctx, v, s, *universe, nil)
		}})
	}
	for _, c := range checks {
		rows, err := c.check(ctx, v)
		if err != nil {
			return nil, err
		}
		out = append(out, Check{c.name, validate.Verification("", rows)})
	}
	return out, nil
}
