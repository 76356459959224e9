package deploy

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/sandbox"
)

// downTimeout bounds taking one run down.
const downTimeout = 60 * time.Second

// undo is one thing to undo: a sandbox, or what Defer was given.
type undo struct {
	step string
	what string // for people: "sandbox b-12ab"
	name string // of the sandbox
	box  *box
	do   func(context.Context) error
}

// Gone is what Down did.
type Gone struct {
	Removed int      // sandboxes
	Left    []string // ids of sandboxes that could not be removed
}

// Defer puts f on the run's stack: it is undone before everything that was there already. step may be "".
func (d *Deployments) Defer(run, step, what string, f func(context.Context) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.account(run)
	if a.down {
		return ErrDown
	}
	a.undo = append(a.undo, undo{step: step, what: what, do: f})
	return nil
}

// Down undoes everything the run has standing, last made first, and closes its account: Create answers ErrDown from now on, and a Create
// that is under way removes what it made. It works under a cancelled ctx too, bounded by a deadline of its own, and names everything that failed.
// A second call tries again what failed, and nothing else.
func (d *Deployments) Down(ctx context.Context, run string) (Gone, error) {
	d.mu.Lock()
	a := d.runs[run]
	if a == nil {
		d.mu.Unlock()
		return Gone{}, nil
	}
	a.down = true
	d.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
	defer cancel()
	a.making.Wait() // they see that the run is down, or have put what they made on the stack
	return d.unwind(ctx, a, func(undo) bool { return true })
}

// Undo undoes what these steps have standing, last made first; the rest of the run stays. A retry calls it before it runs them again.
func (d *Deployments) Undo(ctx context.Context, run string, steps ...string) error {
	d.mu.Lock()
	a := d.runs[run]
	d.mu.Unlock()
	if a == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), downTimeout)
	defer cancel()
	_, err := d.unwind(ctx, a, func(u undo) bool { return u.step != "" && slices.Contains(steps, u.step) })
	return err
}

// Remove removes one sandbox of the run before its end, frees its name and answers its id. ErrNoBox when there is none.
func (d *Deployments) Remove(ctx context.Context, run, name string) (id string, err error) {
	d.mu.Lock()
	a := d.runs[run]
	var b *box
	if a != nil {
		b = a.boxes[name]
	}
	d.mu.Unlock()
	if b == nil {
		return "", fmt.Errorf("sandbox %s %w", diag.Repr(name), ErrNoBox)
	}
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	_, err = d.unwind(ctx, a, func(u undo) bool { return u.box == b })
	return b.info.ID, err
}

// unwind takes the chosen entries off the stack and undoes them, last first. Sandboxes that follow one another know nothing of each other
// and go side by side. A sandbox that could not be removed goes back on the stack.
func (d *Deployments) unwind(ctx context.Context, a *account, chosen func(undo) bool) (Gone, error) {
	d.mu.Lock()
	var todo []undo
	a.undo = slices.DeleteFunc(a.undo, func(u undo) bool {
		if chosen(u) {
			todo = append(todo, u)
			return true
		}
		return false
	})
	d.mu.Unlock()
	slices.Reverse(todo)

	var gone Gone
	var errs []error
	for len(todo) > 0 {
		n := 1
		for todo[0].box != nil && n < len(todo) && todo[n].box != nil {
			n++
		}
		g, err := d.undoAll(ctx, a, todo[:n])
		gone.Removed += g.Removed
		gone.Left = append(gone.Left, g.Left...)
		errs = append(errs, err)
		todo = todo[n:]
	}
	return gone, errors.Join(errs...)
}

func (d *Deployments) undoAll(ctx context.Context, a *account, us []undo) (Gone, error) {
	errs := make([]error, len(us))
	var wg sync.WaitGroup
	limit := make(chan struct{}, 8)
	for i, u := range us {
		limit <- struct{}{}
		wg.Go(func() {
			defer func() { <-limit }()
			if u.box == nil {
				errs[i] = u.do(ctx)
			} else {
				errs[i] = d.remove(ctx, a, u)
			}
			if errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", u.what, errs[i])
			}
		})
	}
	wg.Wait()
	var gone Gone
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, u := range us {
		switch {
		case u.box == nil:
		case errs[i] == nil:
			gone.Removed++
		default:
			gone.Left = append(gone.Left, u.box.info.ID)
			a.undo = append(a.undo, u)
		}
	}
	return gone, errors.Join(errs...)
}

// remove destroys a sandbox and tells the run's observer. Its name is free afterwards, also when the removal failed.
func (d *Deployments) remove(ctx context.Context, a *account, u undo) error {
	info := u.box.info
	if l, ok := u.box.prov.(sandbox.NetworkLogger); ok && info.Network != sandbox.NetNone {
		info.Blocked, _ = l.Blocked(ctx, info.ID) // it goes with the box; a box that is gone already tells nothing
	}
	err := d.destroy(ctx, u.box)
	d.mu.Lock()
	if a.boxes[u.name] == u.box {
		delete(a.boxes, u.name)
	}
	observer := a.policy.Observer
	d.mu.Unlock()
	if observer != nil {
		observer.BoxRemoved(u.step, u.name, info, err)
	}
	return err
}

func (d *Deployments) destroy(ctx context.Context, b *box) error {
	err := b.prov.Destroy(ctx, b.info.ID)
	b.open.Lock()
	defer b.open.Unlock()
	if b.h != nil {
		// The box is dead or dying; an error of its connection tells nothing more.
		_ = b.h.Close()
		b.h = nil
	}
	return err
}

// Swept is what dead sandboxes of one provider had left behind.
type Swept struct {
	Provider string   `json:"provider"`
	IDs      []string `json:"ids"`
}

// Sweep removes what dead sandboxes left behind, in every provider, and tells what it removed. It never touches a live sandbox.
func (d *Deployments) Sweep(ctx context.Context) ([]Swept, error) {
	var out []Swept
	var errs []error
	for e := range d.providers.All() {
		ids, err := e.Value.Sweep(ctx)
		if len(ids) > 0 {
			out = append(out, Swept{e.Name, ids})
		}
		if err != nil && !errors.Is(err, sandbox.ErrUnsupported) {
			errs = append(errs, fmt.Errorf("sweep %s sandboxes: %w", e.Name, err))
		}
	}
	return out, errors.Join(errs...)
}
