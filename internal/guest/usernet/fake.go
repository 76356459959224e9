package usernet

import (
	"encoding/binary"
	"net/netip"
	"sync"
)

// Fake addresses: 198.18.0.0/15, the range for benchmarks, which no network routes, and the same 32 bits below a prefix of our own for IPv6.
var (
	fake4 = netip.MustParsePrefix("198.18.0.0/15")
	fake6 = netip.MustParsePrefix("fd00:c612::/96")
)

// maxFakes is how many names have an address at a time; the oldest gives its own away.
const maxFakes = 16384

// fakes stand for names.
type fakes struct {
	mu    sync.Mutex
	names []string // by number
	byKey map[string]int
	next  int
}

func newFakes() *fakes { return &fakes{byKey: map[string]int{}} }

// of is the number of a canonical name, from which its addresses follow.
func (f *fakes) of(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if n, ok := f.byKey[name]; ok {
		return n
	}
	n := f.next % maxFakes
	f.next++
	if n < len(f.names) {
		delete(f.byKey, f.names[n])
		f.names[n] = name
	} else {
		f.names = append(f.names, name)
	}
	f.byKey[name] = n
	return n
}

func (f *fakes) addr4(name string) [4]byte {
	base := fake4.Addr().As4()
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], binary.BigEndian.Uint32(base[:])+uint32(f.of(name))+1)
	return b
}

func (f *fakes) addr6(name string) [16]byte {
	b := fake6.Addr().As16()
	v4 := f.addr4(name)
	copy(b[12:], v4[:])
	return b
}

// name is what an address stands for: is tells whether it is a fake one at all, and name is "" for one that was never given.
func (f *fakes) name(a netip.Addr) (name string, is bool) {
	if fake6.Contains(a) {
		b := a.As16()
		a = netip.AddrFrom4([4]byte(b[12:]))
	}
	if !fake4.Contains(a) {
		return "", false
	}
	b, base := a.As4(), fake4.Addr().As4()
	n := int(binary.BigEndian.Uint32(b[:])-binary.BigEndian.Uint32(base[:])) - 1
	f.mu.Lock()
	defer f.mu.Unlock()
	if n < 0 || n >= len(f.names) {
		return "", true
	}
	return f.names[n], true
}
