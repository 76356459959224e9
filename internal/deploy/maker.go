package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/treestore"
)

// workFolder is where an environment's folder is in the box of its server, and where the server starts.
const workFolder = "/app"

// localProvider is the provider whose boxes have a system of their own, so that a server needs no image.
const localProvider = "local"

// EnvOptions are what deployments of environments may use beside sandboxes.
type EnvOptions struct {
	// Trees keeps what is made for environments, builds and Python packages; nil: nothing can be made.
	Trees *treestore.Store
	// PythonIndex is the URL of the index that packages come from; "" is DefaultPythonIndex.
	PythonIndex string
}

// maker starts the servers of environments.
type maker struct {
	boxes   *Deployments
	store   envstore.Reader
	options EnvOptions
}

func newMaker(d *Deployments, files envstore.Reader, o EnvOptions) *maker { return &maker{d, files, o} }

// choose finds the first provider of a chain that can run a part, and what its box is to be. It is a *Refused when none can.
func (m *maker) choose(ctx context.Context, chain []string, isolation string, r EnvRequest, p envstore.Part) (string, sandbox.Spec, error) {
	var refused []string
	for _, name := range chain {
		e, ok := m.boxes.providers.Get(name)
		if !ok {
			refused = append(refused, m.boxes.unknown(name))
			continue
		}
		spec, err := m.spec(name, r, p)
		if err == nil {
			spec.Isolation = isolation
			if c, checks := e.Value.(sandbox.Checker); checks {
				err = c.Check(ctx, spec)
			}
		}
		switch {
		case err == nil:
			return name, spec, nil
		case errors.Is(err, sandbox.ErrUnsupported):
			refused = append(refused, name+": "+oneLine(err))
		default:
			return "", sandbox.Spec{}, err
		}
	}
	return "", sandbox.Spec{}, &Refused{refused}
}

// spec is the box that a provider would make for a part.
func (m *maker) spec(provider string, r EnvRequest, p envstore.Part) (sandbox.Spec, error) {
	s := sandbox.Spec{Lease: r.Lease, CPU: r.CPU, MemoryMB: r.MemoryMB, DiskMB: r.DiskMB, Labels: r.Labels}
	src := p.Source
	switch {
	case src.Process != nil && provider == localProvider:
		s.Self = src.Process.Command[0] == env.Self
		return s, nil
	case src.Reference != "":
		return s, unsupported("%s is made of the image %s, and servers of images can't be started by this version", label(p), src.Reference)
	default:
		return s, unsupported("%s has only a Dockerfile: put a %s beside it that says how it runs without an image, or let a container engine build it", label(p), env.ProcessFileOf(p.Key))
	}
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), sandbox.ErrUnsupported)
}

// start makes the box of a part and starts its server. A Server beside an error has a box that is to be removed.
func (m *maker) start(ctx context.Context, r EnvRequest, p envstore.Part, instance string) (*Server, error) {
	m.boxes.mu.Lock()
	policy := m.boxes.account(r.Run).policy
	m.boxes.mu.Unlock()
	provider, spec, err := m.choose(ctx, m.boxes.Chain(policy.Chain, r.Type), policy.Isolation, r, p)
	if err != nil {
		return nil, err
	}
	var packages, built *treestore.Held
	defer func() { // a box holds what it is shown by itself
		for _, h := range []*treestore.Held{packages, built} {
			if h != nil {
				_ = h.Release()
			}
		}
	}()
	if p.Source.Process.Python != "" {
		if packages, err = m.packages(ctx, r, p); err != nil {
			return nil, err
		}
		spec.Shown = []sandbox.Shown{{From: packages.Path(), At: pythonFolder, Hold: packages.File()}}
	}
	if p.Source.Process.Build != nil {
		if built, err = m.build(ctx, r, p); err != nil {
			return nil, err
		}
	}
	s := &Server{Name: p.Name, Website: p.Website(), Key: p.Key, boxName: boxName(r, p), port: p.Source.Process.Port}
	if s.Box, err = m.boxes.Create(ctx, Request{Run: r.Run, Step: r.Step, Attempt: r.Attempt, Name: s.boxName, Provider: provider, Spec: spec}); err != nil {
		return nil, step.Infra(err)
	}
	box, err := m.boxes.Box(ctx, r.Run, s.boxName)
	if err != nil {
		return s, step.Infra(err)
	}
	if built != nil {
		err = putTree(ctx, box, built.Path(), workFolder)
	} else {
		err = guest.Put(ctx, box, workFolder, putFiles(ctx, m.store, p.Source.Files))
	}
	if err != nil {
		return s, step.Infra(fmt.Errorf("put its folder into the sandbox: %w", err))
	}
	s.server = newServer(p.Name, box, command(p))
	return s, s.server.start(ctx)
}

// boxName is the name of a server's box in its run.
func boxName(r EnvRequest, p envstore.Part) string {
	name := "env " + p.Name
	if p.Website() {
		name += " " + strings.TrimSuffix(p.Key, "_image")
	}
	if r.Step != "" {
		name += " of " + r.Step
	}
	return name
}

// command is how a part's server is started.
func command(p envstore.Part) guest.Command {
	proc := p.Source.Process
	argv := slices.Clone(proc.Command)
	if argv[0] == env.Self {
		argv[0] = sandbox.SelfPath
	}
	vars := slices.Clone(proc.Env)
	if proc.Python != "" {
		vars = append(vars, "PYTHONPATH="+pythonFolder, "PATH="+pythonFolder+"/bin:"+systemPath)
	}
	return guest.Command{Argv: argv, Dir: workFolder, KillTree: true, Env: append(vars,
		"MCP_HOST=127.0.0.1", "MCP_PORT="+strconv.Itoa(proc.Port), "ENVIRONMENT_NAME="+p.Name, "SERVICE_NAME="+p.Name,
		"DATABASE_URL=sqlite:////tmp/"+fileName(p.Name)+".sqlite",
	)}
}

// fileName is a name with what paths and URLs give a meaning taken out.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, name)
}

// putFiles are stored files for guest.Put.
func putFiles(ctx context.Context, objects store.Objects, stored []artifact.Bytes) []guest.PutFile {
	out := make([]guest.PutFile, 0, len(stored))
	for _, b := range stored {
		f := guest.PutFile{Path: b.Path, Mode: fs.FileMode(b.Mode), Size: b.Size, Link: b.Link}
		if b.Folder {
			f.Mode = 0o755
		} else if b.Link == "" {
			f.Open = func() (io.ReadCloser, error) {
				in, _, err := store.OpenVerified(ctx, objects, b.Digest)
				return in, err
			}
		}
		out = append(out, f)
	}
	return out
}

// address is where a server listens in its box.
func (s *Server) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// transport reaches the server through its box, whatever address it is asked for.
func (s *Server) transport() *http.Transport {
	return &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return s.box.Dial(ctx, "tcp", s.address()) },
		MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
	}
}

// front makes the gateway in front of the servers. It outlives ctx: closing the environment ends it.
func (e *Envs) front(ctx context.Context, r EnvRequest, v *Env) (*front.Gateway, error) {
	o := front.Options{Name: v.Title, Consistent: r.Consistent, Log: e.log, CallLog: r.CallLog, StateFile: r.StateFile}
	for _, s := range v.Servers {
		if !s.backend() {
			continue
		}
		c := front.Child{
			Name: s.Name, URL: "http://" + s.address(), Transport: s.transport(), Website: s.Website,
			Restart: func(ctx context.Context) error {
				if err := s.restart(ctx); err != nil {
					return fmt.Errorf("start %s again: %w", diag.Repr(s.Name), err)
				}
				return nil
			},
		}
		if f := v.frontend(s); f != nil {
			c.Frontend, c.FrontendTransport = "http://"+f.address(), f.transport()
		}
		o.Children = append(o.Children, c)
	}
	return front.New(context.WithoutCancel(ctx), o)
}

// frontend is the other side of a website's backend; nil for a server.
func (v *Env) frontend(backend *Server) *Server {
	for _, s := range v.Servers {
		if s.Website && backend.Website && s.Name == backend.Name && !s.backend() {
			return s
		}
	}
	return nil
}
