package task

import "math/bits"

// Set is a set of step indices of one task.
type Set []uint64

func newSet(n int) Set { return make(Set, (n+63)/64) }

// Has tells whether step i is in the set.
func (s Set) Has(i int) bool { return i >= 0 && i/64 < len(s) && s[i/64]>>(i%64)&1 == 1 }

// Len counts the members.
func (s Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// Items are the members in ascending order.
func (s Set) Items() []int {
	var out []int
	for i, w := range s {
		for ; w != 0; w &= w - 1 {
			out = append(out, i*64+bits.TrailingZeros64(w))
		}
	}
	return out
}

func (s Set) add(i int) { s[i/64] |= 1 << (i % 64) }

func (s Set) addAll(o Set) {
	for i, w := range o {
		s[i] |= w
	}
}

// below puts 0..n-1 into the set.
func (s Set) below(n int) {
	for i := range n / 64 {
		s[i] = ^uint64(0)
	}
	if n%64 != 0 {
		s[n/64] |= 1<<(n%64) - 1
	}
}

// Ancestors are, per step, the steps that must have ended before it starts: what it waits for, directly or not.
func (t *Task) Ancestors() []Set {
	words := (len(t.Steps) + 63) / 64
	all := make(Set, words*len(t.Steps))
	out := make([]Set, len(t.Steps))
	for i := range t.Steps {
		s := all[i*words : (i+1)*words : (i+1)*words]
		if deps := t.Steps[i].Deps; len(deps) == i {
			s.below(i)
		} else {
			for _, d := range deps {
				s.add(d)
				s.addAll(out[d])
			}
		}
		out[i] = s
	}
	return out
}

// Dependents are the steps that wait for step i, directly or not: what runs again with it.
func (t *Task) Dependents(i int) Set {
	s := newSet(len(t.Steps))
	for j := i + 1; j < len(t.Steps); j++ {
		if deps := t.Steps[j].Deps; len(deps) == j {
			s.add(j)
			continue
		}
		for _, d := range t.Steps[j].Deps {
			if d == i || s.Has(d) {
				s.add(j)
				break
			}
		}
	}
	return s
}

// Index is the place of the step with this id; false when there is none.
func (t *Task) Index(id string) (int, bool) {
	for i := range t.Steps {
		if t.Steps[i].ID == id {
			return i, true
		}
	}
	return 0, false
}
