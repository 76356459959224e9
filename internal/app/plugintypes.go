package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/sdk/plugin"
)

// pluginTypes are the env or artifact types of plugins, which are looked for when one is asked for.
func (a *App) pluginTypes(ctx context.Context, group string) *catalog.Set[*bundle.Type] {
	set := catalog.New[*bundle.Type]("type")
	set.Rest(func(set *catalog.Set[*bundle.Type]) {
		p, err := a.running(ctx)
		if err != nil {
			a.opt.Log.Warn("the plugin environment can't be read", "error", err)
			return
		}
		p.Types(ctx, group, set)
	})
	return set
}

// checkType asks a plugin what is wrong with a config of its type.
func (a *App) checkType(ctx context.Context, w *bundle.Write) diag.List {
	p, err := a.running(ctx)
	if err != nil {
		return diag.List{{Code: "plugin.check", Summary: err.Error()}}
	}
	return p.CheckType(ctx, w)
}

// makeArtifact has a plugin say what is stored of an artifact of its type.
func (a *App) makeArtifact(ctx context.Context, w *bundle.Write, put func(io.Reader) (ref.Digest, int64, error)) (out ledger.Made, err error) {
	p, err := a.running(ctx)
	if err != nil {
		return out, err
	}
	out.Body, out.Files, err = p.MakeArtifact(ctx, w, put)
	return out, err
}

// foreign deploys environments of plugins' types.
type foreign struct{ a *App }

func (f foreign) Check(ctx context.Context, typ string) error {
	p, err := f.a.running(ctx)
	if err != nil {
		return err
	}
	return p.Serves(ctx, plugin.GroupEnvs, typ)
}

func (f foreign) Deploy(ctx context.Context, r deploy.ForeignRequest) (*deploy.ForeignServer, error) {
	p, err := f.a.running(ctx)
	if err != nil {
		return nil, err
	}
	d := host.DeployEnv{Run: r.Run, Step: r.Step, Type: r.Type, Env: r.Env, Options: r.Options}
	for _, x := range r.Files {
		d.Files = append(d.Files, host.EnvFile(x))
	}
	i, err := p.Deploy(ctx, d)
	if err != nil {
		return nil, err
	}
	metadata, err := json.Marshal(i.Metadata)
	if err != nil {
		return nil, errors.Join(err, i.Close(context.WithoutCancel(ctx)))
	}
	for _, v := range i.Headers { // they let in whoever has them
		f.a.redact.Add(v)
	}
	return &deploy.ForeignServer{
		URL: i.URL, MCP: i.MCP, Headers: i.Headers, Metadata: metadata, ReadsFiles: i.ReadsFiles, Close: i.Close,
		Reset: func(ctx context.Context) error {
			err := i.Reset(ctx)
			if errors.Is(err, host.ErrNoReset) {
				return deploy.ErrNoReset
			}
			return err
		},
	}, nil
}

// pluginLeases is the folder of records of environments that plugins have standing; "" where there is no state.
func (a *App) pluginLeases() string {
	if a.Config().StateRoot() == "" {
		return ""
	}
	return filepath.Join(a.Config().StateRoot(), "plugin-envs")
}

// sweepPlugins closes environments of plugins whose process was killed. Nothing of plugins is read where none is left.
func (a *App) sweepPlugins(ctx context.Context) error {
	dir := a.pluginLeases()
	if left, err := filepath.Glob(filepath.Join(dir, "*.json")); dir == "" || err != nil || len(left) == 0 {
		return err
	}
	p, err := a.running(ctx)
	if err != nil {
		return err
	}
	closed, err := p.Sweep(ctx)
	for _, c := range closed {
		a.opt.Log.Warn("closed what was left standing: the " + c)
	}
	if err != nil {
		return fmt.Errorf("close environments of plugins: %w", err)
	}
	return nil
}
