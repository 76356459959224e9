package host

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// Func serves one host call. An error that it makes with Refuse is for people; others are told as defects. A refused call fails nothing by itself.
type Func func(ctx context.Context, c *Caller, params json.RawMessage) (any, error)

// Caller is who a host call is made for.
type Caller struct {
	Run, Step string
	// Distribution is whose program asks; "" for the Python host.
	Distribution string
	// Git: Distribution is the id of a git plugin.
	Git bool
	// Temp is the folder in which files are handed over, and Mine tells whether a path is inside it.
	Temp string
	Mine func(path string) bool
	Log  *slog.Logger
	// Spend books a cost of the step: one at a time, and none after the call. It may be nil.
	Spend func(plugin.Spend)
	// Late makes a call that was cancelled wait for the plugin's answer, and is given the result that came all the same; nil for an error. It may be nil.
	Late  func(result json.RawMessage)
	lines lines

	mu    sync.Mutex
	ended bool
	ends  []func()
}

// Defer has f called when the call ends, at once when it has ended.
func (c *Caller) Defer(f func()) {
	c.mu.Lock()
	ended := c.ended
	if !ended {
		c.ends = append(c.ends, f)
	}
	c.mu.Unlock()
	if ended {
		f()
	}
}

// close runs what was deferred.
func (c *Caller) close() {
	c.mu.Lock()
	c.ended = true
	ends := c.ends
	c.ends = nil
	c.mu.Unlock()
	for _, f := range ends {
		f()
	}
}

// Refuse is an answer of a host call that says why not, for people.
func Refuse(format string, args ...any) error { return rpc.Errorf(plugin.CodeRefused, format, args...) }
