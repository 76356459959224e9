package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// Foreign starts environments whose type the program lacks: plugins do. They run where the plugin has them, in no sandbox of the run.
type Foreign interface {
	// Check tells why environments of a type can't be deployed here, or nil. Nothing is started.
	Check(ctx context.Context, typ string) error
	Deploy(ctx context.Context, r ForeignRequest) (*ForeignServer, error)
}

// ForeignRequest is one such environment.
type ForeignRequest struct {
	Run, Step string
	Type      string
	Env       json.RawMessage // its stored document
	Options   json.RawMessage // what the deployment was asked for
	Files     []ForeignFile   // what was beside its env.toml
}

// ForeignFile is a stored file of an environment's folder.
type ForeignFile struct {
	Path string // relative, "/"-separated, leading nowhere else
	Mode fs.FileMode
	Size int64
	Open func() (io.ReadCloser, error)
}

// ForeignServer is a running one, and how this machine reaches it. Its owner closes it.
type ForeignServer struct {
	URL, MCP string // bases; MCP "" is what the card says
	Headers  map[string]string
	Metadata json.RawMessage // an object that goes into the context document; nil for none
	// ReadsFiles: it reads file:// addresses of this machine, so that data is handed over as a file and has no limit.
	ReadsFiles bool
	// Reset puts it back to its first state; ErrNoReset where only its data plane can.
	Reset func(ctx context.Context) error
	Close func(ctx context.Context) error
}

// ErrNoReset: what deployed the environment can't put it back.
var ErrNoReset = errors.New("has no reset of its own")

// closeLimit bounds the end of one foreign environment.
const closeLimit = 60 * time.Second

// checkForeign tells why a part that a plugin serves can't be deployed.
func (e *Envs) checkForeign(ctx context.Context, p envstore.Part) error {
	if e.maker.options.Foreign == nil {
		return fmt.Errorf("environments of type %s can't be deployed here", diag.Repr(p.Env.Type))
	}
	return e.maker.options.Foreign.Check(ctx, p.Env.Type)
}

// foreign starts a part that a plugin serves.
func (e *Envs) foreign(ctx context.Context, r EnvRequest, v *Env, p envstore.Part) (*Server, error) {
	if err := e.checkForeign(ctx, p); err != nil {
		return nil, err
	}
	options, err := json.Marshal(map[string]any{
		"instance_id": v.Instance, "lease_seconds": r.Lease.Seconds(), "labels": r.Labels, "cpu": r.CPU, "memory_mb": r.MemoryMB, "disk_mb": r.DiskMB,
	})
	if err != nil {
		return nil, err
	}
	f, err := e.maker.options.Foreign.Deploy(ctx, ForeignRequest{Run: r.Run, Step: r.Step, Type: p.Env.Type, Env: p.Document, Options: options, Files: e.filesOf(ctx, p)})
	if err != nil {
		return nil, err
	}
	f.URL = strings.TrimSuffix(f.URL, "/")
	return &Server{Name: p.Name, Key: p.Key, away: f}, nil
}

// filesOf are the files of a part's folder, read from the store when they are opened.
func (e *Envs) filesOf(ctx context.Context, p envstore.Part) []ForeignFile {
	var out []ForeignFile
	for _, f := range p.Files {
		out = append(out, ForeignFile{Path: f.Path, Mode: fs.FileMode(f.Mode), Size: f.Size, Open: func() (io.ReadCloser, error) {
			r, _, err := store.OpenVerified(ctx, e.maker.store, f.Digest)
			return r, err
		}})
	}
	return out
}

// Foreign tells what serves the environment beside the program; nil for one in sandboxes.
func (s *Server) Foreign() *ForeignServer { return s.away }

// base is the URL that the server's routes are below, for its transport.
func (s *Server) base() string {
	if s.away != nil {
		return s.away.URL
	}
	return "http://" + s.address()
}

// url is the URL of a path of the server's.
func (s *Server) url(path string) *url.URL {
	u, err := url.Parse(s.base())
	if err != nil { // who deployed it has looked
		u = &url.URL{Scheme: "http", Host: s.base()}
	}
	return u.JoinPath(path)
}

// Way is how requests get to a server. Who made it closes its idle connections.
type Way struct {
	*http.Transport
	headers map[string]string
}

// RoundTrip sends one request, with what the server wants beside it.
func (w *Way) RoundTrip(r *http.Request) (*http.Response, error) {
	if len(w.headers) > 0 {
		r = r.Clone(r.Context())
		for name, v := range w.headers {
			r.Header.Set(name, v)
		}
	}
	return w.Transport.RoundTrip(r)
}

// shutAway ends a foreign server.
func (s *Server) shutAway(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if err := s.away.Close(ctx); err != nil {
		return fmt.Errorf("close environment %s: %w", diag.Repr(s.Name), err)
	}
	return nil
}

// maxInline is how large data is that is handed to a server which reads no file of a sandbox.
const maxInline = 64 << 20

// inline is the data of a payload as a part that holds its bytes.
func inline(ctx context.Context, objects store.Objects, p envstore.Payload, name string) (wire.Part, error) {
	if p.File.Size > maxInline {
		return wire.Part{}, fmt.Errorf("it has %d bytes, and a server outside of sandboxes that reads no files of this machine is handed at most %d", p.File.Size, maxInline)
	}
	r, _, err := store.OpenVerified(ctx, objects, p.File.Digest)
	if err != nil {
		return wire.Part{}, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return wire.FilePart(b, p.Media, name), err
}

// handed is the data of a payload as a part for a server outside of boxes: a file of this machine where it reads such, else its bytes. done takes the file away.
func (s *Server) handed(ctx context.Context, objects store.Objects, p envstore.Payload, name string) (part wire.Part, done func(), err error) {
	if !s.away.ReadsFiles {
		part, err = inline(ctx, objects, p, name)
		return part, func() {}, err
	}
	scratch, err := atomicfile.NewScratch("agentenv-data")
	if err != nil {
		return part, func() {}, err
	}
	done = func() { _ = scratch.Remove() }
	at := filepath.Join(scratch.Dir, "data")
	if err := writeOut(ctx, objects, p, at); err != nil {
		done()
		return part, func() {}, err
	}
	return wire.URIPart((&url.URL{Scheme: "file", Path: at}).String(), p.Media, name), done, nil
}

// writeOut writes the data of a payload into a new file, which its user alone may read.
func writeOut(ctx context.Context, objects store.Objects, p envstore.Payload, at string) error {
	r, _, err := store.OpenVerified(ctx, objects, p.File.Digest)
	if err != nil {
		return err
	}
	defer r.Close()
	w, err := os.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}
