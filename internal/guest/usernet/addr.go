package usernet

import "net/netip"

// special are the blocks that are not the public Internet's, by the registries of special-purpose addresses. The first that holds an
// address is the one that a CIDR has to name.
var special = prefixes(
	"0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24",
	"192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
	// Of IPv6 all but 2000::/3 is special, and of that Teredo, benchmarks, ORCHID, documentation and 6to4, which carry other addresses
	// inside or nothing at all.
	"::1/128", "::/96", "::/8", "100::/8", "fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8",
	"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20",
)

var (
	global6 = netip.MustParsePrefix("2000::/3")
	nat64   = netip.MustParsePrefix("64:ff9b::/96")
)

func prefixes(list ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(list))
	for i, s := range list {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

// plain is an address without disguise: IPv4 in IPv6 becomes IPv4, whether mapped or translated by NAT64.
func plain(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if nat64.Contains(a) {
		b := a.As16()
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return a
}

// block is the special block that holds a plain address; ok is false for a public one.
func block(a netip.Addr) (p netip.Prefix, ok bool) {
	for _, p := range special {
		if p.Contains(a) {
			return p, true
		}
	}
	if a.Is6() && !global6.Contains(a) {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	return netip.Prefix{}, false
}

// Public tells whether an address is one of the public Internet.
func Public(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	_, is := block(plain(a))
	return !is
}
