package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/wire"
)

// Environments is what the executors need of deployed environments.
type Environments interface {
	Env(run, id, step string) (*deploy.Env, error)
}

// Where these steps leave what they did.
const (
	AccessPath   = "metadata/tool_access_changes"
	ConfigPath   = "metadata/server_config_changes"
	SkippedPath  = "metadata/server_config_skipped"
	ClockPath    = "metadata/clock_configurations"
	TriggersPath = "metadata/env_trigger_registrations"
)

func find(e Environments, c *step.Call) (*deploy.Env, error) {
	v, err := e.Env(c.Run, c.Doc.Get("env_id").Text(), "")
	if err != nil {
		return nil, &step.Error{Type: "NotFoundError", Err: err}
	}
	return v, nil
}

// limit is ctx with the step's limit of one call.
func limit(ctx context.Context, d doc.Node) (context.Context, context.CancelFunc) {
	s, _ := d.Get("timeout_seconds").Float()
	return context.WithTimeoutCause(ctx, time.Duration(s*float64(time.Second)), fmt.Errorf("the server took more than %gs", s))
}

// ModifyEnvToolAccess shows tools of an environment to a role, or hides them.
type ModifyEnvToolAccess struct{ envs Environments }

// NewModifyEnvToolAccess makes the executor.
func NewModifyEnvToolAccess(e Environments) *ModifyEnvToolAccess { return &ModifyEnvToolAccess{e} }

// Run writes the rules at the environment's gateway.
func (e *ModifyEnvToolAccess) Run(_ context.Context, c *step.Call) error {
	v, err := find(e.envs, c)
	if err != nil {
		return err
	}
	var tools []string
	for _, n := range c.Doc.Get("tools").Items() {
		tools = append(tools, n.Text())
	}
	role, action := c.Doc.Get("role").Text(), c.Doc.Get("action").Text()
	v.Gateway.SetAccess(role, tools, action == "enable")
	c.Log.Info("tool access changed", "env", v.ID, "role", role, "action", action, "tools", strings.Join(tools, ", "))
	return c.Out.Append(AccessPath, map[string]any{"env_id": v.ID, "role": role, "action": action, "tools": tools})
}

// ApplyServerConfig calls extensions of an environment's servers that set something.
type ApplyServerConfig struct{ envs Environments }

// NewApplyServerConfig makes the executor.
func NewApplyServerConfig(e Environments) *ApplyServerConfig { return &ApplyServerConfig{e} }

// Run makes every call, in order.
func (e *ApplyServerConfig) Run(ctx context.Context, c *step.Call) error {
	v, err := find(e.envs, c)
	if err != nil {
		return err
	}
	tolerate, _ := c.Doc.Get("tolerate_unadvertised").Bool()
	for i, d := range c.Doc.Get("directives").Items() {
		service := d.Get("service").Text()
		if service == "" {
			service = d.Get("environment").Text()
		}
		names := []string{service}
		if service == "*" {
			names = v.Names()
		}
		for _, name := range names {
			if err := e.apply(ctx, c, v, name, d, tolerate); err != nil {
				return &step.Error{Type: "ServerConfigError", Err: fmt.Errorf("directives[%d]: %w", i, err)}
			}
		}
	}
	return nil
}

func (e *ApplyServerConfig) apply(ctx context.Context, c *step.Call, v *deploy.Env, name string, d doc.Node, tolerate bool) error {
	ctx, cancel := limit(ctx, c.Doc)
	defer cancel()
	uri := d.Get("uri").Text()
	args := json.RawMessage("{}")
	if a := d.Get("args"); a.Kind() == doc.Object {
		args = doc.JSON(a)
	}
	_, err := v.Extend(ctx, name, uri, "", args)
	rec := map[string]any{"env_id": v.ID, "service": name, "uri": uri}
	switch {
	case errors.Is(err, deploy.ErrNotAdvertised) && tolerate:
		c.Log.Warn("left out", "server", name, "error", err)
		return c.Out.Append(SkippedPath, rec)
	case err != nil:
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return err
	}
	c.Log.Info("configured", "server", name, "uri", uri)
	rec["args"] = args
	return c.Out.Append(ConfigPath, rec)
}

// SyncEnvClock sets an environment's virtual clock and tells its servers where to read it.
type SyncEnvClock struct{ envs Environments }

// NewSyncEnvClock makes the executor.
func NewSyncEnvClock(e Environments) *SyncEnvClock { return &SyncEnvClock{e} }

// Run arms the gateway's clock, then every server that has one.
func (e *SyncEnvClock) Run(ctx context.Context, c *step.Call) error {
	v, err := find(e.envs, c)
	if err != nil {
		return err
	}
	at, err := time.Parse(time.RFC3339, c.Doc.Get("virtual_time").Text())
	if err != nil {
		return step.Errorf("ValueError", "virtual_time: %s is no RFC 3339 time", diag.Repr(c.Doc.Get("virtual_time").Text()))
	}
	rate, _ := c.Doc.Get("virtual_seconds_per_real_second").Float()
	if _, err := v.Gateway.SetTime(at, rate); err != nil {
		return &step.Error{Type: "ClockError", Err: err}
	}
	tolerate, _ := c.Doc.Get("tolerate_missing_sync_time").Bool()
	synced := []string{}
	for _, name := range v.Names() {
		err := e.sync(ctx, c, v, name)
		switch {
		case errors.Is(err, deploy.ErrNotAdvertised) && tolerate:
		case err != nil:
			return &step.Error{Type: "ClockError", Err: err}
		default:
			synced = append(synced, name)
		}
	}
	c.Log.Info("clock set", "env", v.ID, "virtual_time", at.UTC(), "rate", rate, "servers", strings.Join(synced, ", "))
	return c.Out.Append(ClockPath, map[string]any{
		"env_id": v.ID, "virtual_time": at.UTC().Format(time.RFC3339), "virtual_seconds_per_real_second": rate, "synced_servers": synced,
	})
}

func (e *SyncEnvClock) sync(ctx context.Context, c *step.Call, v *deploy.Env, name string) error {
	ctx, cancel := limit(ctx, c.Doc)
	defer cancel()
	at, err := v.ClockURL(ctx, name)
	if err != nil {
		return err
	}
	args, err := json.Marshal(map[string]string{"env_get_time_url": at})
	if err != nil {
		return err
	}
	if _, err = v.Extend(ctx, name, wire.URNClock, "sync_time", args); err != nil && context.Cause(ctx) != nil {
		return context.Cause(ctx)
	}
	return err
}
