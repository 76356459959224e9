// Package deploy keeps what runs have standing in this process: the sandboxes of each run, by the name that its step gave, their open
// handles, and the stack of what must be undone. It is keyed by run id and shared by all runs of the process.
//
// Words: an account is one run's entry; a chain is the providers to try in order; Down takes an account down, last made first.
// Nothing here knows steps, tasks or stores: executors ask for sandboxes, and the run that owns the account takes it down.
package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
)

// Errors that callers branch on.
var (
	// ErrTaken: the run has a sandbox of this name.
	ErrTaken = errors.New("is already deployed in this run")
	// ErrNoBox: the run has no sandbox of this name.
	ErrNoBox = errors.New("is not deployed in this run")
	// ErrDown: the run is being taken down; nothing more can be made for it.
	ErrDown = errors.New("the run is being taken down")
)

// Refused is why no provider of a chain can make a sandbox, one reason each. It is sandbox.ErrUnsupported.
type Refused struct{ Reasons []string }

func (r *Refused) Error() string { return strings.Join(r.Reasons, "; ") }

// Is makes it sandbox.ErrUnsupported.
func (r *Refused) Is(err error) bool { return err == sandbox.ErrUnsupported }

// Observer is told what becomes of a run's sandboxes, from the goroutines that make and remove them. It must not call back.
// step is the one that made the sandbox; "" where nobody knows.
type Observer interface {
	BoxCreated(step, name string, b sandbox.Info)
	BoxRemoved(step, name string, b sandbox.Info, err error)
	// EnvKept tells that a piece of an environment's work is in Records.
	EnvKept(step string, p Piece)
	// EnvTaken tells that a person takes over a computer, before they do anything, or has given it back. With an error nobody takes it over.
	EnvTaken(step string, t TakeOver) error
}

// Policy is what holds for every sandbox of a run.
type Policy struct {
	// Keep makes leased sandboxes, which outlive the process, instead of tied ones.
	Keep bool
	// Chain overrides the provider that a step names; empty: the step's, else the default chain.
	Chain []string
	// Isolation is the least level that must hold; "" leaves it to the provider.
	Isolation string
	// Film records the screens of computers, and keeps the films in Records.
	Film bool
	// Observer may be nil.
	Observer Observer
	// Tell is told of work that can take long, from the goroutines that do it. It must not block for long, nor call back; nil: nobody is told.
	Tell func(Work)
}

// Deployments is what runs of this process have standing. All methods may be called from several goroutines.
type Deployments struct {
	providers *catalog.Set[sandbox.Provider]
	chain     []string
	log       *slog.Logger

	mu   sync.Mutex
	runs map[string]*account
}

// account is one run's entry, guarded by Deployments.mu.
type account struct {
	policy Policy
	boxes  map[string]*box
	undo   []undo
	down   bool
	making sync.WaitGroup // Create calls that have not yet put what they made on the stack
}

// box is one sandbox of a run. A handle is opened when first asked for and shared until the box goes.
type box struct {
	step string
	info sandbox.Info
	prov sandbox.Provider

	open sync.Mutex // held while a handle is opened
	h    guest.Box
}

// New makes an empty account book. chain is what is tried where neither a run nor a step names a provider.
func New(providers *catalog.Set[sandbox.Provider], chain []string, log *slog.Logger) *Deployments {
	return &Deployments{providers: providers, chain: chain, log: log, runs: map[string]*account{}}
}

// Open begins a run's account, anew when it was taken down before, or changes the policy of one that is open.
func (d *Deployments) Open(run string, p Policy) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.runs[run]; a != nil && a.down {
		delete(d.runs, run)
	}
	d.account(run).policy = p
}

// account is called with mu held.
func (d *Deployments) account(run string) *account {
	a := d.runs[run]
	if a == nil {
		a = &account{boxes: map[string]*box{}}
		d.runs[run] = a
	}
	return a
}

// policy is what holds for a run; the zero one where nobody opened it.
func (d *Deployments) policy(run string) Policy {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.runs[run]; a != nil {
		return a.policy
	}
	return Policy{}
}

// Request is one sandbox that a step wants.
type Request struct {
	Run, Step string
	Attempt   int
	Name      string
	Type      string // providers to try, comma-separated; "" is the default chain
	Provider  string // the one provider to use, whatever the chain; "" for the chain
	Spec      sandbox.Spec
}

// Create makes a sandbox for a run, by the first provider of the chain that can. Run, Name, Key, Tied and Isolation of the Spec are filled in.
// The same step and attempt gets the same sandbox. Nothing is left behind when it fails.
func (d *Deployments) Create(ctx context.Context, r Request) (sandbox.Info, error) {
	policy, err := d.reserve(r)
	if err != nil {
		return sandbox.Info{}, err
	}
	spec := r.Spec
	spec.Run, spec.Name, spec.Tied, spec.Isolation = r.Run, r.Name, !policy.Keep, policy.Isolation
	spec.Key = fmt.Sprintf("%s/%s/%d/%s", r.Run, r.Step, r.Attempt, r.Name)
	chain := d.Chain(policy.Chain, r.Type)
	if r.Provider != "" {
		chain = []string{r.Provider}
	}
	pull := d.pulling(r, &spec)
	info, prov, err := d.make(ctx, chain, spec)
	pull.end(err)
	if err == nil {
		err = d.made(ctx, r, policy, info, prov)
	} else {
		d.unreserve(r)
	}
	if err != nil {
		return sandbox.Info{}, err
	}
	return info, nil
}

// pulling tells how far the image of a sandbox has come in, when it has to come.
func (d *Deployments) pulling(r Request, spec *sandbox.Spec) *work {
	if spec.Image == "" || spec.Progress != nil {
		return nil
	}
	k := d.work(r, "pull "+diag.Clean(spec.Image), "")
	if k != nil {
		spec.Progress = k.bytes
	}
	return k
}

// reserve takes the name, so that two steps that want it at once don't both get it.
func (d *Deployments) reserve(r Request) (Policy, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.account(r.Run)
	if a.down {
		return Policy{}, ErrDown
	}
	if _, taken := a.boxes[r.Name]; taken {
		return Policy{}, fmt.Errorf("sandbox %s %w", diag.Repr(r.Name), ErrTaken)
	}
	a.boxes[r.Name] = nil
	a.making.Add(1)
	return a.policy, nil
}

func (d *Deployments) unreserve(r Request) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.runs[r.Run]
	delete(a.boxes, r.Name)
	a.making.Done()
}

// made enters a new sandbox, or removes it when the run went down meanwhile.
func (d *Deployments) made(ctx context.Context, r Request, p Policy, info sandbox.Info, prov sandbox.Provider) error {
	d.mu.Lock()
	a := d.runs[r.Run]
	b := &box{step: r.Step, info: info, prov: prov}
	down := a.down
	if down {
		delete(a.boxes, r.Name)
	} else {
		a.boxes[r.Name] = b
		a.undo = append(a.undo, undo{step: r.Step, what: "sandbox " + info.ID, name: r.Name, box: b})
	}
	d.mu.Unlock()
	defer a.making.Done()
	if down {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
		defer cancel()
		return errors.Join(ErrDown, d.destroy(ctx, b))
	}
	if p.Observer != nil {
		p.Observer.BoxCreated(r.Step, r.Name, info)
	}
	return nil
}

// Chain is the providers to try: a run's override, else what a step names, else the default.
func (d *Deployments) Chain(override []string, typ string) []string {
	if len(override) > 0 {
		return override
	}
	var chain []string
	for name := range strings.SplitSeq(typ, ",") {
		if name = strings.TrimSpace(name); name != "" {
			chain = append(chain, name)
		}
	}
	if len(chain) == 0 {
		return d.chain
	}
	return chain
}

// make tries the chain in order. Only a provider that can't do what is asked hands over to the next; a fault ends the search.
func (d *Deployments) make(ctx context.Context, chain []string, s sandbox.Spec) (sandbox.Info, sandbox.Provider, error) {
	var refused []string
	for _, name := range chain {
		e, ok := d.providers.Get(name)
		if !ok {
			refused = append(refused, d.unknown(name))
			continue
		}
		info, err := e.Value.Create(ctx, s)
		switch {
		case err == nil:
			return info, e.Value, nil
		case errors.Is(err, sandbox.ErrUnsupported):
			refused = append(refused, name+": "+oneLine(err))
		default:
			return sandbox.Info{}, nil, fmt.Errorf("create sandbox %s (%s): %w", diag.Repr(s.Name), name, err)
		}
	}
	return sandbox.Info{}, nil, &Refused{refused}
}

func (d *Deployments) unknown(name string) string {
	return fmt.Sprintf("%s: no such sandbox type here (known: %s)", diag.Repr(name), strings.Join(d.providers.Names(), ", "))
}

// Check tells before anything is made why no provider of the chain can make s, or nil. It is ErrUnsupported then.
func (d *Deployments) Check(ctx context.Context, override []string, typ string, s sandbox.Spec) error {
	var refused []string
	for _, name := range d.Chain(override, typ) {
		e, ok := d.providers.Get(name)
		if !ok {
			refused = append(refused, d.unknown(name))
			continue
		}
		c, ok := e.Value.(sandbox.Checker)
		if !ok {
			return nil
		}
		err := c.Check(ctx, s)
		if !errors.Is(err, sandbox.ErrUnsupported) {
			return err
		}
		refused = append(refused, name+": "+oneLine(err))
	}
	return &Refused{refused}
}

// oneLine is the text of an error that may hold several.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// Box is the handle of a run's sandbox. It is shared: callers don't close it. A sandbox that another process made is found by its run and
// name, and connected to. ErrNoBox when the run has none of this name; other errors are step.Infra.
func (d *Deployments) Box(ctx context.Context, run, name string) (guest.Box, error) {
	d.mu.Lock()
	var b *box
	var reserved, down bool
	if a := d.runs[run]; a != nil {
		b, reserved = a.boxes[name]
		down = a.down
	}
	d.mu.Unlock()
	switch {
	case b != nil:
	case down:
		return nil, step.Infra(fmt.Errorf("sandbox %s: %w", diag.Repr(name), ErrDown))
	case reserved:
		return nil, fmt.Errorf("sandbox %s %w", diag.Repr(name), ErrNoBox)
	default:
		var err error
		if b, err = d.adopt(ctx, run, name); err != nil {
			return nil, err
		}
	}
	return b.handle(ctx)
}

func (b *box) handle(ctx context.Context) (guest.Box, error) {
	b.open.Lock()
	defer b.open.Unlock()
	if b.h != nil {
		return b.h, nil
	}
	h, err := b.prov.Connect(ctx, b.info.ID)
	if errors.Is(err, sandbox.ErrNotFound) {
		return nil, fmt.Errorf("sandbox %s: %w (%w)", diag.Repr(b.info.Name), guest.ErrGone, err) // infra by itself
	}
	if err != nil {
		return nil, step.Infra(fmt.Errorf("connect to sandbox %s: %w", b.info.ID, err))
	}
	b.h = h
	return h, nil
}

// adopt looks for a live sandbox of the run that this process did not make.
func (d *Deployments) adopt(ctx context.Context, run, name string) (*box, error) {
	for e := range d.providers.All() {
		infos, err := e.Value.List(ctx)
		if err != nil {
			d.log.Debug("list sandboxes", "provider", e.Name, "error", err)
			continue
		}
		i := slices.IndexFunc(infos, func(i sandbox.Info) bool {
			return i.Run == run && i.Name == name && i.State == sandbox.StateRunning
		})
		if i < 0 {
			continue
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		a := d.account(run)
		if b := a.boxes[name]; b != nil {
			return b, nil
		}
		b := &box{info: infos[i], prov: e.Value}
		a.boxes[name] = b
		a.undo = append(a.undo, undo{what: "sandbox " + b.info.ID, name: name, box: b})
		return b, nil
	}
	return nil, fmt.Errorf("sandbox %s %w", diag.Repr(name), ErrNoBox)
}

// Live is a sandbox that a run has standing.
type Live struct {
	Run  string       `json:"run_id"`
	Name string       `json:"name"`
	Box  sandbox.Info `json:"sandbox"`
}

// Live lists the sandboxes of a run, oldest first; with "" those of all runs.
func (d *Deployments) Live(run string) []Live {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out []Live
	for id, a := range d.runs {
		if run != "" && id != run {
			continue
		}
		for _, u := range a.undo {
			if u.box != nil {
				out = append(out, Live{id, u.name, u.box.info})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Live) int { return a.Box.Created.Compare(b.Box.Created) })
	return out
}

// removeTimeout bounds the removal of one sandbox.
const removeTimeout = 30 * time.Second
