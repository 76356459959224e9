package hostcalls

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// headerTimeout bounds how long a client may take to send the head of a request.
const headerTimeout = 10 * time.Second

// doors is a listener on this machine's loopback, with a door for each connect that is still valid.
type doors struct {
	mu   sync.Mutex
	all  map[string]http.Handler
	srv  *http.Server
	at   string
	wait sync.WaitGroup
}

// open makes a door, whose URL is answered, and a function that shuts it.
func (d *doors) open(ctx context.Context, h http.Handler) (at string, shut func(), err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.srv == nil {
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		d.all, d.at = map[string]http.Handler{}, "http://"+l.Addr().String()
		d.srv = &http.Server{Handler: http.HandlerFunc(d.serve), ReadHeaderTimeout: headerTimeout}
		d.wait.Go(func() { _ = d.srv.Serve(l) })
	}
	secret := front.NewSecret()
	d.all[secret] = h
	return d.at + front.SecretPrefix + secret, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.all, secret)
	}, nil
}

func (d *doors) serve(w http.ResponseWriter, r *http.Request) {
	secret, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, front.SecretPrefix), "/")
	d.mu.Lock()
	one := map[string]http.Handler{}
	if h := d.all[secret]; h != nil {
		one[secret] = h
	}
	d.mu.Unlock()
	front.Outside(one).ServeHTTP(w, r)
}

func (d *doors) close() error {
	d.mu.Lock()
	srv := d.srv
	d.mu.Unlock()
	if srv == nil {
		return nil
	}
	err := srv.Close()
	d.wait.Wait()
	return err
}

// named are the parameters of calls about an environment.
type named struct {
	Env  string `json:"env_id"`
	Step string `json:"env_step_id"`
}

func (c *Calls) env(ctx context.Context, by *host.Caller, n named) (*deploy.Env, error) {
	if by.Run == "" {
		return nil, host.Refuse("this call belongs to no run, and so has no environments")
	}
	envs, err := c.Envs(ctx)
	if err != nil {
		return nil, err
	}
	v, err := envs.Env(by.Run, n.Env, n.Step)
	if err != nil {
		return nil, host.Refuse("%v", err)
	}
	return v, nil
}

func (c *Calls) connect(ctx context.Context, by *host.Caller, in named) (any, error) {
	v, err := c.env(ctx, by, in)
	if err != nil {
		return nil, err
	}
	at, shut, err := c.doors.open(ctx, v.Gateway.Door(access.Principal{Owner: true, Deployment: v.Instance}))
	if err != nil {
		return nil, err
	}
	by.Defer(shut)
	return map[string]any{"environment_url": at, "mcp_url": at + "/mcp", "headers": map[string]string{}}, nil
}

func (c *Calls) callTool(ctx context.Context, by *host.Caller, in struct {
	named
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
},
) (any, error) {
	v, err := c.env(ctx, by, in.named)
	if err != nil {
		return nil, err
	}
	out, err := v.Gateway.CallTool(ctx, access.Principal{Owner: true, Deployment: v.Instance}, in.Tool, orObject(in.Arguments))
	if err != nil {
		return nil, host.Refuse("%v", err)
	}
	return out, nil
}

func orObject(b json.RawMessage) json.RawMessage {
	if len(b) == 0 || string(b) == "null" {
		return json.RawMessage("{}")
	}
	return b
}

func (c *Calls) data(ctx context.Context, by *host.Caller, in struct {
	named
	Environment string          `json:"environment"`
	Method      string          `json:"method"`
	Params      json.RawMessage `json:"params"`
},
) (any, error) {
	v, err := c.env(ctx, by, in.named)
	if err != nil {
		return nil, err
	}
	out, err := v.Gateway.Data(ctx, in.Environment, in.Method, orObject(in.Params))
	if err != nil {
		return nil, host.Refuse("%v", err)
	}
	return out, nil
}

func (c *Calls) extension(ctx context.Context, by *host.Caller, in struct {
	named
	Environment string          `json:"environment"`
	URI         string          `json:"uri"`
	Operation   string          `json:"operation"`
	Params      json.RawMessage `json:"params"`
},
) (any, error) {
	v, err := c.env(ctx, by, in.named)
	if err != nil {
		return nil, err
	}
	name := in.Environment
	if names := v.Names(); name == "" && len(names) == 1 {
		name = names[0]
	}
	out, err := v.Extend(ctx, name, in.URI, in.Operation, orObject(in.Params))
	if err != nil {
		return nil, host.Refuse("%v", err)
	}
	return out, nil
}

// insideAddress is where an environment is found inside sandboxes.
const insideAddress = "127.0.0.1:18765"

// reach answers how this machine reaches a URL. Only what sandboxes call an environment has another address here.
func (c *Calls) reach(ctx context.Context, by *host.Caller, in struct {
	URL string `json:"url"`
},
) (any, error) {
	u, err := url.Parse(in.URL)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return nil, host.Refuse("%s is no URL", diag.Repr(in.URL))
	}
	if u.Host != insideAddress || by.Run == "" {
		return map[string]any{"url": in.URL, "headers": map[string]string{}}, nil
	}
	v, err := c.env(ctx, by, named{})
	if err != nil {
		return nil, err
	}
	at, shut, err := c.doors.open(ctx, v.Gateway.Door(access.Principal{Owner: true, Deployment: v.Instance}))
	if err != nil {
		return nil, err
	}
	by.Defer(shut)
	base, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	u.Scheme, u.Host, u.Path = base.Scheme, base.Host, path.Join(base.Path, u.Path)
	return map[string]any{"url": u.String(), "headers": map[string]string{}}, nil
}

func (c *Calls) box(ctx context.Context, by *host.Caller, name string) (guest.Box, error) {
	if by.Run == "" {
		return nil, host.Refuse("this call belongs to no run, and so has no sandboxes")
	}
	boxes, err := c.Boxes(ctx)
	if err != nil {
		return nil, err
	}
	b, err := boxes.Box(ctx, by.Run, name)
	if err != nil {
		return nil, host.Refuse("the sandbox %s %v", diag.Repr(name), err)
	}
	return b, nil
}

func (c *Calls) exec(ctx context.Context, by *host.Caller, in struct {
	Sandbox string   `json:"sandbox_name"`
	Argv    []string `json:"argv"`
	Dir     string   `json:"dir"`
	Env     []string `json:"env"`
	Stdin   string   `json:"stdin"`
	Timeout float64  `json:"timeout_seconds"`
},
) (any, error) {
	if len(in.Argv) == 0 || in.Timeout < 0 || in.Timeout > maxTimeout {
		return nil, rpc.Errorf(rpc.CodeParams, "argv must hold a command, and timeout_seconds be between 0 and %d", maxTimeout)
	}
	b, err := c.box(ctx, by, in.Sandbox)
	if err != nil {
		return nil, err
	}
	cmd := guest.Command{Argv: in.Argv, Dir: in.Dir, Env: in.Env, Timeout: time.Duration(in.Timeout * float64(time.Second)), KillTree: in.Timeout > 0}
	out, err := guest.Output(ctx, b, cmd, guest.Limits{Stdin: []byte(in.Stdin)})
	if err != nil {
		return nil, told(ctx, err)
	}
	return map[string]any{
		"exit_code": out.Exit.Code, "stdout": strings.ToValidUTF8(out.Stdout.String(), "\uFFFD"), "stderr": strings.ToValidUTF8(out.Stderr.String(), "\uFFFD"),
		"truncated": out.Stdout.Truncated || out.Stderr.Truncated,
	}, nil
}

const maxTimeout = 7 * 24 * 3600

// told is an error of a sandbox as plugins read it.
func told(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return host.Refuse("%v", err)
}

// maxFile is how large a file is that a plugin may read out of a sandbox.
const maxFile = 1 << 30

func (c *Calls) readFile(ctx context.Context, by *host.Caller, in struct {
	Sandbox string `json:"sandbox_name"`
	Path    string `json:"path"`
},
) (any, error) {
	b, err := c.box(ctx, by, in.Sandbox)
	if err != nil {
		return nil, err
	}
	content, err := b.ReadFile(ctx, in.Path, maxFile)
	if err != nil {
		return nil, told(ctx, err)
	}
	file, size, err := handOver(by, bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	return map[string]any{"file": file, "size": size}, nil
}

func (c *Calls) writeFile(ctx context.Context, by *host.Caller, in struct {
	Sandbox string  `json:"sandbox_name"`
	Path    string  `json:"path"`
	File    string  `json:"file"`
	Text    *string `json:"text"`
	Mode    uint32  `json:"mode"`
},
) (any, error) {
	if !path.IsAbs(in.Path) {
		return nil, rpc.Errorf(rpc.CodeParams, "path must be absolute")
	}
	b, err := c.box(ctx, by, in.Sandbox)
	if err != nil {
		return nil, err
	}
	r, err := content(in.File, in.Text)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	all, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err == nil && len(all) > maxFile {
		err = errors.New("it is too large")
	}
	if err != nil {
		return nil, fmt.Errorf("read what is to be written to %s: %w", diag.Repr(in.Path), err)
	}
	dir, name := path.Split(path.Clean(in.Path))
	put := guest.PutBytes(name, cmp.Or(fs.FileMode(in.Mode).Perm(), 0o644), all)
	if err := guest.Put(ctx, b, dir, []guest.PutFile{put}); err != nil {
		return nil, told(ctx, err)
	}
	return struct{}{}, nil
}
