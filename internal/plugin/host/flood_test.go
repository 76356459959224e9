package host_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/sdk/plugin"
)

// floodRole is the variable that tells a plugin that floods with what.
const floodRole = "PLAY_FLOOD"

// playFlood comes up, reads nothing more, and says one thing as often as it can.
func playFlood(with string) {
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	out := bufio.NewWriterSize(os.Stdout, 1<<20)
	_, _ = fmt.Fprintln(out, `{"jsonrpc":"2.0","id":1,"result":{"protocol_version":1,"plugin":{"name":"x","version":"1"}}}`)
	line := map[string]string{
		"accepted": `{"jsonrpc":"2.0","method":"sandbox/accepted","params":{"listener":"none","stream":"p%d"}}`,
		"requests": `{"jsonrpc":"2.0","id":"r%d","method":"host/secret.get","params":{"call":"c-1","key":"x"}}`,
		"answers":  `{"jsonrpc":"2.0","id":"a%d","result":{}}`,
		"data":     `{"jsonrpc":"2.0","method":"stream/data","params":{"stream":"p%d","data":"AAAA"}}`,
		"costs":    `{"jsonrpc":"2.0","method":"spend","params":{"call":"c-1","usd":1,"input_tokens":%d}}`,
		"fields":   `{"jsonrpc":"2.0","method":"log","params":{"call":"c-1","level":"info","message":"%d","fields":{"x":"` + strings.Repeat("x", 8<<20) + `"}}}`,
		"nobody's": `{"jsonrpc":"2.0","method":"log","params":{"level":"info","message":"%d","fields":{"x":"` + strings.Repeat("x", 8<<20) + `"}}}`,
	}[with]
	for i := 0; ; i++ {
		if _, err := fmt.Fprintf(out, line+"\n", i); err != nil {
			return
		}
	}
}

// What a plugin says without end, while it reads nothing, takes neither memory nor goroutines without end, and ends with it.
func TestFloods(t *testing.T) {
	for _, with := range []string{"accepted", "requests", "answers", "data", "costs", "fields", "nobody's"} {
		t.Run(with, func(t *testing.T) {
			r := start(t, "floods", nil, floodRole+"="+with)
			begun := runtime.NumGoroutine()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			spent, over := 0, false // costs are booked one at a time, and none after the call
			most, heap := 0, uint64(0)
			watched := make(chan struct{})
			go func() {
				defer close(watched)
				for ctx.Err() == nil {
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					most, heap = max(most, runtime.NumGoroutine()), max(heap, m.HeapAlloc)
					time.Sleep(10 * time.Millisecond)
				}
			}()
			slow := func(plugin.Spend) {
				if over {
					t.Error("a cost is booked after the call")
				}
				spent++
				time.Sleep(time.Millisecond)
			}
			err := r.Call(ctx, "step/execute", &host.Caller{Spend: slow}, func(call string) any { // it is up now
				time.AfterFunc(200*time.Millisecond, cancel)
				return map[string]any{"call": call}
			}, nil)
			cancel()
			over = true
			<-watched
			if err == nil {
				t.Error("it answered")
			}
			if most > begun+2*1024 || heap > 256<<20 {
				t.Errorf("%d goroutines, %d MiB", most-begun, heap>>20)
			}
			if with == "costs" && spent == 0 {
				t.Error("no cost was booked")
			}
			t.Logf("%d goroutines, %d MiB", most-begun, heap>>20)
		})
	}
}
