package usernet

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"agentenv.internal/agentenv/internal/guest"
)

const (
	dnsLimit   = 10 * time.Second // of one question
	dnsUDPSize = 1232             // the largest answer by UDP, where the question allows it
	fakeTTL    = 60               // seconds
	realTTL    = 15
)

// dns is the box's resolver. Under an allowlist, or behind a proxy, it knows nothing and asks nobody: an allowed name has a fake address and
// every other does not exist. Otherwise it answers what the host's resolver says, less what is not public.
type dns struct {
	policy   *Policy
	fakes    *fakes
	fake     bool
	resolver *net.Resolver
	blocked  *blockedLog
}

// answer replies to one message; nil where no reply is due. size is the largest reply that the question's transport takes.
func (d *dns) answer(ctx context.Context, query []byte, tcp bool) []byte {
	var p dnsmessage.Parser
	h, err := p.Start(query)
	if err != nil || h.Response {
		return nil
	}
	reply := dnsmessage.Header{ID: h.ID, Response: true, OpCode: h.OpCode, RecursionDesired: h.RecursionDesired, RecursionAvailable: true}
	qs, err := p.AllQuestions()
	switch {
	case h.OpCode != 0:
		reply.RCode = dnsmessage.RCodeNotImplemented
	case err != nil || len(qs) != 1 || qs[0].Class != dnsmessage.ClassINET:
		reply.RCode = dnsmessage.RCodeFormatError
		qs = nil
	}
	var rs []dnsmessage.Resource
	if reply.RCode == dnsmessage.RCodeSuccess {
		ctx, cancel := context.WithTimeout(ctx, dnsLimit)
		defer cancel()
		var bodies []dnsmessage.ResourceBody
		bodies, reply.RCode = d.resolve(ctx, qs[0])
		ttl := uint32(realTTL)
		if d.fake {
			ttl = fakeTTL
		}
		for _, b := range bodies {
			rs = append(rs, dnsmessage.Resource{Header: dnsmessage.ResourceHeader{Name: qs[0].Name, Class: dnsmessage.ClassINET, TTL: ttl}, Body: b})
		}
	}
	m := dnsmessage.Message{Header: reply, Questions: qs, Answers: rs}
	out, err := m.Pack()
	if !tcp && err == nil && len(out) > udpSize(&p) || tcp && len(out) > 65535 {
		m.Answers, m.Truncated = nil, true
		out, err = m.Pack()
	}
	if err != nil {
		return nil
	}
	return out
}

// udpSize is how large a reply the asker takes: p stands behind the questions.
func udpSize(p *dnsmessage.Parser) int {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return 512
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return 512
		}
		if h.Type == dnsmessage.TypeOPT {
			return min(max(512, int(h.Class)), dnsUDPSize)
		}
		if p.SkipAdditional() != nil {
			return 512
		}
	}
}

func (d *dns) resolve(ctx context.Context, q dnsmessage.Question) ([]dnsmessage.ResourceBody, dnsmessage.RCode) {
	name := strings.ToLower(strings.TrimSuffix(q.Name.String(), "."))
	if q.Type == dnsmessage.TypePTR {
		return d.reverse(ctx, name)
	}
	if why := d.policy.Name(name); why != "" {
		d.blocked.add(guest.Blocked{Proto: "dns", Host: name, Why: why})
		return nil, dnsmessage.RCodeNameError
	}
	if !d.fake {
		return d.ask(ctx, q.Type, name)
	}
	switch q.Type { //nolint:exhaustive // other types of allowed names have no records here
	case dnsmessage.TypeA:
		return []dnsmessage.ResourceBody{&dnsmessage.AResource{A: d.fakes.addr4(name)}}, dnsmessage.RCodeSuccess
	case dnsmessage.TypeAAAA:
		return []dnsmessage.ResourceBody{&dnsmessage.AAAAResource{AAAA: d.fakes.addr6(name)}}, dnsmessage.RCodeSuccess
	}
	return nil, dnsmessage.RCodeSuccess // the name exists, and has nothing of that type
}

// reverse answers the name of an address.
func (d *dns) reverse(ctx context.Context, name string) ([]dnsmessage.ResourceBody, dnsmessage.RCode) {
	a, ok := reverseAddr(name)
	if !ok {
		return nil, dnsmessage.RCodeNameError
	}
	var names []string
	if n, is := d.fakes.name(a); is {
		if n == "" {
			return nil, dnsmessage.RCodeNameError
		}
		names = []string{n + "."}
	} else if !d.fake && Public(a) {
		var err error
		if names, err = d.resolver.LookupAddr(ctx, a.String()); err != nil {
			return nil, rcode(err)
		}
	}
	var out []dnsmessage.ResourceBody
	for _, n := range names {
		if wire, err := dnsmessage.NewName(n); err == nil {
			out = append(out, &dnsmessage.PTRResource{PTR: wire})
		}
	}
	if out == nil {
		return nil, dnsmessage.RCodeNameError
	}
	return out, dnsmessage.RCodeSuccess
}

// reverseAddr reads an address out of its name below in-addr.arpa or ip6.arpa.
func reverseAddr(name string) (netip.Addr, bool) {
	if v4, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		f := strings.Split(v4, ".")
		if len(f) != 4 {
			return netip.Addr{}, false
		}
		a, err := netip.ParseAddr(f[3] + "." + f[2] + "." + f[1] + "." + f[0])
		return a, err == nil
	}
	v6, ok := strings.CutSuffix(name, ".ip6.arpa")
	f := strings.Split(v6, ".")
	if !ok || len(f) != 32 {
		return netip.Addr{}, false
	}
	var b [16]byte
	for i, digit := range f {
		n, err := strconv.ParseUint(digit, 16, 4)
		if err != nil || len(digit) != 1 {
			return netip.Addr{}, false
		}
		b[15-i/2] |= byte(n) << (4 * (i % 2))
	}
	return netip.AddrFrom16(b), true
}

// ask asks the host's resolver.
func (d *dns) ask(ctx context.Context, typ dnsmessage.Type, name string) (out []dnsmessage.ResourceBody, code dnsmessage.RCode) {
	switch typ { //nolint:exhaustive // what the resolver can't be asked for is told as not implemented
	case dnsmessage.TypeA, dnsmessage.TypeAAAA:
		// Both families are asked: a name that has the other one exists.
		addrs, err := d.resolver.LookupNetIP(ctx, "ip", name+".")
		if err != nil {
			return nil, rcode(err)
		}
		for _, a := range addrs {
			a = a.Unmap()
			switch {
			case a.Is4() != (typ == dnsmessage.TypeA):
			case !Public(a):
				d.blocked.add(guest.Blocked{Proto: "dns", Host: name, Addr: a.String(), Why: WhyPrivate})
			case a.Is4():
				out = append(out, &dnsmessage.AResource{A: a.As4()})
			default:
				out = append(out, &dnsmessage.AAAAResource{AAAA: a.As16()})
			}
		}
	case dnsmessage.TypeMX:
		list, err := d.resolver.LookupMX(ctx, name+".")
		if err != nil {
			return nil, rcode(err)
		}
		for _, r := range list {
			if n, err := dnsmessage.NewName(r.Host); err == nil {
				out = append(out, &dnsmessage.MXResource{Pref: r.Pref, MX: n})
			}
		}
	case dnsmessage.TypeTXT:
		list, err := d.resolver.LookupTXT(ctx, name+".")
		if err != nil {
			return nil, rcode(err)
		}
		for _, r := range list {
			out = append(out, &dnsmessage.TXTResource{TXT: chunks(r)})
		}
	case dnsmessage.TypeSRV:
		_, list, err := d.resolver.LookupSRV(ctx, "", "", name+".")
		if err != nil {
			return nil, rcode(err)
		}
		for _, r := range list {
			if n, err := dnsmessage.NewName(r.Target); err == nil {
				out = append(out, &dnsmessage.SRVResource{Priority: r.Priority, Weight: r.Weight, Port: r.Port, Target: n})
			}
		}
	}
	return out, dnsmessage.RCodeSuccess
}

// chunks cuts a text into the strings of at most 255 bytes that a TXT record is made of.
func chunks(s string) []string {
	var out []string
	for len(s) > 255 {
		out, s = append(out, s[:255]), s[255:]
	}
	return append(out, s)
}

func rcode(err error) dnsmessage.RCode {
	if e, ok := errors.AsType[*net.DNSError](err); ok && e.IsNotFound {
		return dnsmessage.RCodeNameError
	}
	return dnsmessage.RCodeServerFailure
}

// serveTCP answers the questions of one connection, one after the other.
func (d *dns) serveTCP(ctx context.Context, c net.Conn) {
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	for {
		c.SetDeadline(time.Now().Add(dnsLimit + 5*time.Second))
		var n [2]byte
		if _, err := io.ReadFull(c, n[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(n[:]))
		if _, err := io.ReadFull(c, query); err != nil {
			return
		}
		reply := d.answer(ctx, query, true)
		if reply == nil {
			return
		}
		if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(reply))), reply...)); err != nil {
			return
		}
	}
}
