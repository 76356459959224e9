package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// DeployEnv is what is asked of the plugin of an environment's type.
type DeployEnv struct {
	Run, Step string
	Type      string
	Env       json.RawMessage // the stored document
	Options   json.RawMessage
	Files     []EnvFile
	Log       *slog.Logger // nil: the plugins' own
}

// EnvFile is a file of an environment, to be laid out for its plugin.
type EnvFile struct {
	Path string // relative, "/"-separated, leading nowhere else
	Mode fs.FileMode
	Size int64
	Open func() (io.ReadCloser, error)
}

// layOut writes the files below dir, as they lay in their folder.
func layOut(dir string, files []EnvFile) ([]plugin.File, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	out := make([]plugin.File, len(files))
	for i, f := range files {
		at := filepath.FromSlash(f.Path)
		if err := root.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			return nil, err
		}
		create := func() (*os.File, error) {
			return root.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600|f.Mode&0o100)
		}
		if err := copyOut(f.Open, create); err != nil {
			return nil, fmt.Errorf("%s: %w", diag.Repr(f.Path), err)
		}
		out[i] = plugin.File{Path: f.Path, File: filepath.Join(dir, at), Size: f.Size}
	}
	return out, nil
}

// copyOut writes what a file holds where a plugin can read it.
func copyOut(open func() (io.ReadCloser, error), create func() (*os.File, error)) error {
	r, err := open()
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := create()
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
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
	var files []plugin.File
	if len(d.Files) > 0 {
		scratch, err := p.setup.scratch()
		if err != nil {
			return nil, err
		}
		defer func() { _ = scratch.Remove() }()
		if files, err = layOut(scratch.Dir, d.Files); err != nil {
			return nil, step.Infra(fmt.Errorf("lay out the environment's files: %w", err))
		}
	}
	i := &Instance{p: p, by: s, run: d.Run, step: d.Step, log: d.Log}
	var out plugin.Deployed
	by := i.caller()
	var late json.RawMessage
	by.Late = func(result json.RawMessage) { late = result }
	err = s.p.Call(ctx, plugin.MethodEnvDeploy, by, func(call string) any {
		return plugin.EnvParams{Call: call, Entry: s.entry, Run: d.Run, Step: d.Step, Env: d.Env, Options: d.Options, Files: files}
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
