package usernet

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// proxy is the host's way out: TCP flows go through it by CONNECT, with the name where there is one.
type proxy struct {
	guest.Proxy
}

// set tells whether there is any proxy: names are its to resolve then.
func (p *proxy) set() bool { return p.Plain != nil || p.Secure != nil }

// server is the proxy for t; nil: it is dialled directly.
func (p *proxy) server(t target) *proxyServer {
	s := p.Secure
	if t.port == 80 {
		s = p.Plain
	}
	if s == nil {
		return nil
	}
	for _, e := range p.Except {
		if excepts(e, t) {
			return nil
		}
	}
	return &proxyServer{*s}
}

// excepts tells whether an entry of NO_PROXY holds t: "*", a range, an address, or a name with all below it; each but the first two may
// carry a port.
func excepts(entry string, t target) bool {
	entry = strings.ToLower(strings.TrimSpace(entry))
	if entry == "" {
		return false
	}
	if entry == "*" {
		return true
	}
	if c, err := netip.ParsePrefix(entry); err == nil {
		return t.name == "" && c.Contains(t.addr.Unmap())
	}
	if host, port, err := net.SplitHostPort(entry); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || uint16(n) != t.port {
			return false
		}
		entry = host
	}
	if a, err := netip.ParseAddr(strings.Trim(entry, "[]")); err == nil {
		return t.name == "" && a.Unmap() == t.addr.Unmap()
	}
	below, only := strings.CutPrefix(strings.TrimPrefix(entry, "*"), ".")
	return t.name != "" && (strings.HasSuffix(t.name, "."+below) || !only && t.name == below)
}

// proxyServer is one proxy.
type proxyServer struct{ guest.ProxyServer }

// maxProxyHead bounds what a proxy may answer before the tunnel stands.
const maxProxyHead = 16 << 10

// connect asks for a tunnel to t.
func (s *proxyServer) connect(ctx context.Context, t target) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", s.Addr)
	if err != nil {
		return nil, fmt.Errorf("reach the proxy: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	head := "CONNECT " + t.String() + " HTTP/1.1\r\nHost: " + t.String() + "\r\n"
	if s.Auth != "" {
		head += "Proxy-Authorization: " + s.Auth + "\r\n"
	}
	if _, err := c.Write([]byte(head + "\r\n")); err != nil {
		c.Close()
		return nil, fmt.Errorf("ask the proxy: %w", err)
	}
	r := bufio.NewReaderSize(c, maxProxyHead)
	if err := readTunnelHead(r); err != nil {
		c.Close()
		return nil, err
	}
	return &tunnel{Conn: c, r: r}, nil
}

// readTunnelHead reads a proxy's answer to CONNECT up to the first byte of the tunnel.
func readTunnelHead(r *bufio.Reader) error {
	left := maxProxyHead
	line := func() (string, error) {
		b, err := r.ReadSlice('\n')
		if left -= len(b); err == nil && left < 0 {
			err = bufio.ErrBufferFull
		}
		if err != nil {
			return "", fmt.Errorf("read the proxy's answer: %w", err)
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	}
	status, err := line()
	if err != nil {
		return err
	}
	proto, rest, _ := strings.Cut(status, " ")
	code, _, _ := strings.Cut(rest, " ")
	if !strings.HasPrefix(proto, "HTTP/1.") || len(code) != 3 {
		return fmt.Errorf("the proxy does not speak HTTP")
	}
	for {
		switch l, err := line(); {
		case err != nil:
			return err
		case l == "" && code[0] == '2':
			return nil
		case l == "":
			if n, err := strconv.Atoi(code); err == nil {
				return fmt.Errorf("the proxy refuses with status %d", n)
			}
			return fmt.Errorf("the proxy does not speak HTTP")
		}
	}
}

// tunnel is a connection whose first bytes may have come with the proxy's answer.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

func (t *tunnel) Read(b []byte) (int, error) { return t.r.Read(b) }

func (t *tunnel) CloseWrite() error { return t.Conn.(*net.TCPConn).CloseWrite() }

func (t *tunnel) SetLinger(sec int) error { return t.Conn.(*net.TCPConn).SetLinger(sec) }
