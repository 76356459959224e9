package docker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/moby/moby/client"
	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

// Connect opens a connection to a living box, whoever made it.
func (p *Provider) Connect(ctx context.Context, id string) (guest.Box, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s, err := p.slot(id)
	if err != nil {
		return nil, err
	}
	if alive, err := s.alive(); err != nil || !alive {
		s.close()
		if err != nil {
			return nil, fmt.Errorf("open sandbox %s: %w", id, err)
		}
		return nil, fmt.Errorf("%s has ended: %w", id, sandbox.ErrNotFound)
	}
	c := guest.NewClient(id, s.dial, func() error { s.close(); return nil })
	c.Explain(s.why)
	return c, nil
}

// List tells of every box of this state root, newest first. The engine is asked for nothing but the end of dead ones, and only when it is there.
func (p *Provider) List(ctx context.Context) ([]sandbox.Info, error) {
	names, err := slots(p.boxes)
	if err != nil {
		return nil, fmt.Errorf("list the sandboxes: %w", err)
	}
	var infos []sandbox.Info
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, err := openSlot(p.boxes, name)
		if err != nil {
			continue // gone meanwhile
		}
		r := s.read()
		s.close()
		if r.State == sandbox.StateDead && r.Cause == "" {
			r.Cause = p.cause(ctx, &r)
		}
		infos = append(infos, r.Info)
	}
	slices.SortFunc(infos, func(a, b sandbox.Info) int { return b.Created.Compare(a.Created) })
	return infos, nil
}

// causeLimit bounds the question how a dead box ended.
const causeLimit = time.Second

// cause is what ended a dead box that didn't tell itself, as far as its engine can; "" otherwise.
func (p *Provider) cause(ctx context.Context, r *record) string {
	if r.Isolation.Level == "" { // it died with its maker, before it lived
		return sandbox.CauseOwner
	}
	ctx, cancel := context.WithTimeout(ctx, causeLimit)
	defer cancel()
	e, err := p.engineAt(ctx, r.Engine)
	if err != nil {
		return ""
	}
	got, err := e.ContainerInspect(ctx, containerName(r.ID), client.ContainerInspectOptions{})
	if err != nil || got.Container.State == nil || got.Container.State.Running {
		return ""
	}
	if got.Container.State.OOMKilled {
		return sandbox.CauseMemory
	}
	return sandbox.CauseSignal
}

// destroyLimit bounds a Destroy whose caller set no limit.
const destroyLimit = 60 * time.Second

// Destroy kills a box, waits for its end and removes what it left.
func (p *Provider) Destroy(ctx context.Context, id string) error {
	s, err := openSlot(p.boxes, id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	defer s.close()
	ctx, cancel := context.WithTimeout(ctx, destroyLimit)
	defer cancel()
	if err := p.destroy(ctx, s); err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	return nil
}

// destroy kills and removes until both have worked: the box may be starting, or be destroyed by somebody else as well.
func (p *Provider) destroy(ctx context.Context, s *slot) error {
	p.letGo(s.id)
	for wait := time.Millisecond; s.here(); wait = min(2*wait, 50*time.Millisecond) {
		if alive, err := s.alive(); err != nil {
			return err
		} else if alive {
			p.tell(ctx, s)
		}
		if unix.Flock(s.fd(), unix.LOCK_EX|unix.LOCK_NB) == nil {
			if !s.here() {
				return nil
			}
			return p.bury(ctx, s)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	return nil
}

// dieLimit is how long a box may take to end by itself before its engine ends it.
const dieLimit = time.Second

// tell asks a box to end, which is quicker than its engine. One that is paused doesn't hear.
func (p *Provider) tell(ctx context.Context, s *slot) {
	ctx, cancel := context.WithTimeout(ctx, dieLimit)
	defer cancel()
	if s.die(ctx) == nil {
		_ = s.awaitEnd(ctx) // the engine is next anyway
	}
}

// bury removes what a box has in its engine, which ends it if it lives, and then its slot. The caller has taken the slot.
func (p *Provider) bury(ctx context.Context, s *slot) error {
	r, _ := s.stored()
	r.ID = s.id
	e, err := p.engineAt(ctx, r.Engine)
	if err != nil {
		return err
	}
	if err := e.clear(ctx, &r); err != nil {
		return err
	}
	if err := s.awaitEnd(ctx); err != nil {
		return err
	}
	return s.remove()
}

// Sweep removes what dead boxes left, and answers their ids. An engine that doesn't answer has nothing running; its boxes stay listed as
// dead until it does. Where something is to sweep, containers that have lost their slots go too.
func (p *Provider) Sweep(ctx context.Context) ([]string, error) {
	names, err := slots(p.boxes)
	if err != nil {
		return nil, fmt.Errorf("sweep the sandboxes: %w", err)
	}
	slices.Sort(names)
	var swept []string
	var errs []error
	for _, name := range names {
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		s, err := openSlot(p.boxes, name)
		if err != nil {
			p.sweepHalf(name)
			continue
		}
		if gone, err := p.sweep(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("sweep sandbox %s: %w", name, err))
		} else if gone {
			swept = append(swept, name)
		}
		s.close()
	}
	if len(swept) > 0 {
		errs = append(errs, p.sweepLost(ctx), p.program.sweep())
	}
	return swept, errors.Join(errs...)
}

// sweep removes what is left of a box that nobody makes, removes or lives in.
func (p *Provider) sweep(ctx context.Context, s *slot) (bool, error) {
	if unix.Flock(s.fd(), unix.LOCK_EX|unix.LOCK_NB) != nil || !s.here() {
		return false, nil
	}
	alive, err := s.alive()
	if err != nil || alive {
		return false, err
	}
	r, _ := s.stored()
	r.ID = s.id
	e, err := p.engineAt(ctx, r.Engine)
	if errors.Is(err, sandbox.ErrUnsupported) { // the engine is not there
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// An engine finishes what it was asked by somebody who died then.
	if r.State == sandbox.StateStarting && time.Since(r.Created) < asking {
		if has, err := e.has(ctx, &r); err != nil || !has {
			return false, err
		}
	}
	err = p.bury(ctx, s)
	return err == nil, err
}

// asking is how long an engine may take to do what it was asked.
const asking = 10 * time.Second

// sweepHalf removes the folder of a box whose maker died before it had a slot.
func (p *Provider) sweepHalf(id string) {
	dir := filepath.Join(p.boxes, id)
	if info, err := os.Lstat(dir); err == nil && time.Since(info.ModTime()) > asking {
		os.Remove(dir) // only an empty one
	}
}

// lostAge is how old a container without a slot is at least before it counts as lost.
const lostAge = time.Minute

// sweepLost removes containers of this state root that no slot knows: an engine may finish what its caller died of.
func (p *Provider) sweepLost(ctx context.Context) error {
	e, err := p.engine(ctx)
	if err != nil {
		return nil
	}
	mine := client.Filters{}.Add("label", labelState+"="+p.stateLabel())
	got, err := e.ContainerList(ctx, client.ContainerListOptions{All: true, Filters: mine})
	if err != nil {
		return fmt.Errorf("look for lost containers: %w", said(err))
	}
	var errs []error
	for _, c := range got.Items {
		id := c.Labels[labelID]
		if p.known(id) || time.Since(time.Unix(c.Created, 0)) < lostAge {
			continue
		}
		errs = append(errs, said(e.removeContainer(ctx, c.ID)))
	}
	return errors.Join(errs...)
}

// known tells whether a box has a slot.
func (p *Provider) known(id string) bool {
	s, err := openSlot(p.boxes, id)
	if err != nil {
		return false
	}
	s.close()
	return true
}

// OutputLog is where what a box's programs write is kept.
func (p *Provider) OutputLog(id string) (string, error) {
	s, err := p.slot(id)
	if err != nil {
		return "", err
	}
	defer s.close()
	return filepath.Join(s.path, outputName), nil
}

// Blocked is what a box's policy kept it from.
func (p *Provider) Blocked(_ context.Context, id string) ([]guest.Blocked, error) {
	s, err := p.slot(id)
	if err != nil {
		return nil, err
	}
	defer s.close()
	return hostside.ReadLog(filepath.Join(s.path, netName), id)
}
