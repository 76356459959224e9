package bundlerun

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/run"
)

// Free is what a machine has left for this process and what it starts. What nobody can tell is negative.
type Free struct {
	Memory int64 // bytes that can be had without swapping
	Disk   int64 // bytes, where sandboxes and records are kept
	Pids   int64 // processes that may still be made
}

// Floors are what has to stay free: nothing new starts below them. 0 asks for nothing.
type Floors struct {
	Memory, Disk, Pids int64
}

// DefaultFloors leave a machine usable.
func DefaultFloors() Floors { return Floors{Memory: 256 << 20, Disk: 512 << 20, Pids: 256} }

// Machine holds runs and steps of this process back while the machine has no room for them. A nil Machine never does.
type Machine struct {
	Floors Floors
	// Steps is how many steps of all runs may be under way at once; 0 is no limit.
	Steps int
	// Free looks; the answer is used for a moment.
	Free func() Free

	mu    sync.Mutex
	runs  int
	steps int
	seen  time.Time
	last  string
}

var _ run.Room = (*Machine)(nil)

const (
	// freshFor is how long a look at the machine holds.
	freshFor = 200 * time.Millisecond
	// admitFor is how long the first run of all waits for memory or processes that others have.
	admitFor = time.Minute
)

// short is why nothing may start now; "" when it may. The lock is held.
func (m *Machine) short() string {
	now := time.Now()
	if now.Sub(m.seen) < freshFor && now.After(m.seen) {
		return m.last
	}
	m.seen, m.last = now, ""
	if m.Free == nil {
		return ""
	}
	f := m.Free()
	switch {
	case f.Disk >= 0 && f.Disk < m.Floors.Disk:
		m.last = fmt.Sprintf("%s of disk are free, and %s have to stay free", size(f.Disk), size(m.Floors.Disk))
	case f.Memory >= 0 && f.Memory < m.Floors.Memory:
		m.last = fmt.Sprintf("%s of memory are free, and %s have to stay free", size(f.Memory), size(m.Floors.Memory))
	case f.Pids >= 0 && f.Pids < m.Floors.Pids:
		m.last = fmt.Sprintf("%d more processes can be made, and %d have to stay possible", f.Pids, m.Floors.Pids)
	}
	return m.last
}

func size(n int64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

// Enter takes room for a step.
func (m *Machine) Enter(first bool) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !first {
		if m.Steps > 0 && m.steps >= m.Steps {
			return fmt.Sprintf("%d steps are under way, the most at once", m.steps)
		}
		if why := m.short(); why != "" {
			return why
		}
	}
	m.steps++
	return ""
}

// Leave gives a step's room back.
func (m *Machine) Leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps--
}

// admit waits until the machine has room for one more run, and tells why it waits. While runs of this process are under way it waits for their ends;
// when none is, room may never come: then it fails after a while.
func (m *Machine) admit(ctx context.Context, rep Reporter) error {
	if m == nil {
		return nil
	}
	told := ""
	alone := time.Time{}
	for {
		m.mu.Lock()
		m.seen = time.Time{} // the run before may have changed much
		why := m.short()
		if why == "" {
			m.runs++
		}
		others := m.runs
		m.mu.Unlock()
		if why == "" {
			return nil
		}
		if others > 0 {
			alone = time.Time{}
		} else if alone.IsZero() {
			alone = time.Now()
		} else if time.Since(alone) > admitFor {
			return errors.New("there is no room on this machine: " + why)
		}
		if h, ok := rep.(Holder); ok && told != why {
			h.Holding(why)
			told = why
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(freshFor):
		}
	}
}

// gone tells that a run has ended.
func (m *Machine) gone() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.runs--
}
