package app

import "sync"

// part is something that is made when first asked for. A making that failed is tried again by the next caller.
type part[T any] struct {
	mu   sync.Mutex
	made bool
	v    T
}

func (p *part[T]) get(make func() (T, error)) (T, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.made {
		return p.v, nil
	}
	v, err := make()
	if err == nil {
		p.v, p.made = v, true
	}
	return v, err
}

// peek is the part if it has been made. It doesn't wait for a making that is under way.
func (p *part[T]) peek() (T, bool) {
	if !p.mu.TryLock() {
		var none T
		return none, false
	}
	defer p.mu.Unlock()
	return p.v, p.made
}
