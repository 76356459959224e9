package local_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// netVar makes the test program a client that measures, inside a box or beside it.
const netVar = "AGENTENV_TEST_NET"

// netJob is what that client does; the server is a benchServer.
type netJob struct {
	Addr string
	Do   string // "connect", "rtt", "up" or "down"
	N    int    // times, or bytes
}

// netResult is what it found.
type netResult struct {
	P50, P99 time.Duration
	Total    time.Duration
}

func measure(text string) int {
	var j netJob
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return fail(err)
	}
	r, err := j.run()
	if err != nil {
		return fail(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return fail(err)
	}
	return 0
}

func (j netJob) run() (r netResult, err error) {
	begin := time.Now()
	defer func() { r.Total = time.Since(begin) }()
	var took []time.Duration
	one := func(f func() error) {
		if err == nil {
			at := time.Now()
			err = f()
			took = append(took, time.Since(at))
		}
	}
	ping := func(c net.Conn) error {
		b := []byte{'p'}
		if _, err := c.Write(b); err != nil {
			return err
		}
		_, err := io.ReadFull(c, b)
		return err
	}
	switch j.Do {
	case "connect":
		for range j.N {
			one(func() error {
				c, err := net.Dial("tcp", j.Addr)
				if err != nil {
					return err
				}
				defer c.Close()
				return ping(c)
			})
		}
	case "rtt":
		c, err := net.Dial("tcp", j.Addr)
		if err != nil {
			return r, err
		}
		defer c.Close()
		for range j.N {
			one(func() error { return ping(c) })
		}
	default:
		return r, j.bulk()
	}
	slices.Sort(took)
	if len(took) > 0 {
		r.P50, r.P99 = took[len(took)/2], took[len(took)*99/100]
	}
	return r, err
}

func (j netJob) bulk() error {
	c, err := net.Dial("tcp", j.Addr)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintf(c, "%s %d\n", j.Do, j.N); err != nil {
		return err
	}
	if j.Do == "down" {
		n, err := io.Copy(io.Discard, c)
		if err == nil && int(n) != j.N {
			err = fmt.Errorf("%d bytes of %d", n, j.N)
		}
		return err
	}
	buf := make([]byte, 128<<10)
	for left := j.N; left > 0; {
		n, err := c.Write(buf[:min(left, len(buf))])
		if err != nil {
			return err
		}
		left -= n
	}
	b := make([]byte, 1) // the server has all of it
	_, err = io.ReadFull(c, b)
	return err
}

// benchServer is on the host's loopback: it echoes single bytes, and sends or takes as many as it is told.
func benchServer(t testing.TB) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns sync.WaitGroup
	conns.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			conns.Go(func() {
				defer c.Close()
				benchServe(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		conns.Wait()
	})
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

func benchServe(c net.Conn) {
	var b [1]byte
	var n int
	for {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return
		}
		switch b[0] {
		case 'p':
			if _, err := c.Write(b[:]); err != nil {
				return
			}
		case 'u':
			if _, err := fmt.Fscanf(c, "p %d\n", &n); err == nil {
				_, _ = io.CopyN(io.Discard, c, int64(n))
				_, _ = c.Write(b[:])
			}
			return
		case 'd':
			if _, err := fmt.Fscanf(c, "own %d\n", &n); err == nil {
				buf := make([]byte, 128<<10)
				for left := n; left > 0; {
					k, err := c.Write(buf[:min(left, len(buf))])
					if err != nil {
						return
					}
					left -= k
				}
			}
			return
		}
	}
}

// BenchmarkNetworkStart is from the call of Create to its answer for a box with a network.
func BenchmarkNetworkStart(b *testing.B) {
	root := stateRoot(b)
	p := openAt(b, root)
	warm(b, p)
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		info, err := p.Create(b.Context(), sandbox.Spec{Tied: true, Network: sandbox.NetAllowAll})
		if err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
		b.StopTimer()
		if err := p.Destroy(b.Context(), info.ID); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkNetwork compares a program in a box that reaches a server of the host's loopback through the box's network with the same
// program outside.
func BenchmarkNetwork(b *testing.B) {
	port := int(benchServer(b))
	p := openAt(b, stateRoot(b))
	info, err := p.Create(b.Context(), sandbox.Spec{
		Tied: true, Self: true, Network: sandbox.NetAllow, Egress: sandbox.Egress{CIDRs: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}},
	})
	if err != nil {
		b.Fatal(err)
	}
	box, err := p.Connect(b.Context(), info.ID)
	if err != nil {
		b.Fatal(err)
	}
	defer box.Close()
	inBox := func(j netJob) (r netResult, err error) {
		text, err := json.Marshal(j)
		if err != nil {
			return r, err
		}
		out, err := guest.Output(b.Context(), box, guest.Command{Argv: []string{sandbox.SelfPath}, Env: []string{netVar + "=" + string(text)}}, guest.Limits{})
		if err != nil {
			return r, err
		}
		if !out.Exit.OK() {
			return r, fmt.Errorf("%s", out.Stderr.Bytes())
		}
		return r, json.Unmarshal(out.Stdout.Bytes(), &r)
	}
	const bytes = 1 << 30
	for _, where := range []string{"bare", "box"} {
		for _, j := range []netJob{{Do: "connect", N: 1000}, {Do: "rtt", N: 5000}, {Do: "up", N: bytes}, {Do: "down", N: bytes}} {
			run := inBox
			switch where {
			case "bare":
				j.Addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
				run = func(j netJob) (netResult, error) { return j.run() }
			case "box":
				j.Addr = net.JoinHostPort(guest.Gateway4.String(), strconv.Itoa(port))
			}
			b.Run(j.Do+"/"+where, func(b *testing.B) {
				for b.Loop() {
					r, err := run(j)
					if err != nil {
						b.Fatal(err)
					}
					if r.P50 > 0 {
						b.ReportMetric(float64(r.P50.Microseconds()), "p50-µs")
						b.ReportMetric(float64(r.P99.Microseconds()), "p99-µs")
					} else {
						b.ReportMetric(float64(j.N)*8/r.Total.Seconds()/1e9, "Gbit/s")
					}
				}
			})
		}
	}
}
