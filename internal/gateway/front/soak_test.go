//go:build soak

package front_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/gateway/front"
)

// resident is how much memory this process holds, in bytes.
func resident(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, rss int64
	if _, err := fmt.Sscan(string(b), &size, &rss); err != nil {
		t.Fatal(err)
	}
	return rss * int64(os.Getpagesize())
}

// TestSoakCalls: 100,000 calls by 16 clients, every hundredth with a large result, leave the heap where it was after the first thousand.
func TestSoakCalls(t *testing.T) {
	s := newServer(t, "cal", true)
	s.addBig("cal_big")
	log := filepath.Join(t.TempDir(), "calls.jsonl")
	_, srv := newGateway(t, front.Options{CallLog: log}, map[string]*server{"cal": s})
	run := func(each int) {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				c := begin(t, srv.URL)
				for i := range each {
					if i%1000 == 500 {
						c.call("tools/call", `{"name":"cal_big","arguments":{"bytes":3000000}}`)
					}
					if r := c.call("tools/call", `{"name":"cal_ping","arguments":{"text":"x"}}`); !strings.Contains(r, `"x"`) {
						t.Errorf("call %s", r)
					}
				}
				do(t, "DELETE", c.url, "", "Mcp-Session-Id", c.session)
			})
		}
		wg.Wait()
	}
	run(100)
	before, began := heap(), time.Now()
	run(100_000 / 16)
	grown := heap() - before
	t.Logf("100,000 calls in %v; the heap grew by %d KB, resident %d MB", time.Since(began).Round(time.Second), grown>>10, resident(t)>>20)
	if grown > 4<<20 {
		t.Errorf("the heap grew by %d KB", grown>>10)
	}
}
