package deploy

import (
	"context"
	"fmt"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/step"
)

// dropLimit bounds dropping the databases of one deployment.
const dropLimit = 20 * time.Second

// databases makes those of a deployment before its servers are, so that they go after them.
func (e *Envs) databases(ctx context.Context, r EnvRequest, v *Env) error {
	server := e.maker.options.Postgres
	if server == nil {
		return nil
	}
	var names []string
	for _, p := range r.Env.Parts {
		if p.Document != nil {
			continue // it has what its plugin gives it
		}
		names = append(names, p.Name)
	}
	if len(names) == 0 {
		return nil
	}
	dbs, err := server.Open(ctx, names)
	if err != nil {
		return step.Infra(err)
	}
	v.dbs = dbs
	if e.maker.options.Redact != nil {
		for _, s := range dbs.Secrets() {
			e.maker.options.Redact.Add(s)
		}
	}
	return e.boxes.Defer(r.Run, r.Step, "the databases of "+diag.Repr(v.ID), v.dropDatabases)
}

func (v *Env) dropDatabases(ctx context.Context) error {
	if v.dbs == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropLimit)
	defer cancel()
	return v.dbs.Close(ctx)
}

// watch has the log of changes of environments begin here.
func (v *Env) watch(ctx context.Context, names ...string) error {
	if v.dbs == nil {
		return nil
	}
	for _, n := range names {
		if err := v.dbs.Watch(ctx, n); err != nil {
			return step.Infra(fmt.Errorf("begin the log of changes of %s: %w", diag.Repr(n), err))
		}
	}
	return nil
}
