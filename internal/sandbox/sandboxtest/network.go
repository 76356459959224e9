package sandboxtest

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// reach dials from inside the box.
func reach(t *testing.T, b guest.Box, addr string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	c, err := b.Dial(ctx, "tcp", addr)
	if err == nil {
		c.Close()
	}
	return err
}

// innerPlaces are where no box gets that nobody has let there.
var innerPlaces = []string{"169.254.169.254:80", "10.0.0.1:80", "192.168.0.1:80", "100.64.0.1:80", "[fd00:ec2::254]:80", "[::ffff:169.254.169.254]:80"}

// networks: a policy holds or is refused before anything is made, and the policy that holds is in the box's Info.
func networks(t *testing.T, s *suite) {
	p := s.provider(t)
	host, err := net.Listen("tcp", "127.0.0.1:0") // of the host: no box gets there
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	forbidden := append([]string{host.Addr().String()}, innerPlaces...)
	for _, c := range []struct {
		name   string
		change func(*sandbox.Spec)
		more   []string
		held   bool
	}{
		{"none", func(s *sandbox.Spec) { s.Network = sandbox.NetNone }, []string{"1.1.1.1:443", "[2606:4700:4700::1111]:443"}, true},
		{"allow_all", func(s *sandbox.Spec) { s.Network = sandbox.NetAllowAll }, nil, s.f.Egress},
		{"allowlist", func(s *sandbox.Spec) {
			s.Network = sandbox.NetAllow
			s.Egress = sandbox.Egress{Hosts: []string{"*.invalid"}, CIDRs: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Ports: []uint16{443}}
		}, []string{"1.1.1.1:443", "192.0.2.1:80", "[2606:4700:4700::1111]:443"}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			info, err := p.Create(t.Context(), s.spec(c.change))
			if errors.Is(err, sandbox.ErrUnsupported) && c.name != "none" {
				if infos, err := p.List(t.Context()); err != nil || len(infos) != 0 {
					t.Errorf("a refused box is listed: %v, %v", infos, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer p.Destroy(t.Context(), info.ID)
			if info.Network != c.name {
				t.Errorf("its policy is recorded as %q", info.Network)
			}
			if !c.held || !s.f.Real {
				return
			}
			b := connect(t, p, info.ID)
			for _, addr := range append(c.more, forbidden...) {
				if err := reach(t, b, addr); err == nil {
					t.Errorf("%s is reached", addr)
				}
			}
		})
	}
}

// published: a port of a box is on the host's loopback, without a network too, and only there where it was asked for.
func published(t *testing.T, s *suite) {
	p := s.provider(t)
	info, err := p.Create(t.Context(), s.spec(func(s *sandbox.Spec) { s.Publish = []sandbox.Port{{Box: 8765}} }))
	if errors.Is(err, sandbox.ErrUnsupported) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer p.Destroy(t.Context(), info.ID)
	if len(info.Published) != 1 || info.Published[0].Box != 8765 || info.Published[0].Host == 0 {
		t.Fatalf("published: %+v", info.Published)
	}
	b := connect(t, p, info.ID)
	l, err := b.Listen(t.Context(), "tcp", "0.0.0.0:8765")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	c, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(info.Published[0].Host))), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("through")); err != nil {
		t.Fatal(err)
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "through" {
		t.Errorf("through the port came %q, %v", got, err)
	}
}
