package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
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
	pid, err := s.holder()
	if err == nil && pid == 0 {
		err = sandbox.ErrNotFound
		if why := sandbox.Why(s.read().Cause); why != "" {
			err = fmt.Errorf("it has ended, since %s: %w", why, sandbox.ErrNotFound)
		}
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("open sandbox %s: %w", id, err)
	}
	b := guest.NewClient(id, s.dial, func() error { s.close(); return nil })
	b.Explain(s.why)
	return b, nil
}

// dial opens one connection to the box's PID 1.
func (s *slot) dial(ctx context.Context) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", s.address())
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// List tells of every box of this state root, newest first.
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
			continue // not a box's, or gone meanwhile
		}
		infos = append(infos, s.read().Info)
		s.close()
	}
	slices.SortFunc(infos, func(a, b sandbox.Info) int { return b.Created.Compare(a.Created) })
	return infos, nil
}

// destroyLimit bounds a Destroy whose caller set no limit.
const destroyLimit = 30 * time.Second

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
	r, _ := s.stored()
	err = p.destroy(ctx, s)
	if err == nil && len(r.Layers) > 0 {
		err = p.pruneLayers(ctx)
	}
	if err != nil {
		return fmt.Errorf("destroy sandbox %s: %w", id, err)
	}
	return nil
}

// destroy kills and removes until both have worked: the box may be starting, or be destroyed by somebody else as well.
func (p *Provider) destroy(ctx context.Context, s *slot) error {
	for wait := time.Millisecond; s.here(); wait = min(2*wait, 50*time.Millisecond) {
		if err := s.kill(ctx, sandbox.CauseRemoved); err != nil {
			return err
		}
		if unix.Flock(s.fd(), unix.LOCK_EX|unix.LOCK_NB) == nil {
			if pid, err := s.holder(); err == nil && pid == 0 && s.here() {
				p.awaitEnded(ctx, s.id)
				return s.remove()
			}
			unix.Flock(s.fd(), unix.LOCK_UN)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
	return nil
}

// awaitEnded waits until this process has let go of its own dead child.
func (p *Provider) awaitEnded(ctx context.Context, id string) {
	p.mu.Lock()
	c := p.children[id]
	p.mu.Unlock()
	if c == nil {
		return
	}
	select {
	case <-c.ended:
	case <-ctx.Done():
	}
}

// Sweep removes what dead boxes left, and answers their ids.
func (p *Provider) Sweep(ctx context.Context) ([]string, error) {
	names, err := slots(p.boxes)
	if err != nil {
		return nil, fmt.Errorf("sweep the sandboxes: %w", err)
	}
	slices.Sort(names)
	var swept []string
	layered := false // some of the swept boxes held layers
	var errs []error
	for _, name := range names {
		if ctx.Err() != nil {
			errs = append(errs, ctx.Err())
			break
		}
		s, err := openSlot(p.boxes, name)
		if err != nil {
			continue
		}
		r, _ := s.stored()
		if gone, err := sweep(s); err != nil {
			errs = append(errs, fmt.Errorf("sweep sandbox %s: %w", name, err))
		} else if gone {
			swept = append(swept, name)
			layered = layered || len(r.Layers) > 0
		}
		s.close()
	}
	p.host.controlGroups().sweep()
	if layered {
		errs = append(errs, p.pruneLayers(ctx))
	}
	return swept, errors.Join(errs...)
}

// sweep removes what is left of a box that nobody makes, removes or lives in.
func sweep(s *slot) (bool, error) {
	if unix.Flock(s.fd(), unix.LOCK_EX|unix.LOCK_NB) != nil || !s.here() {
		return false, nil
	}
	pid, err := s.holder()
	if err != nil || pid != 0 {
		return false, err
	}
	return true, s.remove()
}

// sweepSoon is sweep of a box whose end was seen: whoever has it taken only looks, or is a child of this process that is being started. What is taken for
// longer is left to the next Sweep.
func sweepSoon(s *slot) error {
	for wait := time.Millisecond; ; wait *= 2 {
		gone, err := sweep(s)
		if gone || err != nil || !s.here() || wait > 256*time.Millisecond {
			return err
		}
		time.Sleep(wait)
	}
}

// Close ends the tied boxes of this process and lets go of the others.
func (p *Provider) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	p.mu.Unlock()
	p.making.Wait()
	p.mu.Lock()
	tied, leased := map[string]*child{}, []*child{}
	for id, c := range p.children {
		if c.tied {
			tied[id] = c
		} else {
			leased = append(leased, c)
		}
	}
	p.mu.Unlock()
	var errs []error
	for _, k := range p.passing { // nothing adds any now
		errs = append(errs, k.release())
	}
	for id, c := range tied {
		if s, err := openSlot(p.boxes, id); err == nil {
			s.mark(sandbox.CauseOwner)
			s.close()
		}
		errs = append(errs, ignoreGone(c.proc.Signal(unix.SIGKILL)))
	}
	for id, c := range tied {
		<-c.ended
		if s, err := openSlot(p.boxes, id); err == nil {
			err := sweepSoon(s)
			s.close()
			errs = append(errs, err)
		}
	}
	for _, c := range leased {
		c.letGo()
	}
	p.watching.Wait()
	p.launcher.Stop()
	p.program.Close()
	p.hosts.Close()
	return errors.Join(errs...)
}
