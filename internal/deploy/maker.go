package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/envdb"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/redact"
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
	// Records keeps what environments of runs leave; nil: nothing is kept, and no result is too large.
	Records Records
	// Redact takes secrets out of what is kept; nil knows none.
	Redact *redact.Redactor
	// Postgres is where environments have their databases; nil: each has a file in its box.
	Postgres *envdb.Server
	// PythonIndex is the URL of the index that packages come from; "" is DefaultPythonIndex.
	PythonIndex string
	// NPMRegistry is the URL of the registry that packages of Node come from; "" is DefaultNPMRegistry.
	NPMRegistry string
	// Tools are the folders of tool chains that local sandboxes see.
	Tools []string
	// Foreign starts environments of types that the program lacks; nil: there are none.
	Foreign Foreign
	// Hands is the folder of the sockets by which consoles reach mouse and keyboard of computers; "": nobody takes one over.
	Hands string
	// LookPath tells where a program of this machine is, for computers without an image; nil: exec.LookPath.
	LookPath func(program string) (string, error)
}

// maker starts the servers of environments.
type maker struct {
	boxes   *Deployments
	store   envstore.Reader
	options EnvOptions
	images  images
}

func newMaker(d *Deployments, files envstore.Reader, o EnvOptions) *maker {
	if o.LookPath == nil {
		o.LookPath = exec.LookPath
	}
	return &maker{boxes: d, store: files, options: o, images: newImages()}
}

// way is how a part's server runs: on which provider, in what kind of box.
type way struct {
	provider string
	spec     sandbox.Spec
	process  bool            // as its process file says, without an image
	engine   sandbox.Builder // what has to make the image of spec before; nil when the provider knows it by its name
}

// choose finds the first provider of a chain that can run a part, and how. It is a *Refused when none can.
func (m *maker) choose(ctx context.Context, chain []string, isolation string, r EnvRequest, p envstore.Part) (way, error) {
	var refused []string
	for _, name := range chain {
		e, ok := m.boxes.providers.Get(name)
		if !ok {
			refused = append(refused, m.boxes.unknown(name))
			continue
		}
		w, err := m.wayOf(name, e.Value, r, p)
		if err == nil {
			w.spec.Isolation = isolation
			if c, checks := e.Value.(sandbox.Checker); checks {
				err = c.Check(ctx, w.spec)
			}
		}
		switch {
		case err == nil:
			return w, nil
		case errors.Is(err, sandbox.ErrUnsupported):
			refused = append(refused, name+": "+oneLine(err))
		default:
			return way{}, err
		}
	}
	return way{}, &Refused{refused}
}

// toBeBuilt stands for an image that isn't there yet, for those that check a Spec.
const toBeBuilt = "to be built"

// wayOf is how a provider would run a part.
func (m *maker) wayOf(name string, p sandbox.Provider, r EnvRequest, part envstore.Part) (way, error) {
	w := way{provider: name, spec: sandbox.Spec{Lease: r.Lease, CPU: r.CPU, MemoryMB: r.MemoryMB, DiskMB: r.DiskMB, Labels: r.Labels}}
	src := part.Source
	engine, builds := p.(sandbox.Builder)
	switch {
	case part.Computer != nil:
		return m.computerWay(w, engine, builds, part)
	case src.Process != nil && name == localProvider:
		w.process, w.spec.Self = true, src.Process.Command[0] == env.Self
	case src.Reference != "":
		w.spec.Image = src.Reference
		if builds {
			return w, w.byReference(engine, part)
		}
	case builds:
		w.engine, w.spec.Image = engine, toBeBuilt // what start has built takes its place
	case src.Process != nil:
		return w, unsupported("%s runs without an image on local sandboxes alone, and only an engine builds its Dockerfile", label(part))
	default:
		return w, unsupported("%s has only a Dockerfile: put a %s beside it that says how it runs without an image, or let a container engine build it",
			label(part), env.ProcessFileOf(part.Key))
	}
	return w, nil
}

func unsupported(format string, args ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), sandbox.ErrUnsupported)
}

// start makes the box of a part and starts its server. A Server beside an error has a box that is to be removed.
func (m *maker) start(ctx context.Context, r EnvRequest, p envstore.Part, sides *shared) (*Server, error) {
	policy := m.boxes.policy(r.Run)
	w, err := m.choose(ctx, m.boxes.Chain(policy.Chain, r.Type), policy.Isolation, r, p)
	if err != nil {
		return nil, err
	}
	if w.engine != nil {
		root := p
		if p.Computer != nil {
			root.Source = p.Computer.Root
		}
		if w.spec.Image, err = m.image(ctx, w.engine, root); err != nil {
			return nil, err
		}
	}
	made, err := m.made(ctx, r, p, &w)
	defer made.release() // a box holds what it is shown by itself
	if err != nil {
		return nil, err
	}
	s := &Server{Name: p.Name, Website: p.Website(), Key: p.Key, boxName: boxName(r, p), port: portOf(p, w.process), computer: p.Computer}
	if p.Key == frontendKey {
		w.spec.Aliases = []string{fileName(p.Name) + "-website-backend"}
	}
	if p.Computer != nil {
		w.spec.Labels = tellOf(w.spec.Labels, r, p.Name, s.port)
	}
	if s.Box, err = m.boxes.Create(ctx, Request{Run: r.Run, Step: r.Step, Attempt: r.Attempt, Name: s.boxName, Provider: w.provider, Spec: w.spec}); err != nil {
		return nil, step.Infra(err)
	}
	box, err := m.boxes.Box(ctx, r.Run, s.boxName)
	if err != nil {
		return s, step.Infra(err)
	}
	c, err := commandOf(p, w.process, s.Box.Entry)
	if err != nil {
		return s, err
	}
	c.Env = append(c.Env, "DATABASE_URL="+sides.database(p.Name))
	if err := m.place(ctx, p, &w, made, box); err != nil {
		return s, step.Infra(fmt.Errorf("put its folder into the sandbox: %w", err))
	}
	s.server = newServer(p.Name, box, c)
	s.log = m.boxes.output(r.Run, s.boxName, m.options.Redact)
	if sides.dbs != nil && s.backend() {
		if err := s.inwards(ctx, box, envdb.BoxAddress, sides.dbs.Dial); err != nil {
			return s, step.Infra(err)
		}
	}
	switch {
	case p.Key == frontendKey: // before it is started: some look for their backend at once
		at := net.JoinHostPort("127.0.0.1", strconv.Itoa(doorPort(s.port)))
		if err := s.inwards(ctx, box, at, func(ctx context.Context) (net.Conn, error) { return sides.dial(ctx, p.Name) }); err != nil {
			return s, step.Infra(err)
		}
	case p.Website():
		sides.add(s)
	}
	return s, s.server.start(ctx)
}

// place fills the box of a part with what its server needs.
func (m *maker) place(ctx context.Context, p envstore.Part, w *way, made trees, box guest.Box) error {
	switch {
	case !w.process:
		return ensureTmp(ctx, box)
	case made.built != nil:
		return putTree(ctx, box, made.built.Path(), workFolder)
	default:
		return guest.Put(ctx, box, workFolder, putFiles(ctx, m.store, p.Source.Files))
	}
}

// trees are what was made for a part that runs without an image.
type trees struct{ packages, built *treestore.Held }

func (t trees) release() {
	for _, h := range []*treestore.Held{t.packages, t.built} {
		if h != nil {
			_ = h.Release()
		}
	}
}

// made makes what a process file asks for, and shows it to the box of w.
func (m *maker) made(ctx context.Context, r EnvRequest, p envstore.Part, w *way) (t trees, err error) {
	if !w.process {
		return t, nil
	}
	if p.Source.Process.Python != "" {
		if t.packages, err = m.packages(ctx, r, p); err != nil {
			return t, err
		}
		w.spec.Shown = []sandbox.Shown{{From: t.packages.Path(), At: pythonFolder, Hold: t.packages.File()}}
	}
	if p.Source.Process.Build != nil {
		t.built, err = m.build(ctx, r, p)
	}
	return t, err
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

// Ports of a website's sides where an image runs them, which says nothing of them.
const (
	backendPort  = 8000
	frontendPort = 80
)

// doorPort is where a frontend finds its backend in its own sandbox, given the port that it listens on itself.
func doorPort(own int) int {
	if own == backendPort {
		return backendPort + 1
	}
	return backendPort
}

// portOf is where a part's server listens.
func portOf(p envstore.Part, process bool) int {
	switch {
	case process:
		return p.Source.Process.Port
	case p.Key == frontendKey:
		return frontendPort
	case p.Website():
		return backendPort
	default:
		return env.DefaultPort
	}
}

// frontendKey is the image key of a website's side that has no data plane.
const frontendKey = "frontend_image"

// commandOf is how a part's server is started: as its process file says, or as its image does.
func commandOf(p envstore.Part, process bool, entry *sandbox.Entry) (guest.Command, error) {
	c := guest.Command{KillTree: true}
	number := portOf(p, process)
	port := strconv.Itoa(number)
	if p.Website() {
		c.Env = append(c.Env, "PORT="+port)
	}
	if p.Key == frontendKey {
		c.Env = append(c.Env, "BACKEND_URL=http://127.0.0.1:"+strconv.Itoa(doorPort(number)))
	}
	if process {
		proc := p.Source.Process
		c.Argv, c.Dir, c.Env = slices.Clone(proc.Command), workFolder, append(c.Env, proc.Env...)
		if c.Argv[0] == env.Self {
			c.Argv[0] = sandbox.SelfPath
		}
		if proc.Python != "" {
			c.Env = append(c.Env, "PYTHONPATH="+pythonFolder, "PATH="+pythonFolder+"/bin:"+systemPath)
		}
	} else if entry != nil {
		c.Argv = entry.Argv()
	}
	if len(c.Argv) == 0 {
		return c, errors.New("its image has neither ENTRYPOINT nor CMD, so nothing says how the server starts")
	}
	c.Env = append(c.Env,
		"MCP_HOST=127.0.0.1", "MCP_PORT="+port, "ENVIRONMENT_NAME="+p.Name, "SERVICE_NAME="+p.Name,
	)
	return c, nil
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

// transport reaches the server: through its box, whatever address it is asked for, or where it is.
func (s *Server) transport() *Way {
	if s.away != nil {
		return &Way{Transport: child.Transport(nil), headers: s.away.Headers}
	}
	return &Way{Transport: &http.Transport{
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return s.box.Dial(ctx, "tcp", s.address()) },
		MaxIdleConnsPerHost: 64, IdleConnTimeout: 90 * time.Second, DisableCompression: true,
	}}
}

// front makes the gateway in front of the servers. It outlives ctx: closing the environment ends it.
func (e *Envs) front(ctx context.Context, r EnvRequest, v *Env) (*front.Gateway, error) {
	o := front.Options{Name: v.Title, Consistent: r.Consistent, Log: e.log, CallLog: e.callLog(r), StateFile: r.StateFile, Executor: errands{e, v}}
	e.record(r, v, &o)
	if v.dbs != nil {
		o.Changes = v.dbs
	}
	for _, s := range v.Servers {
		if !s.backend() {
			continue
		}
		c := front.Child{
			Name: s.Name, URL: s.base(), Transport: s.transport(), Website: s.Website,
			Restart: func(ctx context.Context) error {
				if s.away != nil {
					return nil // it is its plugin's to keep up
				}
				if err := s.restart(ctx); err != nil {
					return fmt.Errorf("start %s again: %w", diag.Repr(s.Name), err)
				}
				return nil
			},
		}
		if s.away != nil {
			c.MCP = s.away.MCP
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
