package envowner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/store"
)

// Order is what an owner is told to deploy. It goes to the owner's standard input as JSON.
type Order struct {
	Key        string        `json:"key"`
	Env        string        `json:"env_id"`
	Version    int           `json:"env_version"`
	Type       string        `json:"sandbox_type"` // providers to try
	Lease      time.Duration `json:"lease"`
	CPU        float64       `json:"cpu"`
	MemoryMB   int64         `json:"memory_mb"`
	DiskMB     int64         `json:"disk_mb"`
	Consistent bool          `json:"consistent"`
	Roles      []string      `json:"roles"` // of agents that get a URL of their own
}

// Started is what an owner answers once: Error, or the deployment that stands with its URLs, which hold secrets.
type Started struct {
	Error    string            `json:"error,omitempty"`
	Record   Record            `json:"record"`
	URL      string            `json:"url"`                  // the owner's door; its MCP endpoint is URL + "/mcp"
	AgentURL map[string]string `json:"agent_urls,omitempty"` // by role
}

// Owner is the process that holds one deployment.
type Owner struct {
	Folder *Folder
	Store  store.Store
	Boxes  *deploy.Deployments
	Envs   *deploy.Envs
	Log    *slog.Logger
}

// Own deploys what o says, tells of it on status, and holds it until it is told to stop, the time is up or ctx ends; then everything is gone again.
// The error is that of the deployment, which status was told too, or of its end.
func (w *Owner) Own(ctx context.Context, o Order, status io.Writer) error {
	lock, err := atomicfile.TryLock(w.Folder.at(o.Key, lockFile))
	if err != nil {
		return fmt.Errorf("hold the deployment's folder: %w", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	run := "env/" + o.Key
	defer func() {
		if _, derr := w.Boxes.Down(ctx, run); derr != nil {
			w.Log.Error("take the deployment down", "error", derr)
		}
		_ = os.RemoveAll(w.Folder.at(o.Key, "."))
		_ = lock.Unlock()
	}()
	control := desk{stop: func() { stop(errStopped) }}
	closeDesk, err := control.open(ctx, w.Folder.at(o.Key, socketFile))
	if err != nil {
		return errors.Join(err, tell(status, Started{Error: err.Error()}))
	}
	defer closeDesk()
	v, err := w.deploy(ctx, o, run)
	if errors.Is(context.Cause(ctx), errStopped) {
		err = errStopped
	}
	if err != nil {
		return errors.Join(err, tell(status, Started{Error: err.Error()}))
	}
	return w.hold(ctx, o, v, &control, status)
}

func tell(w io.Writer, s Started) error { return json.NewEncoder(w).Encode(s) }

func (w *Owner) deploy(ctx context.Context, o Order, run string) (*deploy.Env, error) {
	stored, err := envstore.Read(ctx, w.Store, o.Env, o.Version)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	rec := Record{
		Instance: stored.ID + o.Key[len(o.Key)-9:], Env: stored.ID, Version: stored.Version, Type: stored.Type, State: Starting, PID: os.Getpid(),
		Created: now, Expires: now.Add(o.Lease), key: o.Key,
	}
	if err := w.Folder.write(rec); err != nil {
		return nil, err
	}
	w.Boxes.Open(run, deploy.Policy{})
	return w.Envs.Deploy(ctx, deploy.EnvRequest{
		Run: run, Instance: rec.Instance, Env: stored, Type: o.Type, Lease: o.Lease, CPU: o.CPU, MemoryMB: o.MemoryMB, DiskMB: o.DiskMB, Consistent: o.Consistent,
		CallLog: w.Folder.at(o.Key, "calls.jsonl"), StateFile: w.Folder.at(o.Key, "gateway.json"),
	})
}

// hold serves the deployment's doors.
func (w *Owner) hold(ctx context.Context, o Order, v *deploy.Env, control *desk, status io.Writer) error {
	outside, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, tell(status, Started{Error: err.Error()}))
	}
	started := Started{AgentURL: map[string]string{}}
	doors := map[string]http.Handler{}
	door := func(p access.Principal) string {
		p.Deployment = v.Instance
		secret := front.NewSecret()
		doors[secret] = v.Gateway.Door(p)
		return "http://" + outside.Addr().String() + front.SecretPrefix + secret
	}
	started.URL = door(access.Principal{Owner: true})
	for _, role := range o.Roles {
		started.AgentURL[role] = door(access.Principal{Role: role})
	}
	started.Record = record(o, v)
	control.ready.Store(w.control(v, started))
	defer serve(outside, front.Outside(doors))()
	if err := errors.Join(w.Folder.write(started.Record), tell(status, started)); err != nil {
		return err
	}
	up := time.NewTimer(time.Until(v.Expires))
	defer up.Stop()
	select {
	case <-ctx.Done():
	case <-up.C:
		w.Log.Info("the deployment's time is up")
	}
	return nil
}

// headerTimeout bounds how long a client may take to send the head of a request.
const headerTimeout = 10 * time.Second

func record(o Order, v *deploy.Env) Record {
	r := Record{
		Instance: v.Instance, Env: v.ID, Version: v.Version, Type: v.Type, Server: v.Title, Mode: v.Mode, State: Running, PID: os.Getpid(),
		Created: v.Created.UTC(), Expires: v.Expires.UTC(), key: o.Key,
	}
	for _, s := range v.Servers {
		r.Boxes = append(r.Boxes, Box{s.Name, s.Box.ID, s.Box.Provider})
	}
	return r
}

// What the socket takes; answers are the JSON of what is named, or {"error": text} with another status than 200.
type (
	loadRequest struct {
		Artifact string `json:"artifact_id"`
		Version  int    `json:"version"`
	}
	resetRequest struct {
		Names []string `json:"names"`
	}
	snapshotRequest struct {
		ID string `json:"id"`
	}
	callRequest struct {
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
		Role      string          `json:"role"`
	}
)

// control is what other commands of the same user are served by the socket once the deployment stands.
func (w *Owner) control(v *deploy.Env, started Started) *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(rw http.ResponseWriter, _ *http.Request) { answer(rw, started, nil) })
	mux.HandleFunc("POST /load", handle(func(ctx context.Context, r loadRequest) (deploy.Loaded, error) {
		d, err := envstore.ReadData(ctx, w.Store, r.Artifact, r.Version)
		if err != nil {
			return deploy.Loaded{}, err
		}
		return v.Load(ctx, w.Store, d)
	}))
	mux.HandleFunc("POST /reset", handle(func(ctx context.Context, r resetRequest) (struct{}, error) {
		return struct{}{}, v.Reset(ctx, r.Names...)
	}))
	mux.HandleFunc("POST /snapshot", handle(func(ctx context.Context, r snapshotRequest) (envstore.Pin, error) {
		return v.Snapshot(ctx, w.Store, deploy.Snapshot{ID: r.ID})
	}))
	mux.HandleFunc("POST /call", handle(func(ctx context.Context, r callRequest) (json.RawMessage, error) {
		if r.Arguments == nil {
			r.Arguments = json.RawMessage("{}")
		}
		return v.Gateway.CallTool(ctx, access.Principal{Owner: r.Role == "", Role: r.Role, Deployment: v.Instance}, r.Tool, r.Arguments)
	}))
	return mux
}

// maxOrder bounds what the socket takes.
const maxOrder = 64 << 20

func handle[In, Out any](f func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		var in In
		if err := json.NewDecoder(http.MaxBytesReader(rw, r.Body, maxOrder)).Decode(&in); err != nil {
			answer(rw, nil, errors.New("the request can't be read"))
			return
		}
		out, err := f(r.Context(), in)
		answer(rw, out, err)
	}
}

func answer(rw http.ResponseWriter, v any, err error) {
	rw.Header().Set("Content-Type", "application/json")
	if err != nil {
		rw.WriteHeader(http.StatusBadRequest)
		v = map[string]string{"error": err.Error()}
	}
	_ = json.NewEncoder(rw).Encode(v) // who asked may be gone
}
