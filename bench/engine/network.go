package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// clientVar makes this program the client, of the server at its value.
const clientVar = "AGENTENV_BENCH_SERVER"

// What a client does: it connects and reads one byte so often, then reads so many bytes at once.
const (
	connects = 1000
	download = 512 << 20
)

// way is what a client found.
type way struct {
	P50, P99 time.Duration // of a connection and its first byte
	Read     time.Duration // of the download
}

// client writes a way as JSON.
func client(addr string) int {
	w, err := travel(addr)
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(w)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func travel(addr string) (w way, err error) {
	var took []time.Duration
	one := make([]byte, 1)
	for range connects {
		begin := time.Now()
		c, err := net.Dial("tcp", addr)
		if err != nil {
			return w, err
		}
		_, err = io.ReadFull(c, one)
		took = append(took, time.Since(begin))
		c.Close()
		if err != nil {
			return w, err
		}
	}
	w.P50, w.P99 = quantile(took, 0.5), quantile(took, 0.99)
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return w, err
	}
	defer c.Close()
	begin := time.Now()
	_, err = io.CopyN(io.Discard, c, download)
	w.Read = time.Since(begin)
	return w, err
}

// ways measures the way from a sandbox to a server of the host, by each kind of network.
func (b *bench) ways(ctx context.Context) (_ string, err error) {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return "", err
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		serve(l)
	}()
	defer func() {
		l.Close()
		<-served
	}()
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return "", err
	}
	var text strings.Builder
	text.WriteString("| the way to a server of the host | connect and a byte, p50 µs | p99 µs | download Gbit/s |\n|---|---|---|---|\n")
	for _, kind := range []struct {
		name string
		run  func() (way, error)
	}{
		{"no sandbox", func() (way, error) { return travel("127.0.0.1:" + port) }},
		{"`local`", func() (way, error) { return b.inBox(ctx, b.local, port) }},
		{"`docker` of this program", func() (way, error) { return b.inBox(ctx, b.docker, port) }},
		{"`docker run`, its bridge", func() (way, error) { return b.onBridge(ctx, self, port) }},
	} {
		w, err := kind.run()
		if err != nil {
			return "", fmt.Errorf("%s: %w", kind.name, err)
		}
		fmt.Fprintf(&text, "| %s | %d | %d | %.1f |\n", kind.name, w.P50.Microseconds(), w.P99.Microseconds(), download*8/w.Read.Seconds()/1e9)
	}
	return text.String(), nil
}

// serve writes to each connection until that ends.
func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for b := make([]byte, 256<<10); err == nil; _, err = c.Write(b) {
			}
		}()
	}
}

func (b *bench) inBox(ctx context.Context, p sandbox.Provider, port string) (w way, err error) {
	info, err := p.Create(ctx, sandbox.Spec{Tied: true, Self: true, Network: sandbox.NetAllow, Egress: sandbox.Egress{CIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, p.Destroy(context.WithoutCancel(ctx), info.ID)) }()
	box, err := p.Connect(ctx, info.ID)
	if err != nil {
		return w, err
	}
	defer box.Close()
	r, err := guest.Output(ctx, box, guest.Command{Argv: []string{sandbox.SelfPath}, Env: []string{clientVar + "=" + net.JoinHostPort(guest.Gateway4.String(), port)}}, guest.Limits{})
	if err != nil {
		return w, err
	}
	if !r.Exit.OK() {
		return w, errors.New(r.Stderr.String())
	}
	return w, json.Unmarshal(r.Stdout.Bytes(), &w)
}

func (b *bench) onBridge(ctx context.Context, self, port string) (w way, err error) {
	route, err := dockerSays(ctx, "run", "--rm", tag, "ip", "route") // default via ADDRESS dev eth0
	if err != nil {
		return w, err
	}
	f := strings.Fields(route)
	if len(f) < 3 {
		return w, fmt.Errorf("the bridge has no gateway: %q", route)
	}
	out, err := dockerSays(ctx, "run", "--rm", "-v", self+":/self:ro", "-e", clientVar+"="+net.JoinHostPort(f[2], port), tag, "/self")
	if err != nil {
		return w, err
	}
	return w, json.Unmarshal([]byte(out), &w)
}
