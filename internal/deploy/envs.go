package deploy

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envdb"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
)

// Errors that callers branch on.
var (
	// ErrNoEnv: the run has not deployed this environment.
	ErrNoEnv = errors.New("is not deployed in this run")
	// ErrManyEnvs: the run has deployed it more than once, and nothing says which is meant.
	ErrManyEnvs = errors.New("is deployed more than once in this run")
)

// startLimit is how long the servers of a deployment have to answer their cards.
const startLimit = 180 * time.Second

// Envs deploys environments: a box for each server, and one gateway in this process in front of them. What it made goes with the run's account:
// Deployments.Down and Undo take it down. All methods may be called from several goroutines.
type Envs struct {
	boxes *Deployments
	store envstore.Reader
	log   *slog.Logger
	maker *maker
	// agents are who triggers may send instructions to; nil until there are any.
	agents atomic.Pointer[Agents]

	mu   sync.Mutex
	runs map[string][]*Env // oldest first
}

// NewEnvs makes an empty one over an account book. files opens what stored documents name.
func NewEnvs(d *Deployments, files envstore.Reader, o EnvOptions) *Envs {
	return &Envs{boxes: d, store: files, log: d.log, maker: newMaker(d, files, o), runs: map[string][]*Env{}}
}

// EnvRequest is one environment that a step or a person wants.
type EnvRequest struct {
	Run, Step string
	Attempt   int
	// Instance is the id of the deployment; "" for one of Deploy's choosing.
	Instance string
	Env      envstore.Env
	Type     string // providers to try, comma-separated; "" is the default chain
	Lease    time.Duration
	CPU      float64 // of each server; 0: the provider's default
	MemoryMB int64
	DiskMB   int64
	// Consistent serves one tool call at a time, so that every change has one author.
	Consistent bool
	Labels     map[string]string
	// CallLog is the path of the gateway's log of calls; "" for none.
	CallLog string
	// StateFile is the path of what outlives the gateway, its rules and clock; "": nothing does.
	StateFile string
	// Wait is how long the servers have to answer; 0 is startLimit.
	Wait time.Duration
}

// Env is a running environment.
type Env struct {
	ID       string
	Version  int
	Type     string
	Provider string // env_provider_type
	Run      string
	Step     string
	Instance string
	Title    string // what its MCP server is called
	Created  time.Time
	Expires  time.Time
	// Gateway stands in front of the servers until the environment is taken down.
	Gateway *front.Gateway
	// Servers are in the order of the environment's parts.
	Servers []*Server
	Mode    string           // "performance" or "consistent"
	dbs     *envdb.Databases // nil: each server has a file in its box
	ended   sync.Once
	calls   string // path of the log of calls that goes into the run's record; "" for none
	filmed  []*film
	hatches []*hatch
}

// Server is one server of a running environment.
type Server struct {
	Name    string // environment_name
	Website bool
	Key     string // image key: envstore.Part
	Box     sandbox.Info
	boxName string
	*server // nil of a foreign one
	port    int
	away    *ForeignServer // nil: it runs in Box

	inward []*door // to what the server needs outside of its box

	computer *envstore.Computer // of a computer; nil of everything else
	composed *composed          // of a computer that is ready

	clock     sync.Mutex
	clockDoor *http.Server // nil: not opened
	doors     sync.WaitGroup
}

// Names are the environment names that data can be loaded into, each once, in order.
func (v *Env) Names() []string {
	var out []string
	for _, s := range v.Servers {
		if s.backend() && !slices.Contains(out, s.Name) {
			out = append(out, s.Name)
		}
	}
	return out
}

// backend tells whether the server has a data plane: a website's frontend has none.
func (s *Server) backend() bool { return s.Key != frontendKey }

// Check tells before anything is made why the environment can't be deployed by the chain of providers: a *Refused, or nil.
func (e *Envs) Check(ctx context.Context, override []string, isolation string, r EnvRequest) error {
	var refused []string
	for _, p := range r.Env.Parts {
		if p.Document != nil {
			if err := e.checkForeign(ctx, p); err != nil {
				refused = append(refused, err.Error())
			}
			continue
		}
		if _, err := e.maker.choose(ctx, e.boxes.Chain(override, r.Type), isolation, r, p); err != nil {
			more, ok := errors.AsType[*Refused](err)
			if !ok {
				return err
			}
			for _, reason := range more.Reasons {
				if !slices.Contains(refused, reason) {
					refused = append(refused, reason)
				}
			}
		}
	}
	if refused != nil {
		return &Refused{refused}
	}
	return nil
}

// Deploy starts an environment and answers when every server has answered its own card. Nothing is left behind when it fails; the error of a server
// that never answered or died has the last of its output.
func (e *Envs) Deploy(ctx context.Context, r EnvRequest) (_ *Env, err error) {
	now := time.Now()
	out := &Env{
		ID: r.Env.ID, Version: r.Env.Version, Type: r.Env.Type, Provider: r.Env.Provider, Run: r.Run, Step: r.Step,
		Instance: cmp.Or(r.Instance, r.Env.ID+"-"+strings.ToLower(rand.Text()[:8])), Title: title(r.Env), Created: now, Expires: now.Add(r.Lease), Mode: "performance",
	}
	if r.Consistent {
		out.Mode = "consistent"
	}
	defer func() {
		if err != nil {
			e.discard(ctx, out)
		}
	}()
	if err := e.databases(ctx, r, out); err != nil {
		return nil, err
	}
	if err := e.startAll(ctx, r, out); err != nil {
		return nil, err
	}
	if out.Gateway, err = e.front(ctx, r, out); err != nil {
		return nil, err
	}
	if err := out.await(ctx, r.Wait); err != nil {
		return nil, err
	}
	if err := out.watch(ctx, out.Names()...); err != nil {
		return nil, err
	}
	if err := e.films(ctx, r, out); err != nil {
		return nil, step.Infra(err)
	}
	e.openHatches(ctx, out)
	for _, s := range out.Servers {
		if s.away != nil {
			continue
		}
		s.keepUp(ctx, func(why error) {
			e.log.Warn("a server died and is started again", "env", out.ID, "server", s.Name, "error", why)
		})
	}
	// Undone before the boxes, which were entered before.
	if err := e.boxes.Defer(r.Run, r.Step, "environment "+diag.Repr(out.ID), func(ctx context.Context) error { return e.close(ctx, out) }); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs[r.Run] = append(e.runs[r.Run], out)
	return out, nil
}

// startAll makes the boxes side by side and starts the servers in them.
func (e *Envs) startAll(ctx context.Context, r EnvRequest, out *Env) error {
	out.Servers = make([]*Server, len(r.Env.Parts))
	g, gctx := errgroup.WithContext(ctx)
	sides := &shared{dbs: out.dbs}
	for i, p := range r.Env.Parts {
		g.Go(func() error {
			start := func() (*Server, error) { return e.maker.start(gctx, r, p, sides) }
			if p.Document != nil {
				start = func() (*Server, error) { return e.foreign(gctx, r, out, p) }
			}
			s, err := start()
			out.Servers[i] = s // also with an error: what was made is taken down
			switch {
			case err != nil && p.Document != nil:
				return fmt.Errorf("environment %s: %w", diag.Repr(p.Name), err)
			case err != nil:
				return fmt.Errorf("start %s: %w", label(p), err)
			}
			return nil
		})
	}
	err := g.Wait()
	out.Servers = slices.DeleteFunc(out.Servers, func(s *Server) bool { return s == nil })
	return err
}

// title is what the MCP server of an environment is called.
func title(e envstore.Env) string { return cmp.Or(e.Name, fileName(path.Base(e.ID))) }

// label names a part for people.
func label(p envstore.Part) string {
	what := "server "
	if p.Website() {
		what = "the " + strings.TrimSuffix(p.Key, "_image") + " of website "
	}
	return what + diag.Repr(p.Name)
}

// discard takes down what a deployment that failed had made.
func (e *Envs) discard(ctx context.Context, v *Env) {
	if err := e.close(ctx, v); err != nil {
		e.log.Debug("close the gateway", "env", v.ID, "error", err)
	}
	ctx = context.WithoutCancel(ctx)
	for _, s := range v.Servers {
		if s.away != nil {
			continue
		}
		if _, err := e.boxes.Remove(ctx, v.Run, s.boxName); err != nil && !errors.Is(err, ErrNoBox) {
			e.log.Warn("could not be removed; the run's end tries again", "sandbox", s.Box.ID, "error", err)
		}
	}
	if err := v.dropDatabases(ctx); err != nil {
		e.log.Warn("the run's end tries again", "env", v.ID, "error", err)
	}
}

// close ends the gateway and the servers' programs, and keeps the log of calls. The boxes are left to the run's account. A second call does nothing.
func (e *Envs) close(ctx context.Context, v *Env) (err error) {
	v.ended.Do(func() { err = e.end(ctx, v) })
	return err
}

func (e *Envs) end(ctx context.Context, v *Env) error {
	e.mu.Lock()
	e.runs[v.Run] = slices.DeleteFunc(e.runs[v.Run], func(o *Env) bool { return o == v })
	if len(e.runs[v.Run]) == 0 {
		delete(e.runs, v.Run)
	}
	e.mu.Unlock()
	for _, h := range v.hatches {
		h.close() // what people do is on record while there is a gateway
	}
	err := e.keepFilms(ctx, v) // while the computers still show something
	if v.Gateway != nil {
		err = errors.Join(err, v.Gateway.Close())
	}
	var wg sync.WaitGroup
	errs := make([]error, len(v.Servers))
	for i, s := range v.Servers {
		if s.away != nil {
			wg.Go(func() { errs[i] = s.shutAway(ctx) })
		}
		if s.server != nil {
			wg.Go(func() {
				s.shut()
				s.stop()
			})
		}
	}
	wg.Wait()
	return errors.Join(append(errs, err, e.keepCalls(ctx, v))...)
}

// Env is a deployed environment of a run. step chooses between several; "" is any when there is one.
func (e *Envs) Env(run, id, step string) (*Env, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var found []*Env
	for _, v := range e.runs[run] {
		if (id == "" || v.ID == id) && (step == "" || v.Step == step) {
			found = append(found, v)
		}
	}
	what := diag.Repr(id)
	if step != "" {
		what += " of step " + diag.Repr(step)
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("environment %s %w", what, ErrNoEnv)
	case 1:
		return found[0], nil
	default:
		var steps []string
		for _, v := range found {
			steps = append(steps, diag.Repr(v.Step))
		}
		return nil, fmt.Errorf("environment %s %w, by the steps %s; name one in env_step_id", what, ErrManyEnvs, strings.Join(steps, ", "))
	}
}

// Live lists the environments of a run, oldest first.
func (e *Envs) Live(run string) []*Env {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.runs[run])
}

// Remove takes an environment down before the run's end and answers the ids of its sandboxes.
func (e *Envs) Remove(ctx context.Context, run, id, step string) ([]string, error) {
	v, err := e.Env(run, id, step)
	if err != nil {
		return nil, err
	}
	errs := []error{e.close(ctx, v)}
	var ids []string
	for _, s := range v.Servers {
		if s.away != nil {
			continue
		}
		id, err := e.boxes.Remove(ctx, run, s.boxName)
		if err == nil {
			ids = append(ids, id)
		}
		errs = append(errs, err)
	}
	return ids, errors.Join(append(errs, v.dropDatabases(ctx))...)
}

// await waits until every server has answered, or one has died.
func (v *Env) await(ctx context.Context, limit time.Duration) error {
	if limit <= 0 {
		limit = startLimit
	}
	wait, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it did not answer its card within %s", limit))
	defer cancel()
	wait, fail := context.WithCancelCause(wait)
	var watching sync.WaitGroup
	for _, s := range v.Servers {
		if s.away != nil {
			continue
		}
		watching.Go(func() {
			select {
			case <-s.dead():
				fail(s.trouble(errors.New("it ended")))
			case <-wait.Done():
			}
		})
	}
	err := v.Gateway.Ready(wait)
	bad, invalid := errors.AsType[*front.CardError](err)
	if !invalid {
		err = errors.Join(err, v.pages(wait), v.desktops(wait))
	}
	cause := context.Cause(wait)
	fail(nil)
	watching.Wait()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		cause = err
	case invalid:
		return v.server(bad.Child).trouble(fmt.Errorf("its card is invalid, and waiting won't make it valid: %w", bad.Err))
	case cause == nil:
		cause = err
	case errors.Is(wait.Err(), context.DeadlineExceeded):
		cause = fmt.Errorf("%w (%w)", cause, err)
	default:
		return cause // a server died, and said so
	}
	var errs []error
	for _, s := range v.Servers {
		errs = append(errs, s.trouble(cause))
	}
	if ctx.Err() != nil {
		return &step.Halted{Err: ctx.Err(), State: errors.Join(errs...).Error()}
	}
	return errors.Join(errs...)
}
