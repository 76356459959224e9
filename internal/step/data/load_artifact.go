// Package data executes the steps that bring data into a task's world and out of it: load_artifact, collect_artifacts.
//
// Bytes come from the store, checked against their digest on the way, or go into it, and never pass through memory whole.
package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

const (
	// defaultDestination is where a sandbox gets files when the step says nothing.
	defaultDestination = "/loaded"
	// agentDestination is where an agent finds what is loaded for it.
	agentDestination = "/tmp/file_artifacts"
	// maxListed bounds how many file names the context document keeps of one artifact.
	maxListed = 1000
	// LoadedPath is where load_artifact leaves what it copied.
	LoadedPath = "metadata/loaded_file_artifact_universes"
)

// Store is what the executors read.
type Store interface {
	store.Docs
	store.Objects
}

// Environments is what the executors need of deployed environments.
type Environments interface {
	Env(run, id, step string) (*deploy.Env, error)
}

// LoadArtifact copies artifacts that hold files, what an earlier step collected, and downloads into a sandbox, and data of environments into them. It installs
// commands into agents' sandboxes.
type LoadArtifact struct {
	store  Store
	boxes  step.Boxes
	envs   Environments
	agents Agents
	web    *Downloads
}

// NewLoadArtifact makes the executor.
func NewLoadArtifact(s Store, b step.Boxes, e Environments, a Agents, web *Downloads) *LoadArtifact {
	return &LoadArtifact{s, b, e, a, web}
}

var _ step.Preflighter = (*LoadArtifact)(nil)

// Preflight tells which targets, sources and types can't be loaded.
func (e *LoadArtifact) Preflight(ctx context.Context, d doc.Node, p step.Plan) diag.List {
	var l diag.List
	fits, target, fix := artifact.HoldsFiles, "a sandbox", []any{artifact.File, artifact.FileUniverse}
	if !d.Get("env_id").IsNull() {
		fits, target, fix = envstore.HoldsData, "an environment", []any{artifact.Environment, artifact.EnvironmentUniverse}
	}
	for i, n := range d.Get("urls").Items() {
		u, err := url.Parse(address(n))
		if err == nil {
			err = checkURL(u)
		} else {
			err = errors.New("this is no URL") // the error would repeat all of it
		}
		if err != nil {
			l.Add(diag.Problem{Pos: n.Pos(), Where: fmt.Sprintf("urls[%d]", i), Code: "data.url", Summary: err.Error(), Fix: "name a file by its http or https URL"})
		}
	}
	if p.Type == nil {
		return l
	}
	for _, s := range sources(d) {
		typ := p.Type(ctx, ref.Artifact, s.id, s.version)
		if typ == artifact.CLI {
			l.Add(commandTarget(d, s)...)
			continue
		}
		if typ != "" && !fits(typ) {
			l.Add(diag.Problem{
				Pos: s.at.Pos(), Where: s.field, Code: "data.type",
				Summary: fmt.Sprintf("%s is of type %s, which can't be loaded into %s", diag.Repr(s.id), typ, target),
				Fix:     fmt.Sprintf("load an artifact of type %s or %s", fix...),
			})
		}
	}
	return l
}

// source is one artifact that a step names.
type source struct {
	at      doc.Node
	field   string
	id      string
	version int // 0: the latest
}

func sources(d doc.Node) []source {
	var out []source
	if id, ok := d.Get("artifact_id").Str(); ok {
		v, _ := d.Get("artifact_version").Int()
		out = append(out, source{d.Get("artifact_id"), "artifact_id", id, int(v)})
	}
	for i, a := range d.Get("artifacts").Items() {
		v, _ := a.Get("version").Int()
		out = append(out, source{a.Get("id"), fmt.Sprintf("artifacts[%d].id", i), a.Get("id").Text(), int(v)})
	}
	return out
}

// loaded is an element of loaded_file_artifact_universes.
type loaded struct {
	ID          string   `json:"id"`
	Version     int      `json:"version"`
	Type        string   `json:"artifact_type"`
	Env         *string  `json:"env_id"`
	Agent       *string  `json:"agent_name"`
	Sandbox     string   `json:"sandbox_name"`
	Container   *string  `json:"container_name"`
	Destination string   `json:"destination_path"`
	Files       []string `json:"files"` // at most maxListed
	Count       int      `json:"file_count"`
}

// address is the URL of an element of urls.
func address(n doc.Node) string {
	if n.Kind() == doc.Object {
		n = n.Get("url")
	}
	return n.Text()
}

// cargo is what one call copies.
type cargo struct {
	to    string
	files []guest.PutFile
	done  []loaded
	names claims
	open  []io.Closer
}

// Run copies the files of every source, as one stream, and records what it copied.
func (e *LoadArtifact) Run(ctx context.Context, c *step.Call) error {
	if id := c.Doc.Get("env_id").Text(); id != "" {
		return e.environment(ctx, c, id)
	}
	name := c.Doc.Get("sandbox_name").Text()
	l := &cargo{to: destination(c.Doc), names: claims{files: map[string]string{}, folders: map[string]string{}}}
	defer func() {
		for _, f := range l.open {
			_ = f.Close()
		}
	}()
	from := sources(c.Doc)
	made, ok, err := producer(c)
	if err != nil {
		return err
	}
	if ok {
		from = append(from, made...)
	}
	for _, s := range from {
		if err := e.artifact(ctx, l, s); err != nil {
			return err
		}
	}
	for _, n := range c.Doc.Get("urls").Items() {
		if err := e.download(ctx, c, l, n); err != nil {
			return err
		}
	}
	if ok && len(l.done) == 0 {
		c.Log.Info("there was nothing to load: that step had nothing to store")
		return nil
	}
	target, err := step.TargetBox(c.State, c.Doc)
	if err != nil {
		return err
	}
	box, err := e.boxes.Box(ctx, c.Run, target)
	if err != nil {
		return boxError(err)
	}
	if err := guest.Put(ctx, box, l.to, l.files); err != nil {
		return putError(l.to, err)
	}
	for _, rec := range l.done {
		rec.Sandbox, rec.Destination = name, l.to
		if who := c.Doc.Get("agent_name").Text(); who != "" && name == "" {
			rec.Agent = &who
		}
		if k := c.Doc.Get("container_name").Text(); k != "" {
			rec.Container = &k
		}
		c.Log.Info("loaded", "artifact", rec.ID, "version", rec.Version, "files", rec.Count, "into", l.to)
		if err := c.Out.Append(LoadedPath, rec); err != nil {
			return err
		}
	}
	return nil
}

// producer is what the step stored whose id the call names; nothing when that step had nothing to store, and not ok when none is named.
func producer(c *step.Call) (out []source, ok bool, err error) {
	for _, field := range []string{"collected_artifacts_step_id", "artifact_from_step_id"} {
		id := c.Doc.Get(field).Text()
		if id == "" {
			continue
		}
		var rec collected
		known, err := c.State.Get(step.Child(CollectedPath, id), &rec)
		switch {
		case err != nil:
			return nil, false, step.Errorf("ValueError", "what step '%s' stored can't be read: %w", id, err)
		case !known:
			return nil, false, step.Errorf("NotFoundError", "step '%s' has stored nothing: no step of this id that stores files has ended before this one", id)
		case rec.Universe != nil:
			out = append(out, source{c.Doc.Get(field), field, rec.Universe.ID, rec.Universe.Version})
		}
		ok = true
	}
	return out, ok, nil
}

// artifact adds the files of a stored artifact.
func (e *LoadArtifact) artifact(ctx context.Context, l *cargo, s source) error {
	d, parts, err := e.read(ctx, s)
	if err != nil {
		return err
	}
	rec := loaded{ID: d.ID, Version: d.Version, Type: d.Type, Files: []string{}, Count: len(parts)}
	for _, b := range parts {
		at := b.Path
		if b.Folder {
			at += "/." // several may have it
		}
		if err := l.names.claim(at, d.ID); err != nil {
			return err
		}
		l.files = append(l.files, e.file(ctx, b))
		if b.Folder {
			rec.Count--
			continue
		}
		if len(rec.Files) < maxListed {
			rec.Files = append(rec.Files, b.Path)
		}
	}
	l.done = append(l.done, rec)
	return nil
}

// typeURL stands in records for the type of what was downloaded.
const typeURL = "url"

// download adds the file at a URL.
func (e *LoadArtifact) download(ctx context.Context, c *step.Call, l *cargo, n doc.Node) error {
	name := step.DownloadName(n)
	id := typeURL
	if u, err := url.Parse(address(n)); err == nil {
		id = shown(u)
	}
	if err := l.names.claim(name, id); err != nil {
		return err
	}
	f, size, err := e.web.get(ctx, address(n))
	if err != nil {
		return err
	}
	l.open = append(l.open, f)
	c.Log.Info("downloaded", "url", id, "bytes", size)
	l.files = append(l.files, guest.PutFile{Path: name, Mode: 0o644, Size: size, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(f, 0, size)), nil
	}})
	l.done = append(l.done, loaded{ID: id, Type: typeURL, Files: []string{name}, Count: 1})
	return nil
}

func destination(d doc.Node) string {
	to := d.Get("destination_path").Text()
	if to == "" {
		to = defaultDestination
		if d.Get("sandbox_name").Text() == "" {
			to = agentDestination
		}
	}
	return path.Join("/", to)
}

// read is an artifact's document with the files that it names.
func (e *LoadArtifact) read(ctx context.Context, s source) (store.Doc, []artifact.Bytes, error) {
	d, err := e.store.Get(ctx, store.Artifact, s.id, s.version)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return d, nil, &step.Error{Type: "NotFoundError", Err: err}
	case err != nil:
		return d, nil, step.Infra(err)
	}
	parts, err := artifact.Files(d.Type, d.Body)
	switch {
	case errors.Is(err, artifact.ErrNoFiles):
		return d, nil, step.Errorf("TypeError", "%s is of type %s, which can't be loaded into a sandbox", diag.Repr(d.ID), d.Type)
	case err != nil:
		return d, nil, step.Infra(fmt.Errorf("artifact %s version %d: %w", d.ID, d.Version, err))
	}
	return d, parts, nil
}

// claims knows which artifact each path comes from.
type claims struct{ files, folders map[string]string }

// claim refuses two files for one path, and a file where another needs a folder.
func (c *claims) claim(p, id string) error {
	if other, taken := c.files[p]; taken {
		return step.Errorf("NameClash", "%s comes from both %s and %s", diag.Repr(p), diag.Repr(other), diag.Repr(id))
	}
	if other, taken := c.folders[p]; taken {
		return step.Errorf("NameClash", "%s is a file of %s and a folder of %s", diag.Repr(p), diag.Repr(id), diag.Repr(other))
	}
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if other, taken := c.files[dir]; taken {
			return step.Errorf("NameClash", "%s is a file of %s and a folder of %s", diag.Repr(dir), diag.Repr(other), diag.Repr(id))
		}
		if _, known := c.folders[dir]; known {
			break // so are the folders above it
		}
		c.folders[dir] = id
	}
	if path.Base(p) != "." {
		c.files[p] = id
	}
	return nil
}

func (e *LoadArtifact) file(ctx context.Context, b artifact.Bytes) guest.PutFile {
	switch {
	case b.Link != "":
		return guest.PutFile{Path: b.Path, Link: b.Link}
	case b.Folder:
		return guest.PutFile{Path: b.Path, Mode: 0o755}
	}
	return guest.PutFile{Path: b.Path, Mode: fs.FileMode(b.Mode), Size: b.Size, Open: func() (io.ReadCloser, error) {
		r, _, err := store.OpenVerified(ctx, e.store, b.Digest)
		return r, err
	}}
}

// putError tells a fault of the store from what the sandbox answered.
func putError(to string, err error) error {
	if _, ok := errors.AsType[*guest.SourceError](err); ok {
		return step.Infra(&step.Error{Type: "StoreError", Err: err})
	}
	return fmt.Errorf("write into %s: %w", to, err)
}

// boxError types the error of a sandbox that the task doesn't have.
func boxError(err error) error {
	if step.IsInfra(err) {
		return err
	}
	return &step.Error{Type: "SandboxError", Err: err}
}
