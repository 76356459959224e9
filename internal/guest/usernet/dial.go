package usernet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// dialLimit ends an attempt to connect.
const dialLimit = 20 * time.Second

// target is where a flow wants to go: a name, or else an address that the policy has let pass.
type target struct {
	name string
	addr netip.Addr
	port uint16
}

func (t target) host() string {
	if t.name != "" {
		return t.name
	}
	return t.addr.String()
}

func (t target) String() string { return net.JoinHostPort(t.host(), strconv.Itoa(int(t.port))) }

// refusal is a dial that the policy forbids; its text is the reason.
type refusal struct {
	why  string
	addr netip.Addr
}

func (r *refusal) Error() string { return r.why }

// dialer opens the host's side of flows.
type dialer struct {
	policy   *Policy
	proxy    *proxy
	resolver *net.Resolver
	own      func() []netip.Addr // the addresses of the host itself
}

// dial connects to t, through the host's proxy where there is one. An error that is a *refusal is the policy's.
func (d *dialer) dial(ctx context.Context, network string, t target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	if network == "tcp" {
		if s := d.proxy.server(t); s != nil {
			// What this side can see to be private must not be asked of a proxy that stands in the private network.
			if direct, err := d.inner(ctx, t); err != nil {
				return nil, err
			} else if !direct {
				return s.connect(ctx, t)
			}
		}
	}
	return d.direct(ctx, network, t)
}

// direct connects without a proxy. Every address that a name resolves to is judged again when it is used, whatever it was a moment ago.
func (d *dialer) direct(ctx context.Context, network string, t target) (net.Conn, error) {
	nd := net.Dialer{
		Resolver:       d.resolver,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error { return d.judge(t, address) },
	}
	host := t.host()
	if strings.Contains(t.name, ".") {
		host += "." // rooted: no search list of the host's makes another name of it
	}
	return nd.DialContext(ctx, network, net.JoinHostPort(host, strconv.Itoa(int(t.port))))
}

// judge refuses an address that is about to be connected to.
func (d *dialer) judge(t target, address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil {
		return &refusal{why: WhyAddress}
	}
	a := ap.Addr()
	why := d.policy.Addr(a, ap.Port())
	if t.name != "" {
		why = d.policy.Resolved(a, ap.Port())
	}
	if why == "" && !d.policy.listed(a) && slices.Contains(d.own(), a.Unmap()) {
		why = WhyOwn
	}
	if why != "" {
		return &refusal{why: why, addr: a}
	}
	return nil
}

// inner tells whether t is on this side of the proxy: dialled directly where the policy opens it, and refused where it doesn't. A name
// that this side can't resolve is the proxy's to resolve.
func (d *dialer) inner(ctx context.Context, t target) (direct bool, err error) {
	addrs := []netip.Addr{t.addr}
	if t.name != "" {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if addrs, err = d.resolver.LookupNetIP(ctx, "ip", t.name); err != nil || len(addrs) == 0 {
			return false, nil
		}
	}
	for _, a := range addrs {
		a = a.Unmap()
		if !Public(a) {
			if !d.policy.listed(a) {
				return false, &refusal{why: WhyPrivate, addr: a}
			}
			direct = true
		}
	}
	return direct, nil
}

// refused is the policy's word in the error of a dial; nil when there is none.
func refused(err error) *refusal {
	r, _ := errors.AsType[*refusal](err)
	return r
}

// ownAddrs answers the host's addresses, as they were a few seconds ago at most.
func ownAddrs() func() []netip.Addr {
	type answer struct {
		at    time.Time
		addrs []netip.Addr
	}
	last := make(chan answer, 1)
	last <- answer{}
	return func() []netip.Addr {
		a := <-last
		defer func() { last <- a }()
		if time.Since(a.at) < 5*time.Second {
			return a.addrs
		}
		list, err := net.InterfaceAddrs()
		if err != nil {
			return a.addrs
		}
		a.at, a.addrs = time.Now(), nil
		for _, n := range list {
			if p, err := netip.ParsePrefix(n.String()); err == nil {
				a.addrs = append(a.addrs, p.Addr().Unmap())
			}
		}
		return a.addrs
	}
}
