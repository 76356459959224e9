package usernet

import (
	"net"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// FuzzDNS: whatever a box asks, the answer is a message that fits, with the question's id and addresses of names that are allowed.
func FuzzDNS(f *testing.F) {
	for _, typ := range []dnsmessage.Type{dnsmessage.TypeA, dnsmessage.TypeAAAA, dnsmessage.TypePTR, dnsmessage.TypeTXT, dnsmessage.TypeALL} {
		for _, n := range []string{"ok.test.", "evil.test.", "1.0.18.198.in-addr.arpa.", "."} {
			m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7}, Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName(n), Type: typ, Class: dnsmessage.ClassINET}}}
			b, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b, false)
			f.Add(b, true)
		}
	}
	pol := policy(f, Rules{Mode: ModeList, Hosts: []string{"ok.test"}})
	f.Fuzz(func(t *testing.T, query []byte, tcp bool) {
		d := &dns{policy: pol, fakes: newFakes(), fake: true, resolver: &net.Resolver{}, blocked: newBlockedLog(nil)}
		reply := d.answer(t.Context(), query, tcp)
		if reply == nil {
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(reply); err != nil {
			t.Fatalf("the reply can't be read: %v", err)
		}
		if !m.Response || len(query) < 2 || m.ID != uint16(query[0])<<8|uint16(query[1]) || !tcp && len(reply) > dnsUDPSize {
			t.Fatalf("reply: %+v", m.Header)
		}
		for _, r := range m.Answers {
			if n := canonical(m.Questions[0].Name.String()); n != "ok.test" && r.Header.Type != dnsmessage.TypePTR {
				t.Fatalf("%q has an answer", n)
			}
		}
	})
}

// FuzzPacket: no bytes from the box crash the reader, and what it lets pass comes from the box and goes to one machine.
func FuzzPacket(f *testing.F) {
	src4, src6 := guest.NetAddr4.Addr(), guest.NetAddr6.Addr()
	f.Add(append(ipHead(src4, netip.MustParseAddr("8.8.8.8"), unix.IPPROTO_ICMP, 8), 8, 0, 0, 0, 0, 0, 0, 0))
	f.Add(append(ipHead(src6, netip.MustParseAddr("2001:4860::1"), unix.IPPROTO_ICMPV6, 8), 128, 0, 0, 0, 0, 0, 0, 0))
	f.Add(udpHead(netip.AddrPortFrom(src4, 1), netip.MustParseAddrPort("9.9.9.9:53")))
	f.Add([]byte{0x4f})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, ok := parsePacket(b)
		if !ok {
			return
		}
		if p.src != src4 && p.src != src6 || p.src.Is4() != p.dst.Is4() || p.dst.IsMulticast() {
			t.Fatalf("%s to %s passes", p.src, p.dst)
		}
		if p.ping() || !p.control() {
			if m := prohibited(p.raw, p.src, p.dst); len(m) > 1280 || checksum(0, m[:20]) != 0 && p.src.Is4() {
				t.Fatalf("message: %x", m)
			}
		}
	})
}

// TestProhibited: a kernel checks the messages' sums, so they are checked here.
func TestProhibited(t *testing.T) {
	for _, c := range [][2]string{{"10.0.2.100", "8.8.8.8"}, {"fd00::100", "2001:4860:4860::8888"}} {
		src, dst := netip.MustParseAddr(c[0]), netip.MustParseAddr(c[1])
		m := prohibited(udpHead(netip.AddrPortFrom(src, 1000), netip.AddrPortFrom(dst, 53)), src, dst)
		if src.Is4() {
			if checksum(0, m[:20]) != 0 || checksum(0, m[20:]) != 0 {
				t.Errorf("%x", m)
			}
			continue
		}
		pseudo := append(append([]byte{}, m[8:40]...), 0, 0, byte((len(m)-40)>>8), byte(len(m)-40), 0, 0, 0, unix.IPPROTO_ICMPV6)
		if checksum(sum(0, pseudo), m[40:]) != 0 {
			t.Errorf("%x", m)
		}
	}
}

// TestFakes: names keep their addresses until so many others came that theirs are needed.
func TestFakes(t *testing.T) {
	f := newFakes()
	a := f.addr4("a.test")
	for i := range maxFakes - 1 {
		f.addr4(string(rune('a'+i%26)) + netip.AddrFrom4([4]byte{1, 2, byte(i >> 8), byte(i)}).String())
	}
	if name, is := f.name(netip.AddrFrom4(a)); name != "a.test" || !is || f.addr4("a.test") != a {
		t.Errorf("a.test is now %q", name)
	}
	f.addr4("last.test")
	if name, _ := f.name(netip.AddrFrom4(a)); name != "last.test" {
		t.Errorf("the oldest address stands for %q", name)
	}
	if f.addr4("a.test") == a || len(f.names) != maxFakes || len(f.byKey) != maxFakes {
		t.Errorf("%d names, %d numbers", len(f.byKey), len(f.names))
	}
	for _, s := range []string{"198.17.255.255", "198.20.0.0", "fd00:c613::1", "8.8.8.8"} {
		if _, is := f.name(netip.MustParseAddr(s)); is {
			t.Errorf("%s counts as fake", s)
		}
	}
}
