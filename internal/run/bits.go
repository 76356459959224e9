package run

// bits is a set of step indices.
type bits []uint64

// newBits holds indices below n.
func newBits(n int) bits { return make(bits, (n+63)/64) }

func (b bits) has(i int) bool { return i>>6 < len(b) && b[i>>6]&(1<<(i&63)) != 0 }

func (b bits) set(i int) { b[i>>6] |= 1 << (i & 63) }

// or adds a smaller set.
func (b bits) or(c bits) {
	for i, w := range c {
		b[i] |= w
	}
}
