package deploy

import (
	"context"
	"strings"

	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// LoadFor is Load for a step: it logs, records in the context document which names got the data, and types the error.
func LoadFor(ctx context.Context, c *step.Call, v *Env, objects store.Objects, d envstore.Data) error {
	done, err := v.Load(ctx, objects, d)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return &step.Error{Type: "LoadError", Err: err}
	case len(done.Skipped) > 0 && v.isComputer():
		c.Log.Warn("left out: neither the computer nor an app of it has this name", "artifact", d.Artifact.ID, "skipped", strings.Join(done.Skipped, ", "))
	case len(done.Skipped) > 0:
		c.Log.Info("there is no server for a part of the data", "artifact", d.Artifact.ID, "skipped", strings.Join(done.Skipped, ", "))
	}
	c.Log.Info("loaded", "artifact", d.Artifact.ID, "version", d.Artifact.Version, "env", v.ID, "environments", strings.Join(done.Names, ", "))
	at := step.LoadedEnvironmentsPath
	if d.Universe {
		at = step.LoadedUniversesPath
	}
	return c.Out.Append(at, step.LoadedEnvironment{
		ID: d.Artifact.ID, Version: d.Artifact.Version, Type: d.Artifact.Type, Env: v.ID, EnvStep: v.Step, Environments: done.Names, Skipped: done.Skipped,
	})
}
