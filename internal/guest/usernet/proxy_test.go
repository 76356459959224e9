package usernet

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// corporate is a proxy as companies have: it resolves names itself, breaks TLS open with a CA of its own, and serves all from one place.
type corporate struct {
	addr  string
	roots *x509.CertPool
	mu    sync.Mutex
	asked []string
}

func newCorporate(t *testing.T, auth string) *corporate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "corporate CA"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	p := &corporate{roots: x509.NewCertPool()}
	p.roots.AddCert(ca)
	forge := &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
		leaf := &x509.Certificate{SerialNumber: big.NewInt(2), DNSNames: []string{h.ServerName}, NotAfter: time.Now().Add(time.Hour)}
		der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), key)
		return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = l.Addr().String()
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				p.tunnel(c, auth, forge)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Wait()
	})
	return p
}

func (p *corporate) tunnel(c net.Conn, auth string, forge *tls.Config) {
	r := bufio.NewReader(c)
	req, err := http.ReadRequest(r)
	if err != nil {
		return
	}
	if req.Method != http.MethodConnect || req.Header.Get("Proxy-Authorization") != auth {
		_, _ = io.WriteString(c, "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
		return
	}
	p.mu.Lock()
	p.asked = append(p.asked, req.Host)
	p.mu.Unlock()
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection established\r\nVia: corp\r\n\r\n")
	tc := tls.Server(c, forge)
	defer tc.Close()
	_, _ = io.Copy(tc, tc)
}

func (p *corporate) hosts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.asked...)
}

// TestProxy: behind a proxy with its own CA names go through by CONNECT, unresolved; TLS inside holds with that CA and with no other.
func TestProxy(t *testing.T) {
	const auth = "Basic dXNlcjpzM2NyZXQ="
	p := newCorporate(t, auth)
	inner := echo(t, "tcp4", "127.0.0.1:0")
	hosts := &names{} // knows nothing of the world outside
	hosts.set("inner.corp.test", "127.0.0.1")
	hosts.set("secret.corp.test", "10.9.9.9")
	server := &guest.ProxyServer{Addr: p.addr, Auth: auth}
	b := serve(t, Config{
		Resolver: hosts.resolver(t), Proxy: guest.Proxy{Plain: server, Secure: server, Except: []string{".corp.test"}},
		Policy: policy(t, Rules{Mode: ModeAll}),
	})
	addrs, err := b.lookup("ip4", "pypi.test")
	if err != nil {
		t.Fatal(err)
	}
	shake := func(roots *x509.CertPool) error {
		c, err := b.dial(netip.AddrPortFrom(addrs[0].Unmap(), 443))
		if err != nil {
			return err
		}
		defer c.Close()
		tc := tls.Client(c, &tls.Config{RootCAs: roots, ServerName: "pypi.test"})
		c.SetDeadline(time.Now().Add(5 * time.Second))
		if _, err := tc.Write([]byte("hello")); err != nil {
			return err
		}
		buf := make([]byte, 5)
		_, err = io.ReadFull(tc, buf)
		return err
	}
	if err := shake(p.roots); err != nil {
		t.Errorf("with the proxy's CA: %v", err)
	}
	if err := shake(x509.NewCertPool()); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("without it: %v", err)
	}
	// What this side knows to be private is neither dialled nor asked of the proxy.
	for _, host := range []string{"inner.corp.test", "secret.corp.test"} {
		addrs, err := b.lookup("ip4", host)
		if err != nil {
			t.Fatal(err)
		}
		if err := b.try(netip.AddrPortFrom(addrs[0].Unmap(), inner.Port())); err == nil {
			t.Errorf("%s is reached", host)
		}
	}
	if got := p.hosts(); len(got) != 2 || got[0] != "pypi.test:443" {
		t.Errorf("the proxy was asked for %q", got)
	}
	b.stop()
	if text := b.log.buf.String(); strings.Contains(text, "s3cret") || strings.Contains(text, auth) {
		t.Errorf("the log holds the password: %s", text)
	}
}

func TestProxyRefuses(t *testing.T) {
	p := newCorporate(t, "Basic right")
	s := &proxyServer{guest.ProxyServer{Addr: p.addr, Auth: "Basic wrong"}}
	_, err := s.connect(t.Context(), target{name: "a.test", port: 443})
	if err == nil || err.Error() != "the proxy refuses with status 407" {
		t.Errorf("%v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if _, err := (&proxyServer{guest.ProxyServer{Addr: silent.Addr().String()}}).connect(ctx, target{name: "a.test", port: 1}); err == nil {
		t.Error("a silent proxy lets through")
	}
}

func TestProxyExceptions(t *testing.T) {
	addr := func(s string) target { return target{addr: netip.MustParseAddr(s), port: 443} }
	name := func(s string) target { return target{name: s, port: 443} }
	for _, c := range []struct {
		entry string
		t     target
		want  bool
	}{
		{"*", name("a.test"), true},
		{"", name("a.test"), false},
		{"corp.test", name("corp.test"), true},
		{"corp.test", name("a.corp.test"), true},
		{".corp.test", name("corp.test"), false},
		{".corp.test", name("a.corp.test"), true},
		{"*.corp.test", name("a.corp.test"), true},
		{"corp.test", name("xcorp.test"), false},
		{"corp.test:443", name("a.corp.test"), true},
		{"corp.test:80", name("a.corp.test"), false},
		{"10.0.0.0/8", addr("10.1.2.3"), true},
		{"10.0.0.0/8", addr("11.1.2.3"), false},
		{"10.1.2.3", addr("::ffff:10.1.2.3"), true},
		{"[::1]:443", addr("::1"), true},
		{" CORP.test ", name("corp.test"), true},
		{"10.0.0.0/8", name("a.test"), false},
	} {
		if got := excepts(c.entry, c.t); got != c.want {
			t.Errorf("%q on %s: %v", c.entry, c.t, got)
		}
	}
}

// FuzzTunnelHead: whatever a proxy answers, no more than the bound is read, and only a 2xx opens the tunnel.
func FuzzTunnelHead(f *testing.F) {
	for _, s := range []string{"HTTP/1.1 200 OK\r\n\r\nrest", "HTTP/1.1 407 x\r\n\r\n", "SSH-2.0", "HTTP/1.1 200", "HTTP/1.0 2\n\n", "HTTP/1.1 200 " + strings.Repeat("x", 20<<10)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		src := bytes.NewReader(b)
		if err := readTunnelHead(bufio.NewReaderSize(src, maxProxyHead)); err == nil && !bytes.Contains(b, []byte(" 2")) {
			t.Fatalf("%q opens a tunnel", b)
		}
		if read := len(b) - src.Len(); read > 2*maxProxyHead {
			t.Fatalf("%d bytes were read", read)
		}
	})
}
