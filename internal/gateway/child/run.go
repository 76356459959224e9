package child

import (
	"context"
	"errors"
	"fmt"
	"time"

	"agentenv.internal/agentenv/internal/sleep"
)

const (
	connectPause    = 10 * time.Millisecond
	maxConnectPause = time.Second
	maxRestartPause = 30 * time.Second
	// restartAfter is how long a child that was restarted may take to answer before it is restarted again.
	restartAfter = 60 * time.Second
	listPause    = 50 * time.Millisecond
)

// run owns the connection: it connects, lists, and waits until that is lost.
func (c *Child) run(ctx context.Context) {
	var restarts restarter
	for ctx.Err() == nil {
		s := c.connect(ctx, &restarts)
		if s == nil {
			break
		}
		restarts.up()
		n := c.watch(ctx, s)
		c.setDown(s, n.err)
		s.close(ctx, n.dead)
		if ctx.Err() != nil {
			break
		}
		c.log.Warn("an environment's server was lost", "error", n.err)
		c.o.Changed()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err, c.downFor = errClosed, time.Unix(0, 0)
}

// restarter spaces restarts out: at once, then after 1, 2, 4 … 30 s.
type restarter struct {
	pause time.Duration
	next  time.Time // not before
	since time.Time // when the child came up last
}

func (r *restarter) up() {
	r.since = time.Now()
	if !r.next.IsZero() {
		r.next = r.since.Add(r.pause)
	}
}

// due tells whether the child is to be restarted now.
func (r *restarter) due() bool {
	now := time.Now()
	if now.Before(r.next) {
		return false
	}
	if r.pause = min(2*r.pause, maxRestartPause); r.pause == 0 || now.Sub(r.since) > 2*maxRestartPause {
		r.pause = time.Second
	}
	return true
}

// connect tries until it has a session whose tools are listed. nil: ctx has ended.
func (c *Child) connect(ctx context.Context, r *restarter) *session {
	for pause := connectPause; ; pause = min(pause*3/2, maxConnectPause) {
		s, err := c.open(ctx)
		if err == nil {
			c.o.Changed() // before it counts as up: who waits for that may call a tool at once
			c.setUp(s)
			return s
		}
		if ctx.Err() != nil {
			return nil
		}
		c.mu.Lock()
		c.err = err
		known := c.gen > 0 // one that never answered is still being started by somebody
		c.mu.Unlock()
		if known && errors.Is(err, ErrDown) && c.o.Restart != nil && r.due() {
			c.restart(ctx, r)
			pause = connectPause
		}
		if sleep.For(ctx, pause) != nil {
			return nil
		}
	}
}

func (c *Child) restart(ctx context.Context, r *restarter) {
	if err := c.o.Restart(ctx); err != nil {
		c.log.Warn("an environment's server couldn't be restarted", "error", err)
		r.next = time.Now().Add(r.pause)
		return
	}
	c.log.Info("an environment's server was restarted")
	r.next = time.Now().Add(restartAfter)
}

// open makes a session and reads the list.
func (c *Child) open(ctx context.Context) (*session, error) {
	s, err := c.initialize(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.relist(ctx, s); err != nil {
		s.close(ctx, errors.Is(err, ErrDown))
		return nil, fmt.Errorf("list its tools: %w", err)
	}
	c.mu.Lock()
	c.gen++
	c.mu.Unlock()
	return s, nil
}

// watch waits until the session is lost, following changes of the list meanwhile.
func (c *Child) watch(ctx context.Context, s *session) lostNote {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.listens {
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.listen(ctx, s)
		}()
		defer func() { <-done }()
		defer cancel()
	}
	for {
		select {
		case <-ctx.Done():
			return lostNote{s: s, err: errClosed}
		case <-s.changed:
			if sleep.For(ctx, listPause) != nil { // changes come in bursts
				return lostNote{s: s, err: errClosed}
			}
			select {
			case <-s.changed:
			default:
			}
			err := c.relist(ctx, s)
			if errors.Is(err, errSession) || errors.Is(err, ErrDown) {
				return lostNote{s: s, dead: errors.Is(err, ErrDown), err: err}
			}
			if err != nil {
				c.log.Warn("an environment's changed list of tools can't be read", "error", err)
				continue
			}
			c.o.Changed()
		case n := <-c.lost:
			if n.s != s {
				continue
			}
			if errors.Is(n.err, errSession) || n.dead {
				return n
			}
			// One connection broke: is it the server?
			if err := c.ping(ctx, s); errors.Is(err, errSession) || errors.Is(err, ErrDown) || errors.Is(err, ErrLost) {
				return lostNote{s: s, dead: !errors.Is(err, errSession), err: err}
			}
		}
	}
}
