package usernet

import (
	"net/netip"
	"strings"
	"testing"
)

func policy(t testing.TB, r Rules) *Policy {
	t.Helper()
	p, err := NewPolicy(r)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// notPublic are addresses that allow_all must not reach, in every spelling that a stack may accept.
var notPublic = []string{
	"0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "100.127.255.254", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1",
	"172.31.255.255", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7", "203.0.113.9",
	"224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
	"::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:0:10.0.0.1",
	"64:ff9b::10.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1", "2001::1", "2001:0:a00:1::", "2001:2::1", "2001:10::1", "2001:20::1",
	"2001:db8::1", "2002:7f00:1::", "2002:a00:1::1", "2002:0808:0808::1", "3fff::1", "5f00::1", "fc00::1", "fd00::1", "fd00:ec2::254", "fe80::1",
	"fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "4000::1", "8000::1",
}

var public = []string{
	"1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.1", "172.15.255.255", "172.32.0.0",
	"192.0.1.1", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255", "::ffff:8.8.8.8", "64:ff9b::808:808",
	"2001:4860:4860::8888", "2606:4700::1", "2a00::1", "2003::1",
}

func TestPublic(t *testing.T) {
	all := policy(t, Rules{Mode: ModeAll})
	for _, s := range notPublic {
		if a := netip.MustParseAddr(s); Public(a) || all.Addr(a, 443) != WhyPrivate || all.Resolved(a, 443) != WhyPrivate {
			t.Errorf("%s counts as public", s)
		}
	}
	for _, s := range public {
		if a := netip.MustParseAddr(s); !Public(a) || all.Addr(a, 443) != "" || all.Resolved(a, 443) != "" {
			t.Errorf("%s does not count as public", s)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address counts as public")
	}
}

func TestNames(t *testing.T) {
	p := policy(t, Rules{Mode: ModeList, Hosts: []string{"Example.ORG.", "*.pkg.example.net", "xn--bcher-kva.example"}})
	for name, want := range map[string]string{
		"example.org": "", "EXAMPLE.org.": "", "a.example.org": WhyHost, "example.org.evil.test": WhyHost, "notexample.org": WhyHost,
		"a.pkg.example.net": "", "b.a.pkg.example.net": "", "pkg.example.net": WhyHost, "xpkg.example.net": WhyHost, ".pkg.example.net": WhyName,
		"xn--bcher-kva.example": "", "bücher.example": WhyName, "": WhyName, ".": WhyName, "a..b": WhyName, "127.0.0.1": WhyName,
		"a b.pkg.example.net": WhyName, "a\x00.pkg.example.net": WhyName, strings.Repeat("a", 64) + ".pkg.example.net": WhyName,
		"x/../.pkg.example.net": WhyName,
	} {
		if got := p.Name(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if why := policy(t, Rules{Mode: ModeAll}).Name("anything.test"); why != "" {
		t.Error(why)
	}
}

func TestCIDRs(t *testing.T) {
	p := policy(t, Rules{
		Mode: ModeList, Ports: []uint16{443, 5432},
		CIDRs: []netip.Prefix{
			netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("8.0.0.0/8"), netip.MustParsePrefix("::ffff:192.168.7.0/120"), netip.MustParsePrefix("fd12::/16"),
		},
	})
	for _, c := range []struct {
		addr string
		port uint16
		want string
	}{
		{"10.1.2.3", 443, ""},
		{"10.1.2.3", 80, WhyPort},
		{"10.2.0.1", 443, WhyPrivate},
		{"::ffff:10.1.2.3", 5432, ""},
		{"8.8.8.8", 443, ""},
		{"9.9.9.9", 443, WhyAddress},
		{"192.168.7.9", 443, ""},
		{"192.168.8.9", 443, WhyPrivate},
		{"fd12::9", 443, ""},
		{"fd13::9", 443, WhyPrivate},
		{"64:ff9b::10.1.2.3", 443, ""},
		{"10.1.2.3", 0, WhyPort},
		{"fd12::9%lo", 443, WhyPrivate},
	} {
		if got := p.Addr(netip.MustParseAddr(c.addr), c.port); got != c.want {
			t.Errorf("%s port %d: %q, want %q", c.addr, c.port, got, c.want)
		}
	}
	// What holds the whole Internet opens nothing that is not public.
	wide := policy(t, Rules{Mode: ModeList, CIDRs: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0"), netip.MustParsePrefix("128.0.0.0/1")}})
	for _, s := range notPublic {
		if wide.Addr(netip.MustParseAddr(s), 1) == "" {
			t.Errorf("0.0.0.0/0 and ::/0 open %s", s)
		}
	}
	for _, s := range public {
		if why := wide.Addr(netip.MustParseAddr(s), 1); why != "" {
			t.Errorf("0.0.0.0/0 and ::/0 do not open %s: %s", s, why)
		}
	}
}

func TestRulesAreChecked(t *testing.T) {
	_, err := NewPolicy(Rules{Mode: ModeList, Hosts: []string{"*", "a.*.b", "10.0.0.1", "[::1]", "bad name", "ok.test"}, Ports: []uint16{0}, CIDRs: []netip.Prefix{{}}})
	if err == nil {
		t.Fatal("taken")
	}
	for _, want := range []string{`"*" is every host`, `"a.*.b" has a *`, `"10.0.0.1" is an address`, `"[::1]" is an address`, `"bad name" is no host name`, "port 0", "range is not valid"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not tell of %q", err, want)
		}
	}
	if _, err := NewPolicy(Rules{Mode: ModeAll, Hosts: []string{"a.test"}}); err == nil {
		t.Error("allow_all takes a list")
	}
	if _, err := NewPolicy(Rules{Mode: "open"}); err == nil {
		t.Error("an unknown mode is taken")
	}
}

// FuzzPolicy: no spelling of an address or a name gets past the rules.
func FuzzPolicy(f *testing.F) {
	for _, s := range append(notPublic, public...) {
		f.Add(s, netip.MustParseAddr(s).AsSlice(), uint16(443))
	}
	f.Add("*.example.org", []byte{10, 0, 0, 1}, uint16(0))
	all, _ := NewPolicy(Rules{Mode: ModeAll})
	f.Fuzz(func(t *testing.T, text string, raw []byte, port uint16) {
		if a, ok := netip.AddrFromSlice(raw); ok {
			public := Public(a)
			if public != Public(a.Unmap()) || public != Public(netip.AddrFrom16(a.As16())) {
				t.Fatalf("%v is judged by its spelling", a)
			}
			if (all.Addr(a, port) == "") != (public && port != 0) {
				t.Fatalf("allow_all on %v port %d", a, port)
			}
			if public && (a.IsLoopback() || a.IsPrivate() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.IsUnspecified()) {
				t.Fatalf("%v counts as public", a)
			}
		}
		p, err := NewPolicy(Rules{Mode: ModeList, Hosts: []string{text}})
		if err != nil {
			return
		}
		if p.Name("other.test") == "" && !strings.HasSuffix("other.test", strings.ToLower(strings.TrimPrefix(strings.TrimSuffix(text, "."), "*"))) {
			t.Fatalf("the host %q lets other.test out", text)
		}
		if strings.HasPrefix(text, "*.") {
			if name := "x" + text[1:]; p.Name(name) != "" {
				t.Fatalf("%q does not hold %q: %s", text, name, p.Name(name))
			}
			return
		}
		if p.Name(text) != "" {
			t.Fatalf("%q does not hold itself", text)
		}
	})
}

// A name that a libc reads as an address is none, whoever would resolve it: a proxy could be one that asks its libc.
func TestNumericNames(t *testing.T) {
	all, err := NewPolicy(Rules{Mode: ModeAll})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"2852039166", "127.1", "127.0.1", "0177.0.0.1", "0x7f.1", "0x7f000001", "0xA9.0xFE.0xA9.0xFE", "a.b.0x", "127.0.0.1", "127.0.0.1.", "2852039166.", "x.1",
	} {
		if got := canonical(name); got != "" {
			t.Errorf("%s is the name %q", name, got)
		}
		if all.Name(name) == "" {
			t.Errorf("%s is let through", name)
		}
		if _, err := NewPolicy(Rules{Mode: ModeList, Hosts: []string{name}}); err == nil {
			t.Errorf("%s is taken for a host of an allowlist", name)
		}
	}
	for _, name := range []string{"1.example.org", "0x7f.example.org", "a1", "1a", "x.0xg", "3com"} {
		if canonical(name) != name {
			t.Errorf("%s is no name", name)
		}
	}
}
