package trigger

import "math"

// twister draws random numbers as Python's random.Random does for the same seed (MT19937, seeded by an array), so that a schedule which a seed fixes is the
// same here and there.
type twister struct {
	state [624]uint32
	index int
	draws int // for going on after a restart
}

func newTwister(seed uint64) *twister {
	t := &twister{}
	t.reset(19650218)
	key := []uint32{uint32(seed)}
	if seed>>32 != 0 {
		key = append(key, uint32(seed>>32))
	}
	n := len(t.state)
	i, j := 1, 0
	next := func() {
		if i++; i >= n {
			t.state[0], i = t.state[n-1], 1
		}
	}
	for range max(n, len(key)) {
		prev := t.state[i-1]
		t.state[i] = (t.state[i] ^ ((prev ^ prev>>30) * 1664525)) + key[j] + uint32(j)
		next()
		if j++; j >= len(key) {
			j = 0
		}
	}
	for range n - 1 {
		prev := t.state[i-1]
		t.state[i] = (t.state[i] ^ ((prev ^ prev>>30) * 1566083941)) - uint32(i)
		next()
	}
	t.state[0] = 0x80000000
	return t
}

func (t *twister) reset(seed uint32) {
	t.state[0] = seed
	for i := 1; i < len(t.state); i++ {
		prev := t.state[i-1]
		t.state[i] = 1812433253*(prev^prev>>30) + uint32(i)
	}
	t.index = len(t.state)
}

func (t *twister) next() uint32 {
	const n, m = 624, 397
	if t.index >= n {
		for i := range n {
			y := t.state[i]&0x80000000 | t.state[(i+1)%n]&0x7fffffff
			v := t.state[(i+m)%n] ^ y>>1
			if y&1 != 0 {
				v ^= 0x9908b0df
			}
			t.state[i] = v
		}
		t.index = 0
	}
	y := t.state[t.index]
	t.index++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// float is in [0, 1).
func (t *twister) float() float64 {
	a, b := t.next()>>5, t.next()>>6
	return (float64(a)*67108864 + float64(b)) / 9007199254740992
}

// exponential draws from the exponential distribution of that mean.
func (t *twister) exponential(mean float64) float64 {
	t.draws++
	return -math.Log(1-t.float()) / (1 / mean)
}

// skip goes on behind so many draws.
func (t *twister) skip(draws int) {
	for range draws {
		t.exponential(1)
	}
}
