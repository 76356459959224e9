// Package plugintest is a host for tests of plugins: it speaks to a plugin as AgentEnv does, without starting a process, and answers what the plugin asks from
// functions of the test.
package plugintest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// Answer serves one host call ("host/secret.get"). An error that isn't an *rpc.Error is answered as a refusal.
type Answer func(params json.RawMessage) (any, error)

// Host is connected to one plugin. Its methods may be called from several goroutines.
type Host struct {
	tb   testing.TB
	peer *rpc.Peer

	mu      sync.Mutex
	answers map[string]Answer
	logs    []plugin.Line
	spent   []plugin.Spend
	calls   int
}

// New connects to a plugin until the test ends.
func New(tb testing.TB, p *plugin.Plugin) *Host {
	tb.Helper()
	toPlugin, fromHost := io.Pipe()
	toHost, fromPlugin := io.Pipe()
	h := &Host{tb: tb, answers: map[string]Answer{}}
	h.peer = rpc.New(toHost, fromHost, h)
	var both sync.WaitGroup
	ctx := context.WithoutCancel(tb.Context())
	both.Go(func() { _ = h.peer.Run(ctx) })
	both.Go(func() {
		_ = p.Serve(ctx, toPlugin, fromPlugin)
		_ = fromPlugin.Close()
	})
	tb.Cleanup(func() {
		_ = fromHost.Close()
		both.Wait()
	})
	var got plugin.Initialized
	err := h.peer.Call(tb.Context(), plugin.MethodInitialize, plugin.Initialize{
		Versions: []int{plugin.Version}, Host: plugin.Named{Name: "plugintest", Version: "1"}, TempDir: tb.TempDir(),
	}, &got, nil)
	if err != nil || got.Version != plugin.Version {
		tb.Fatalf("the plugin doesn't start: %v, version %d", err, got.Version)
	}
	return h
}

// Serve sets what a host call answers.
func (h *Host) Serve(method string, a Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers[method] = a
}

// Handle is the host's side of calls.
func (h *Host) Handle(_ context.Context, method string, params json.RawMessage) (any, error) {
	h.mu.Lock()
	a := h.answers[method]
	h.mu.Unlock()
	if a == nil {
		return nil, rpc.Errorf(rpc.CodeNoMethod, "the test doesn't serve %s", method)
	}
	out, err := a(params)
	if err != nil && rpc.CodeOf(err) == 0 {
		err = rpc.Errorf(plugin.CodeRefused, "%v", err)
	}
	return out, err
}

// Notify keeps logs and costs.
func (h *Host) Notify(method string, params json.RawMessage) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch method {
	case plugin.NotifyLog:
		var l plugin.Line
		if json.Unmarshal(params, &l) == nil {
			h.logs = append(h.logs, l)
		}
	case plugin.NotifySpend:
		var s plugin.Spend
		if json.Unmarshal(params, &s) == nil {
			h.spent = append(h.spent, s)
		}
	}
}

// Logs are the lines that the plugin has logged, and Spent the costs that it has booked.
func (h *Host) Logs() []plugin.Line {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]plugin.Line{}, h.logs...)
}

// Spent are the costs that the plugin has booked.
func (h *Host) Spent() []plugin.Spend {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]plugin.Spend{}, h.spent...)
}

// Result is what a step left.
type Result struct {
	Diff []plugin.Op
	// Context is the context document with the diff in it.
	Context map[string]any
	// Err is why the step failed, Failure what is known of that.
	Err     error
	Failure plugin.Failure
}

// Run executes a step: step is its document, context the context document before it (nil for an empty one). Both are anything that JSON makes an object of.
func (h *Host) Run(ctx context.Context, step, before any) Result {
	h.tb.Helper()
	var out Result
	doc, err := json.Marshal(step)
	if err != nil {
		h.tb.Fatal(err)
	}
	if before == nil {
		before = struct{}{}
	}
	whole, err := json.Marshal(before)
	if err != nil {
		h.tb.Fatal(err)
	}
	var typ struct {
		Type string `json:"type"`
	}
	if err := errors.Join(json.Unmarshal(doc, &typ), json.Unmarshal(whole, &out.Context)); err != nil {
		h.tb.Fatal(err)
	}
	var answer plugin.Diffs
	out.Err = h.peer.Call(ctx, plugin.MethodExecute, plugin.Execute{
		Call: h.token(), Entry: plugin.Entry{Group: plugin.GroupSteps, Name: typ.Type}, Run: "@local/test/run", Attempt: 1, Trial: 1, Step: doc, Context: whole,
	}, &answer, nil)
	out.Diff = answer.Diff
	if e, ok := errors.AsType[*rpc.Error](out.Err); ok && e.Code == plugin.CodeFailed {
		if err := json.Unmarshal(e.Data, &out.Failure); err != nil {
			h.tb.Errorf("what the plugin says of the failure can't be read: %v", err)
		}
		out.Diff = out.Failure.Diff
	}
	for _, op := range out.Diff {
		apply(h.tb, out.Context, op)
	}
	return out
}

// Check is what the plugin finds wrong with a step's document, and why it couldn't run.
func (h *Host) Check(ctx context.Context, step any) []plugin.Problem {
	h.tb.Helper()
	doc, err := json.Marshal(step)
	if err != nil {
		h.tb.Fatal(err)
	}
	var typ struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(doc, &typ); err != nil {
		h.tb.Fatal(err)
	}
	var all []plugin.Problem
	for _, method := range []string{plugin.MethodCheck, plugin.MethodPreflight} {
		var out plugin.Problems
		if err := h.peer.Call(ctx, method, plugin.Check{Entry: plugin.Entry{Group: plugin.GroupSteps, Name: typ.Type}, Step: doc}, &out, nil); err != nil {
			h.tb.Fatal(err)
		}
		all = append(all, out.Problems...)
	}
	return all
}

// Call asks the plugin anything that the protocol has.
func (h *Host) Call(ctx context.Context, method string, params, result any) error {
	return h.peer.Call(ctx, method, params, result, nil)
}

func (h *Host) token() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls++
	return "test-" + strings.Repeat("i", h.calls)
}

// apply makes one change of a document.
func apply(tb testing.TB, doc map[string]any, op plugin.Op) {
	tb.Helper()
	names := strings.Split(op.Path, "/")
	at := doc
	for _, name := range names[:len(names)-1] {
		next, ok := at[plugin.Unescape(name)].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[plugin.Unescape(name)] = next
		}
		at = next
	}
	last := plugin.Unescape(names[len(names)-1])
	var v any
	if op.Op != plugin.OpUnset {
		if err := json.Unmarshal(op.Value, &v); err != nil {
			tb.Fatalf("the change of %s can't be read: %v", op.Path, err)
		}
	}
	switch op.Op {
	case plugin.OpSet:
		at[last] = v
	case plugin.OpAppend:
		list, _ := at[last].([]any)
		at[last] = append(list, v)
	case plugin.OpUnset:
		delete(at, last)
	default:
		tb.Fatalf("there is no change called %q", op.Op)
	}
}
