package usernet

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Modes of a Policy.
const (
	ModeAll  = "allow_all" // public addresses
	ModeList = "allowlist"
)

// Rules are what a Policy is made of.
type Rules struct {
	Mode string // ModeAll or ModeList; the lists are for ModeList alone
	// Hosts are names; "*.example.org" is every name below it, not itself.
	Hosts []string
	// CIDRs are ranges of addresses. One opens addresses that aren't public only when it lies within their special block, so that
	// 0.0.0.0/0 is the public Internet and 10.0.0.0/8 or narrower is what opens private addresses there.
	CIDRs []netip.Prefix
	Ports []uint16 // empty: every port
}

// Policy tells what a box may reach. It is pure: it knows nothing of the host, and resolves nothing.
type Policy struct {
	all   bool
	names map[string]bool // whole names
	below []string        // ".example.org"
	cidrs []netip.Prefix
	ports []uint16
}

// NewPolicy makes a policy, or tells all that is wrong with its rules.
func NewPolicy(r Rules) (*Policy, error) {
	var errs []error
	p := &Policy{names: map[string]bool{}, ports: slices.Clone(r.Ports)}
	switch r.Mode {
	case ModeAll:
		p.all = true
		if len(r.Hosts)+len(r.CIDRs)+len(r.Ports) > 0 {
			errs = append(errs, errors.New("hosts, CIDRs and ports have no effect with allow_all; use allowlist"))
		}
	case ModeList:
	default:
		errs = append(errs, fmt.Errorf("the network policy %q is none of none, %s and %s", r.Mode, ModeAll, ModeList))
	}
	for _, h := range r.Hosts {
		name, err := pattern(h)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if rest, ok := strings.CutPrefix(name, "*"); ok {
			p.below = append(p.below, rest)
		} else {
			p.names[name] = true
		}
	}
	for _, c := range r.CIDRs {
		if !c.IsValid() {
			errs = append(errs, errors.New("an address range is not valid"))
			continue
		}
		p.cidrs = append(p.cidrs, unmapPrefix(c))
	}
	if slices.Contains(r.Ports, 0) {
		errs = append(errs, errors.New("port 0 is no port"))
	}
	return p, errors.Join(errs...)
}

// unmapPrefix is c in the form in which addresses are compared.
func unmapPrefix(c netip.Prefix) netip.Prefix {
	if a := c.Addr(); a.Is4In6() && c.Bits() >= 96 {
		return netip.PrefixFrom(a.Unmap(), c.Bits()-96).Masked()
	}
	return c.Masked()
}

// pattern is a host of the rules in its canonical form.
func pattern(h string) (string, error) {
	name := strings.ToLower(strings.TrimSuffix(h, "."))
	rest := strings.TrimPrefix(name, "*.")
	_, err := netip.ParseAddr(strings.Trim(rest, "[]"))
	switch {
	case name == "*" || name == "*.":
		return "", errors.New("the host \"*\" is every host; use allow_all")
	case err == nil:
		return "", fmt.Errorf("the host %q is an address; allow it as a CIDR", h)
	case strings.Contains(rest, "*"):
		return "", fmt.Errorf("the host %q has a * that is not its first label, as in *.example.org", h)
	case !validName(rest) || numeric(rest):
		return "", fmt.Errorf("the host %q is no host name", h)
	}
	return name, nil
}

// validName tells whether name, in lower case and without a last dot, can be a host's: ASCII labels of at most 63 bytes. Names beyond ASCII
// are spelled in their xn-- form, as programs ask for them.
func validName(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range []byte(label) {
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// canonical is a name as the policy compares it; "" when it is no host's name.
func canonical(name string) string {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if !validName(name) {
		return ""
	}
	if numeric(name) {
		return "" // an address in a name's place would pass by the rules for addresses
	}
	return name
}

// numeric tells whether a name in lower case could be read as an IPv4 address, in any of the forms of inet_aton: 2852039166, 127.1 and
// 0xa9.0xfe.0xa9.0xfe are addresses to a proxy that asks its libc. No name of the Internet ends in a number.
func numeric(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if hex, ok := strings.CutPrefix(last, "0x"); ok {
		return strings.Trim(hex, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// Reasons why a destination is blocked.
const (
	WhyHost    = "the host is not in the allowlist"
	WhyAddress = "the address is not in the allowlist"
	WhyPort    = "the port is not in the allowlist"
	WhyPrivate = "the address is not public"
	WhyName    = "not a host name"
	WhyOwn     = "the address is the host's own"
	WhyICMP    = "only TCP and UDP leave a sandbox"
	WhyFlows   = "too many connections are open"
)

// Name tells why a name may not be asked for; "" when it may.
func (p *Policy) Name(name string) string {
	n := canonical(name)
	switch {
	case n == "":
		return WhyName
	case p.all || p.names[n]:
		return ""
	}
	for _, suffix := range p.below {
		if strings.HasSuffix(n, suffix) && len(n) > len(suffix) {
			return ""
		}
	}
	return WhyHost
}

// Port tells why a port may not be reached; "" when it may.
func (p *Policy) Port(port uint16) string {
	if port == 0 || len(p.ports) > 0 && !slices.Contains(p.ports, port) {
		return WhyPort
	}
	return ""
}

// Addr tells why an address that the box itself names may not be reached; "" when it may.
func (p *Policy) Addr(a netip.Addr, port uint16) string {
	if why := p.Port(port); why != "" {
		return why
	}
	switch public := Public(a); {
	case p.listed(a):
		return ""
	case !public:
		return WhyPrivate
	case p.all:
		return ""
	}
	return WhyAddress
}

// Resolved tells why an address that an allowed name was resolved to may not be reached; "" when it may.
func (p *Policy) Resolved(a netip.Addr, port uint16) string {
	if why := p.Port(port); why != "" {
		return why
	}
	if Public(a) || p.listed(a) {
		return ""
	}
	return WhyPrivate
}

// listed tells whether a CIDR opens the address.
func (p *Policy) listed(a netip.Addr) bool {
	if !a.IsValid() || a.Zone() != "" {
		return false
	}
	a = plain(a)
	b, isSpecial := block(a)
	return slices.ContainsFunc(p.cidrs, func(c netip.Prefix) bool {
		return c.Contains(a) && (!isSpecial || c.Bits() >= b.Bits())
	})
}

// Lists tells whether the policy is an allowlist: names are answered with fake addresses then.
func (p *Policy) Lists() bool { return !p.all }
