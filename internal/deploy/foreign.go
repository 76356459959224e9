package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

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
}

// ForeignServer is a running one, and how this machine reaches it. Its owner closes it.
type ForeignServer struct {
	URL, MCP string // bases; MCP "" is what the card says
	Headers  map[string]string
	Metadata json.RawMessage // an object that goes into the context document; nil for none
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
	f, err := e.maker.options.Foreign.Deploy(ctx, ForeignRequest{Run: r.Run, Step: r.Step, Type: p.Env.Type, Env: p.Document, Options: options})
	if err != nil {
		return nil, err
	}
	f.URL = strings.TrimSuffix(f.URL, "/")
	return &Server{Name: p.Name, Key: p.Key, away: f}, nil
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
		return wire.Part{}, fmt.Errorf("it has %d bytes, and a server outside of sandboxes is handed at most %d", p.File.Size, maxInline)
	}
	r, _, err := store.OpenVerified(ctx, objects, p.File.Digest)
	if err != nil {
		return wire.Part{}, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	return wire.FilePart(b, p.Media, name), err
}
