// Package envstore reads environments that a store holds: a stored document with the images that it pins, down to the files that its servers are
// made of and how they run without an image.
//
// Words: a part is one server of an environment, or one side of a website; a source is where a part's files come from.
// Nothing is started here: internal/deploy does that.
package envstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// Reader is what environments are read from.
type Reader interface {
	store.Docs
	store.Objects
}

// Pin is a reference of a stored document.
type Pin struct {
	ID      string `json:"id"`
	Version int    `json:"version"`
	Type    string `json:"type"`
}

// Env is one version of a stored environment, with everything that it names.
type Env struct {
	ID      string
	Version int
	Type    string // one of env.Types
	Owner   string // the bundle that wrote it; "" for one that was put by hand
	Created time.Time
	// Provider is what deploys it: env.ProviderGateway, env.ProviderServer, or a plugin's.
	Provider string
	// Name is what its MCP server is called: a multi's name, or the one server's; "" for a multi that names none.
	Name  string
	Parts []Part
}

// Part is one server that a deployment starts.
type Part struct {
	Env  Pin    // the environment that it is of: of a multi, the one that it names
	Name string // environment_name
	// Key is the image key it is made of: "image" for a server, "backend_image" and "frontend_image" for a website's two sides, ComputerKey for a computer.
	Key    string
	Image  Pin
	Source Source
	// Document is the stored document of an environment whose type is a plugin's, without its Files; nil for the program's own types.
	Document json.RawMessage
	Files    []artifact.Bytes // what was beside its env.toml, by path; only of a plugin's type
	// Computer is what a computer has besides; nil for everything else.
	Computer *Computer
}

// Website tells whether the part is a side of a website.
func (p Part) Website() bool { return p.Env.Type == env.Website }

// Source is what an image artifact holds.
type Source struct {
	// Reference is an image of a registry, by digest; "" for a build context.
	Reference string
	// Dockerfile and Files are a build context: paths count from its top.
	Dockerfile string
	Files      []artifact.Bytes
	// Digest covers the context, so that what is made of equal sources can be shared; "" with a Reference.
	Digest ref.Digest
	// Process is how the server runs without an image; nil when no file says so.
	Process *env.Process
}

// document is a stored environment as it is spelled.
type document struct {
	Provider string `json:"env_provider_type"`
	Name     string `json:"environment_name"`
	Service  string `json:"service_name"`
	Title    string `json:"name"`
	Image    *Pin   `json:"docker_image_artifact"`
	Backend  *Pin   `json:"backend_docker_image_artifact"`
	Frontend *Pin   `json:"frontend_docker_image_artifact"`
	Servers  []Pin  `json:"mcp_server_envs"`
	Websites []Pin  `json:"website_envs"`
}

// Read is a version of an environment with its parts; version 0 is the latest. ErrNotFound of internal/store, naming what may have been meant; an
// error that is a diag.Refusal when a process.toml of it can't be used.
func Read(ctx context.Context, s Reader, id string, version int) (Env, error) {
	d, err := find(ctx, s, id, version)
	if err != nil {
		return Env{}, err
	}
	r := reading{store: s}
	return r.env(ctx, d)
}

func (r *reading) env(ctx context.Context, d store.Doc) (Env, error) {
	out, x, err := header(d)
	if err != nil {
		return Env{}, err
	}
	switch d.Type {
	case env.MCPServer, env.Website:
		err = r.parts(ctx, &out, Pin{d.ID, d.Version, d.Type}, x)
	case env.Multi:
		for _, p := range slices.Concat(x.Servers, x.Websites) {
			if err = r.child(ctx, &out, p); err != nil {
				break
			}
		}
		if err == nil && len(out.Parts) == 0 {
			err = errors.New("it names no environment")
		}
	case env.Computer, env.ComputerApp, env.ComputerDriver:
		err = r.computer(ctx, &out, d)
	default: // a plugin's
		p := Part{Env: Pin{d.ID, d.Version, d.Type}, Name: out.Name, Document: r.whole(d)}
		if p.Files, err = artifact.Files(d.Type, d.Body); errors.Is(err, artifact.ErrNoFiles) {
			err = nil
		}
		out.Parts = []Part{p}
	}
	if err == nil {
		err = r.faults.Err()
	}
	switch {
	case err == nil:
		return out, nil
	case d.Version == 0: // planned
		return Env{}, fmt.Errorf("environment %s: %w", diag.Repr(d.ID), err)
	default:
		return Env{}, fmt.Errorf("environment %s version %d: %w", diag.Repr(d.ID), d.Version, err)
	}
}

// Header is a version of an environment without its parts; version 0 is the latest. Every stored type is read.
func Header(ctx context.Context, s store.Docs, id string, version int) (Env, error) {
	d, err := find(ctx, s, id, version)
	if err != nil {
		return Env{}, err
	}
	out, _, err := header(d)
	return out, err
}

func header(d store.Doc) (Env, document, error) {
	var x document
	if err := json.Unmarshal(d.Body, &x); err != nil {
		return Env{}, x, fmt.Errorf("environment %s version %d: %w", diag.Repr(d.ID), d.Version, store.ErrCorrupt)
	}
	out := Env{ID: d.ID, Version: d.Version, Type: d.Type, Owner: d.Owner, Created: d.Created, Provider: x.Provider, Name: x.name()}
	switch {
	case d.Type == env.Multi:
		out.Name = x.Title
	case out.Name == "" && !slices.Contains(env.Types(), d.Type): // a plugin's
		out.Name = ref.Last(d.ID)
	}
	if out.Provider == "" {
		out.Provider = env.ProviderGateway
	}
	return out, x, nil
}

// whole is a document with what it is called by. One that is only planned lacks that.
func (r *reading) whole(d store.Doc) json.RawMessage {
	var m map[string]json.RawMessage
	if json.Unmarshal(d.Body, &m) != nil || m == nil {
		return d.Body
	}
	delete(m, artifact.StoredFiles) // how the store keeps them
	for name, v := range map[string]any{"id": d.ID, "version": d.Version, "type": d.Type} {
		if _, ok := m[name]; !ok {
			m[name], _ = json.Marshal(v)
		}
	}
	b, err := json.Marshal(m)
	if err != nil {
		return d.Body
	}
	return b
}

func (x document) name() string {
	if x.Name == "" {
		return x.Service
	}
	return x.Name
}

func find(ctx context.Context, s store.Docs, id string, version int) (store.Doc, error) {
	d, err := s.Get(ctx, store.Env, id, version)
	if !errors.Is(err, store.ErrNotFound) {
		return d, err
	}
	if version > 0 {
		if latest, lerr := s.Get(ctx, store.Env, id, 0); lerr == nil {
			return d, fmt.Errorf("version %d of environment %s is %w; the latest is version %d", version, diag.Repr(id), store.ErrNotFound, latest.Version)
		}
	}
	fix := "agent-env env list shows what is"
	if page, lerr := s.List(ctx, store.Query{Kind: store.Env, Limit: 1000}); lerr == nil {
		var ids []string
		for _, d := range page.Docs {
			ids = append(ids, d.ID)
		}
		if near := diag.Nearest(id, ids); near != "" {
			fix = "did you mean " + diag.Repr(near) + "?"
		}
	}
	return d, fmt.Errorf("environment %s is %w; %s", diag.Repr(id), store.ErrNotFound, fix)
}

// reading gathers the parts of one environment.
type reading struct {
	store   Reader
	planned Planned // nil for none
	faults  diag.List
}

// child adds the parts of an environment that a multi names.
func (r *reading) child(ctx context.Context, out *Env, p Pin) error {
	d, ok := r.planned.doc(ref.Env, p.ID, p.Version)
	if !ok {
		var err error
		if d, err = r.store.Get(ctx, store.Env, p.ID, p.Version); err != nil {
			return err
		}
	}
	_, x, err := header(d)
	if err != nil {
		return err
	}
	if d.Type != env.MCPServer && d.Type != env.Website {
		return fmt.Errorf("it names %s, which is of type %s", diag.Repr(p.ID), d.Type)
	}
	return r.parts(ctx, out, Pin{d.ID, d.Version, d.Type}, x)
}

func (r *reading) parts(ctx context.Context, out *Env, of Pin, x document) error {
	pins := map[string]*Pin{"image": x.Image, "backend_image": x.Backend, "frontend_image": x.Frontend}
	if x.name() == "" {
		return fmt.Errorf("%s has no environment_name: %w", diag.Repr(of.ID), store.ErrCorrupt)
	}
	for _, i := range env.Images(of.Type) {
		pin := pins[i.Key]
		if pin == nil {
			return fmt.Errorf("%s pins no %s: %w", diag.Repr(of.ID), i.Key, store.ErrCorrupt)
		}
		p := Part{Env: of, Name: x.name(), Key: i.Key, Image: *pin}
		var err error
		if p.Source, err = r.source(ctx, *pin, i.Key); err != nil {
			return err
		}
		out.Parts = append(out.Parts, p)
	}
	return nil
}

// source reads an image's document and the process.toml among its files.
func (r *reading) source(ctx context.Context, pin Pin, key string) (Source, error) {
	if w, ok := r.planned.find(ref.Artifact, pin.ID, pin.Version); ok {
		return r.plannedSource(w, pin, key)
	}
	d, err := r.store.Get(ctx, store.Artifact, pin.ID, pin.Version)
	if err != nil {
		return Source{}, err
	}
	img, err := artifact.ReadImage(d.Body)
	if err != nil {
		return Source{}, fmt.Errorf("image %s version %d: %w", diag.Repr(pin.ID), pin.Version, err)
	}
	if img.Dockerfile == "" && len(img.Files) == 0 {
		return Source{Reference: img.Name}, nil
	}
	s := Source{Dockerfile: img.Dockerfile, Files: img.Files, Digest: artifact.SourceDigest(img.Dockerfile, "", img.Files)}
	for _, f := range img.Files {
		if f.Path != env.ProcessFileOf(key) || f.Link != "" || f.Folder {
			continue
		}
		b, err := r.read(ctx, f)
		if err != nil {
			return s, fmt.Errorf("read %s: %w", f.Path, err)
		}
		p, l := env.ReadProcess(path.Join(pin.ID, f.Path), b)
		r.faults.Add(l.Of(diag.Error)...)
		s.Process = &p
	}
	return s, nil
}

func (r *reading) read(ctx context.Context, f artifact.Bytes) ([]byte, error) {
	if f.Size > env.MaxProcess {
		return nil, fmt.Errorf("it has %d bytes, and may have %d", f.Size, env.MaxProcess)
	}
	in, _, err := store.OpenVerified(ctx, r.store, f.Digest)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	return io.ReadAll(in)
}
