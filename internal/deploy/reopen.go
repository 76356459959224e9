package deploy

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"agentenv.internal/agentenv/internal/sandbox"
)

// Known is a sandbox of a run as an earlier process recorded it.
type Known struct {
	Provider, ID string
	Name         string
	Step         string // that made it
}

// Alive tells which of the run's sandboxes stand and can be used by this process, by id: leased ones, since a tied one belongs to the process that made
// it. A provider that is not here has none. An error means that nobody can tell.
func (d *Deployments) Alive(ctx context.Context, run string, known []Known) (map[string]bool, error) {
	alive := map[string]bool{}
	infos, errs := d.ofRun(ctx, run)
	for _, f := range infos {
		if f.info.State == sandbox.StateRunning && !f.info.Tied {
			alive[f.info.ID] = true
		}
	}
	for _, k := range known {
		if err := errs[k.Provider]; err != nil {
			return nil, err
		}
	}
	return alive, nil
}

type found struct {
	info sandbox.Info
	prov sandbox.Provider
}

// ofRun lists the sandboxes of a run, and why a provider can't be asked.
func (d *Deployments) ofRun(ctx context.Context, run string) ([]found, map[string]error) {
	var out []found
	errs := map[string]error{}
	for e := range d.providers.All() {
		infos, err := e.Value.List(ctx)
		if err != nil {
			errs[e.Name] = fmt.Errorf("list the sandboxes of %s: %w", e.Name, err)
			continue
		}
		for _, i := range infos {
			if i.Run == run {
				out = append(out, found{i, e.Value})
			}
		}
	}
	return out, errs
}

// Reopen makes the run's account what an earlier process left: keep stand in it, as if their steps had made them here, and every other sandbox of the
// run is removed, tied ones of a process that may still live among them. It names what could not be removed. Call it once, after Open.
func (d *Deployments) Reopen(ctx context.Context, run string, keep []Known) error {
	kept := make(map[string]Known, len(keep))
	for _, k := range keep {
		kept[k.ID] = k
	}
	infos, failed := d.ofRun(ctx, run)
	var errs []error
	for _, err := range failed {
		errs = append(errs, err)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, f := range infos {
		if k, ok := kept[f.info.ID]; ok {
			d.enter(run, k, f)
			continue
		}
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTimeout)
			defer cancel()
			if err := f.prov.Destroy(ctx, f.info.ID); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("sandbox %s: %w", f.info.ID, err))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (d *Deployments) enter(run string, k Known, f found) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.account(run)
	if a.boxes[k.Name] != nil {
		return
	}
	b := &box{step: k.Step, info: f.info, prov: f.prov}
	a.boxes[k.Name] = b
	a.undo = append(a.undo, undo{step: k.Step, what: "sandbox " + f.info.ID, name: k.Name, box: b})
}
