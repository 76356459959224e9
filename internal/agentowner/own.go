package agentowner

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/owner"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/wire"
)

// Owner is the process that holds one deployment.
type Owner struct {
	Folder *Folder
	Store  envstore.Reader
	Boxes  *deploy.Deployments
	Agents *deploy.Agents
	Log    *slog.Logger
}

// Own deploys what o says and holds it: owner.Folder.Own.
func (w *Owner) Own(ctx context.Context, o Order, c *owner.Caller) error {
	run := "agent/" + o.Key
	var h *held
	return w.Folder.Own(ctx, o.Key, c, func(ctx context.Context, outside net.Addr) (owner.Standing[Record], error) {
		a, rec, err := w.deploy(ctx, o, run, c)
		if err != nil {
			return owner.Standing[Record]{}, err
		}
		h = &held{w: w, agent: a, rec: rec, model: o.Model}
		return h.standing(outside)
	}, func(ctx context.Context) {
		if h != nil && h.end != nil {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
			defer cancel()
			if err := h.end(ending); err != nil {
				w.Log.Warn("end what the agent is being asked", "error", err)
			}
		}
		if _, err := w.Boxes.Down(ctx, run); err != nil {
			w.Log.Error("take the deployment down", "error", err)
		}
	})
}

// endTime bounds how long a deployment that ends waits for its turns.
const endTime = 5 * time.Second

func (w *Owner) deploy(ctx context.Context, o Order, run string, c *owner.Caller) (*deploy.Agent, Record, error) {
	now := time.Now().UTC()
	rec := Record{Agent: o.Agent, Version: o.Version, Kind: o.Kind, Model: o.Model, Head: owner.Head{
		Instance: owner.Instance(o.Agent, o.Key), State: owner.Starting, PID: os.Getpid(), Created: now, Expires: now.Add(o.Lease),
	}}
	if err := w.Folder.Write(o.Key, rec); err != nil {
		return nil, rec, err
	}
	w.Boxes.Open(run, deploy.Policy{Tell: func(k deploy.Work) { c.Working(k) }})
	a, err := w.Agents.Deploy(ctx, deploy.AgentRequest{
		Run: run, Step: "deploy", Attempt: 1, Trial: 1, Name: ref.Last(o.Agent), ID: o.Agent, Version: o.Version, Type: o.Type, Vars: o.Vars,
		Settings: deploy.Settings{SystemPrompt: o.System, Model: o.Model},
		Spec:     sandbox.Spec{Lease: o.Lease, CPU: o.CPU, MemoryMB: o.MemoryMB, DiskMB: o.DiskMB},
	})
	return a, rec, err
}

// held is a deployment that stands.
type held struct {
	w     *Owner
	agent *deploy.Agent
	model string
	url   string
	end   func(context.Context) error

	mu     sync.Mutex
	rec    Record
	skills []string
}

func (h *held) standing(outside net.Addr) (owner.Standing[Record], error) {
	face, end, err := h.agent.Serve(deploy.Settings{Model: h.model})
	if err != nil {
		return owner.Standing[Record]{}, err
	}
	h.end = end
	secret := front.NewSecret()
	h.url = "http://" + outside.String() + front.SecretPrefix + secret
	h.rec.State, h.rec.Version = owner.Running, h.agent.Version
	started := h.status()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /status", func(rw http.ResponseWriter, _ *http.Request) { owner.Answer(rw, h.status(), nil) })
	mux.HandleFunc("POST /prompt", owner.Handle(h.prompt))
	mux.HandleFunc("POST /skill", owner.Handle(h.addSkill))
	return owner.Standing[Record]{
		Record: started.Record, Started: started, Control: mux, Outside: front.Outside(map[string]http.Handler{secret: face}),
	}, nil
}

// status is the deployment as it is now.
func (h *held) status() Started {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := Started{Record: h.rec, URL: h.url, Card: h.agent.Card, Skills: append([]string{}, h.skills...)}
	if b := h.agent.OwnBox(); b != nil {
		s.Record.Sandbox, s.Record.Provider = b.ID, b.Provider
	}
	return s
}

var errTime = errors.New("the agent's time is up")

func (h *held) prompt(ctx context.Context, q Question) (Reply, error) {
	if q.Context == "" {
		q.Context = rand.Text()
	}
	limited := ctx
	if q.Timeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeoutCause(ctx, q.Timeout, errTime)
		defer cancel()
	}
	s := deploy.Settings{Model: q.Model, SystemPrompt: q.System, Timeout: q.Timeout}
	if s.Model == "" {
		s.Model = h.model
	}
	r, err := h.agent.Ask(limited, deploy.Prompt{Settings: s, Parts: []wire.Part{wire.TextPart(q.Text)}, Context: q.Context})
	switch {
	case err != nil && errors.Is(context.Cause(limited), errTime):
		return Reply{}, fmt.Errorf("it had not answered after %s", q.Timeout)
	case err != nil && step.IsInfra(err):
		return Reply{}, fmt.Errorf("the agent can't be asked: %w", err)
	case err != nil:
		return Reply{}, err
	}
	return ReplyOf(q.Context, r), nil
}

type added struct {
	Name string `json:"name"`
}

func (h *held) addSkill(ctx context.Context, s Skill) (added, error) {
	skill := deploy.Skill{Name: s.Name, Description: s.Description}
	if s.Artifact != "" {
		var err error
		if skill, err = deploy.StoredSkill(ctx, h.w.Store, s.Artifact, s.Version); err != nil {
			return added{}, err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(s.Files)) {
		skill.Files = append(skill.Files, guest.PutBytes(path, 0o644, s.Files[path]))
	}
	if err := h.agent.Runner.AddSkill(ctx, skill); err != nil {
		return added{}, err
	}
	h.mu.Lock()
	h.skills = append(h.skills, skill.Name)
	h.mu.Unlock()
	return added{skill.Name}, nil
}
