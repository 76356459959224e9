package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// DeployEnv is what is asked of the plugin of an environment's type.
type DeployEnv struct {
	Run, Step string
	Type      string
	Env       json.RawMessage // the stored document
	Options   json.RawMessage
	Log       *slog.Logger // nil: the plugins' own
}

// Instance is a running environment of a plugin. It is to be closed, once.
type Instance struct {
	plugin.DeployedEnv
	p     *Plugins
	by    served
	run   string
	step  string
	state json.RawMessage
	log   *slog.Logger
	lease *lease
}

// Deploy starts an environment of a plugin's type. An error is the plugin's own word, or step.Infra.
func (p *Plugins) Deploy(ctx context.Context, d DeployEnv) (*Instance, error) {
	s, err := p.serving(ctx, plugin.GroupEnvs, d.Type)
	if err != nil {
		return nil, err
	}
	if d.Log == nil {
		d.Log = p.setup.Log
	}
	i := &Instance{p: p, by: s, run: d.Run, step: d.Step, log: d.Log}
	var out plugin.Deployed
	by := i.caller()
	var late json.RawMessage
	by.Late = func(result json.RawMessage) { late = result }
	err = s.p.Call(ctx, plugin.MethodEnvDeploy, by, func(call string) any {
		return plugin.EnvParams{Call: call, Entry: s.entry, Run: d.Run, Step: d.Step, Env: d.Env, Options: d.Options}
	}, &out)
	if len(late) > 0 && json.Unmarshal(late, &out) == nil { // it stands, and nobody wants it any more
		i.state = out.State
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), lateLimit)
		defer cancel()
		return nil, errors.Join(s.failure(ctx, err), i.Close(limited))
	}
	if err != nil {
		return nil, s.failure(ctx, err)
	}
	i.DeployedEnv, i.state = out.Env, out.State
	if err := usable(out.Env); err != nil {
		return nil, errors.Join(s.defectOf("what it deployed can't be used", err), i.Close(context.WithoutCancel(ctx)))
	}
	if i.lease, err = p.leases().take(i); err != nil {
		return nil, errors.Join(err, i.Close(context.WithoutCancel(ctx)))
	}
	return i, nil
}

// usable tells what is wrong with the addresses of an instance.
func usable(e plugin.DeployedEnv) error {
	for name, at := range map[string]string{"environment_url": e.URL, "mcp_url": e.MCP} {
		u, err := url.Parse(at)
		switch {
		case at == "" && name == "mcp_url": // the card tells
		case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
			return fmt.Errorf("its %s must be an http or https URL without user, query and fragment, not %s", name, diag.Repr(at))
		}
	}
	return nil
}

func (i *Instance) caller() *Caller { return &Caller{Run: i.run, Step: i.step, Log: i.log} }

// lateLimit bounds the end of an environment that came up after nobody wanted it any more.
const lateLimit = 30 * time.Second

// ErrNoReset: the plugin can't put environments of the type back.
var ErrNoReset = errors.New("can't be reset by its plugin")

// Reset puts the environment back to its first state. ErrNoReset when the plugin has no such thing.
func (i *Instance) Reset(ctx context.Context) error {
	err := i.again(ctx, plugin.MethodEnvReset)
	if rpc.CodeOf(err) == rpc.CodeNoMethod {
		return ErrNoReset
	}
	if err != nil {
		return i.by.failure(ctx, err)
	}
	return nil
}

// Close ends it. What can't be ended is tried again by Sweep.
func (i *Instance) Close(ctx context.Context) error {
	err := i.again(ctx, plugin.MethodEnvClose)
	if err != nil && rpc.CodeOf(err) != rpc.CodeNoMethod {
		if i.lease != nil {
			i.lease.leave()
		}
		return i.by.failure(ctx, err)
	}
	if i.lease != nil {
		return i.lease.end()
	}
	return nil
}

func (i *Instance) again(ctx context.Context, method string) error {
	return i.by.p.Call(ctx, method, i.caller(), func(call string) any {
		return plugin.EnvParams{Call: call, Entry: i.by.entry, Run: i.run, Step: i.step, State: i.state}
	}, nil)
}
