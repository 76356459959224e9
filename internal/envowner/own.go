package envowner

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/owner"
	"agentenv.internal/agentenv/internal/store"
)

// Owner is the process that holds one deployment.
type Owner struct {
	Folder *Folder
	Store  store.Store
	Boxes  *deploy.Deployments
	Envs   *deploy.Envs
	Log    *slog.Logger
}

// Own deploys what o says and holds it: owner.Folder.Own.
func (w *Owner) Own(ctx context.Context, o Order, c *owner.Caller) error {
	run := "env/" + o.Key
	return w.Folder.Own(ctx, o.Key, c, func(ctx context.Context, outside net.Addr) (owner.Standing[Record], error) {
		v, err := w.deploy(ctx, o, run, c)
		if err != nil {
			return owner.Standing[Record]{}, err
		}
		return w.standing(o, v, outside), nil
	}, func(ctx context.Context) {
		if _, err := w.Boxes.Down(ctx, run); err != nil {
			w.Log.Error("take the deployment down", "error", err)
		}
	})
}

func (w *Owner) deploy(ctx context.Context, o Order, run string, c *owner.Caller) (*deploy.Env, error) {
	stored, err := envstore.Read(ctx, w.Store, o.Env, o.Version)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	rec := Record{Env: stored.ID, Version: stored.Version, Type: stored.Type, Head: owner.Head{
		Instance: owner.Instance(stored.ID, o.Key), State: owner.Starting, PID: os.Getpid(), Created: now, Expires: now.Add(o.Lease),
	}}
	if err := w.Folder.Write(o.Key, rec); err != nil {
		return nil, err
	}
	w.Boxes.Open(run, deploy.Policy{Tell: func(k deploy.Work) { c.Working(k) }})
	return w.Envs.Deploy(ctx, deploy.EnvRequest{
		Run: run, Instance: rec.Instance, Env: stored, Type: o.Type, Lease: o.Lease, CPU: o.CPU, MemoryMB: o.MemoryMB, DiskMB: o.DiskMB, Consistent: o.Consistent,
		CallLog: w.Folder.At(o.Key, "calls.jsonl"), StateFile: w.Folder.At(o.Key, "gateway.json"),
	})
}

// standing makes the deployment's doors.
func (w *Owner) standing(o Order, v *deploy.Env, outside net.Addr) owner.Standing[Record] {
	started := Started{AgentURL: map[string]string{}, Record: record(v)}
	doors := map[string]http.Handler{}
	door := func(p access.Principal) string {
		p.Deployment = v.Instance
		secret := front.NewSecret()
		doors[secret] = v.Gateway.Door(p)
		return "http://" + outside.String() + front.SecretPrefix + secret
	}
	started.URL = door(access.Principal{Owner: true})
	for _, role := range o.Roles {
		started.AgentURL[role] = door(access.Principal{Role: role})
	}
	return owner.Standing[Record]{Record: started.Record, Started: started, Control: w.control(v, started), Outside: front.Outside(doors)}
}

func record(v *deploy.Env) Record {
	r := Record{Env: v.ID, Version: v.Version, Type: v.Type, Server: v.Title, Mode: v.Mode, Head: owner.Head{
		Instance: v.Instance, State: owner.Running, PID: os.Getpid(), Created: v.Created.UTC(), Expires: v.Expires.UTC(),
	}}
	for _, s := range v.Servers {
		if s.Foreign() != nil {
			continue
		}
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
	mux.HandleFunc("GET /status", func(rw http.ResponseWriter, _ *http.Request) { owner.Answer(rw, started, nil) })
	mux.HandleFunc("POST /load", owner.Handle(func(ctx context.Context, r loadRequest) (deploy.Loaded, error) {
		d, err := envstore.ReadData(ctx, w.Store, r.Artifact, r.Version)
		if err != nil {
			return deploy.Loaded{}, err
		}
		return v.Load(ctx, w.Store, d)
	}))
	mux.HandleFunc("POST /reset", owner.Handle(func(ctx context.Context, r resetRequest) (struct{}, error) {
		return struct{}{}, v.Reset(ctx, r.Names...)
	}))
	mux.HandleFunc("POST /snapshot", owner.Handle(func(ctx context.Context, r snapshotRequest) (envstore.Pin, error) {
		pin, _, err := v.Snapshot(ctx, w.Store, deploy.Snapshot{ID: r.ID})
		return pin, err
	}))
	mux.HandleFunc("POST /call", owner.Handle(func(ctx context.Context, r callRequest) (json.RawMessage, error) {
		if r.Arguments == nil {
			r.Arguments = json.RawMessage("{}")
		}
		return v.Gateway.CallTool(ctx, access.Principal{Owner: r.Role == "", Role: r.Role, Deployment: v.Instance}, r.Tool, r.Arguments)
	}))
	return mux
}
