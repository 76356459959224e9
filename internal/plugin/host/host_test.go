package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/keeper"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/plugin"
)

// lines is a slog.Handler that keeps what it gets.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) Enabled(context.Context, slog.Level) bool { return true }
func (l *lines) Handle(_ context.Context, r slog.Record) error {
	s := r.Level.String() + " " + r.Message
	r.Attrs(func(a slog.Attr) bool { s += " " + a.String(); return true })
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, s)
	return nil
}
func (l *lines) WithAttrs([]slog.Attr) slog.Handler { return l }
func (l *lines) WithGroup(string) slog.Handler      { return l }

func (l *lines) have() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.all)
}

// rig is a plugin that this binary plays.
type rig struct {
	*host.Plugin
	step *host.Step
	own  *lines // the program's log
}

// keeperOf is a keeper that this binary plays.
func keeperOf(t testing.TB) *keeper.Keeper {
	k := keeper.New(nil)
	t.Cleanup(k.Close)
	return k
}

func start(t testing.TB, as string, calls map[string]host.Func, env ...string) *rig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{own: &lines{}}
	r.Plugin = host.New(host.Program{
		Name: "agentenv-acme 1.2.0", Distribution: &plugin.Named{Name: "agentenv-acme", Version: "1.2.0"}, Argv: []string{self}, Env: append([]string{role + "=" + as}, env...),
	}, host.Options{
		Host: plugin.Named{Name: "agent-env", Version: "1"}, Env: func(k string) (string, bool) { return k + "-value", k == "LANG" || k == "SECRET" },
		Log: slog.New(r.own), TempDir: t.TempDir(), Keeper: keeperOf(t), Calls: calls, CancelTime: 200 * time.Millisecond,
	})
	r.step = host.NewStep(r.Plugin, plugin.Entry{Group: plugin.GroupSteps, Name: "acme", Value: "acme-plugin"}, "agentenv-acme 1.2.0")
	t.Cleanup(func() {
		if err := r.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return r
}

// outcome is what a step left.
type outcome struct {
	err   error
	ops   string
	log   []string
	spent step.Cost
}

func (r *rig) run(ctx context.Context, do string, n int) outcome {
	var h step.History
	var before step.Diff
	_ = before.Set("metadata/acme", map[string]any{"x": 1})
	h.Commit(0, before.Ops())
	l := &lines{}
	var out outcome
	c := &step.Call{
		Run: "@local/b/t-1", Step: "s", Attempt: 1, Trial: 1, Doc: doc.Build(map[string]any{"id": "s", "type": "acme", "do": do, "n": n}),
		State: h.View(func(int) bool { return true }), Out: &step.Diff{}, Log: slog.New(l), Seed: map[string]string{"k": "v"},
		OnSpend: func(c step.Cost) { out.spent.USD += c.USD; out.spent.OutputTokens += c.OutputTokens },
	}
	out.err = r.step.Run(ctx, c)
	var b strings.Builder
	for _, op := range c.Out.Ops() {
		fmt.Fprintf(&b, "%s %s %s\n", op.Op, op.Path, op.Value)
	}
	out.ops, out.log = b.String(), l.have()
	return out
}

func TestAStepRuns(t *testing.T) {
	r := start(t, "", nil)
	for range 2 {
		out := r.run(t.Context(), "score", 4)
		want := `append deployed_agents {"agent_name":"x"}
set metadata/verifications/s {"had":true,"have":{"x":1},"n":4,"score":0.5}
set metadata/a%2Fb "v"
`
		if out.err != nil || out.ops != want {
			t.Errorf("%v\n%s", out.err, out.ops)
		}
	}
}

func TestFailures(t *testing.T) {
	r := start(t, "", nil)
	for _, c := range []struct {
		do, typ, text string
		infra, kept   bool
	}{
		{"exit", "PluginError", "the plugin agentenv-acme 1.2.0 ended with exit code 7; it said: giving up", true, false},
		{"fail", "LobbyError", "never <opened>", false, false},
		{"infra", "Error", "no endpoint", true, false},
		{"keep", "Reply", "bad", false, true},
		{"panic", "PluginError", "the plugin agentenv-acme 1.2.0 has a defect: step/execute panicked: oh", true, false},
		{"paths", "PluginError", "the plugin agentenv-acme 1.2.0 has a defect: its diff can't be used: change 1: '/metadata//x' is no path", true, false},
		{"huge", "PluginError", "the plugin agentenv-acme 1.2.0 has a defect: the answer is longer than 32 MiB: put it into a file", true, false},
		{"kill", "PluginError", "the plugin agentenv-acme 1.2.0 was ended by the signal killed", true, false},
		{"breaks", "PluginError", "the plugin agentenv-acme 1.2.0 broke the plugin protocol: a message is longer than 32 MiB", true, false},
		{"fail", "LobbyError", "never <opened>", false, false}, // it is started again
	} {
		out := r.run(t.Context(), c.do, 1)
		e, ok := errors.AsType[*step.Error](out.err)
		if !ok && c.typ != "Error" || ok && e.Type != c.typ || !strings.HasPrefix(fmt.Sprint(out.err), c.text) || step.IsInfra(out.err) != c.infra || step.IsKept(out.err) != c.kept {
			t.Errorf("%s: %#v %v", c.do, e, out.err)
		}
		if kept := out.ops == "set metadata/kept true\n"; kept != c.kept || !kept && out.ops != "" {
			t.Errorf("%s: %s", c.do, out.ops)
		}
	}
}

func TestProgramsThatDoNotComeUp(t *testing.T) {
	for as, want := range map[string]string{
		"garbage": "broke the plugin protocol: a line is no message",
		"version": "speaks version 9 of the plugin protocol, and this agent-env version 1",
		"old":     "speaks another version of the plugin protocol than this agent-env, which speaks version 1: speaks version 0",
		"dead":    `ended with exit code 3; it said: no module | named \x1b[31mx`,
	} {
		t.Run(as, func(t *testing.T) {
			r := start(t, as, nil)
			for range 2 {
				out := r.run(t.Context(), "score", 1)
				if e, ok := errors.AsType[*step.Error](out.err); !ok || e.Type != host.PluginError || !step.IsInfra(out.err) || !strings.HasPrefix(e.Error(), "the plugin agentenv-acme 1.2.0 "+want) {
					t.Error(out.err)
				}
			}
		})
	}
	r := start(t, "", nil)
	p := host.New(host.Program{Name: "x 1", Argv: []string{"/nowhere/x"}}, host.Options{Env: os.LookupEnv, Log: slog.New(r.own), TempDir: t.TempDir()})
	err := p.Call(t.Context(), "x", nil, func(string) any { return nil }, nil)
	if err == nil || err.Error() != "the plugin x 1 can't be started: /nowhere/x: no such file or directory" {
		t.Error(err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestASlowStart: who waits for a process that doesn't come up can give up, and the end of the program doesn't wait for it.
func TestASlowStart(t *testing.T) {
	r := start(t, "silent", nil)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if out := r.run(ctx, "score", 1); !errors.Is(out.err, context.DeadlineExceeded) {
		t.Error(out.err)
	}
}

func TestCancel(t *testing.T) {
	r := start(t, "", nil)
	if out := r.run(t.Context(), "log", 0); out.err != nil { // it is up
		t.Fatal(out.err)
	}
	cause := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
	if out := r.run(ctx, "wait", 1); !errors.Is(out.err, cause) || len(out.log) != 1 {
		t.Errorf("%+v", out)
	}
	if out := r.run(t.Context(), "score", 1); out.err != nil {
		t.Error(out.err)
	}
}

// TestAStepThatDoesNotStop: its process gets no more calls, and is ended when it has no others.
func TestAStepThatDoesNotStop(t *testing.T) {
	r := start(t, "", nil)
	other := make(chan outcome)
	long, stop := context.WithCancel(t.Context())
	go func() { other <- r.run(long, "wait", 1) }()
	if out := r.run(t.Context(), "score", 1); out.err != nil { // the process is up, however long that takes
		t.Fatal(out.err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if out := r.run(ctx, "stubborn", 1); !errors.Is(out.err, context.DeadlineExceeded) || len(out.log) != 1 {
		t.Errorf("%+v", out)
	}
	for end := time.Now().Add(time.Minute); !slices.ContainsFunc(r.own.have(), func(s string) bool { return strings.Contains(s, "it gets no more") }); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("its process gets more calls: %q", r.own.have())
		}
	}
	if out := r.run(t.Context(), "score", 1); out.err != nil { // another process
		t.Error(out.err)
	}
	select {
	case out := <-other:
		t.Errorf("the other call was ended: %+v", out)
	default:
	}
	stop()
	if out := <-other; !errors.Is(out.err, context.Canceled) {
		t.Error(out.err)
	}
}

func TestLogsAndCosts(t *testing.T) {
	r := start(t, "", nil)
	out := r.run(t.Context(), "log", 100)
	if out.err != nil || len(out.log) != 101 || out.log[7] != "WARN line i=7 w=1" || out.log[100] != "DEBUG done" {
		t.Errorf("%v %q", out.err, out.log)
	}
	out = r.run(t.Context(), "spend", 1000)
	if out.err != nil || out.spent.USD != 500 || out.spent.OutputTokens != 2000 {
		t.Errorf("%+v", out)
	}
	out = r.run(t.Context(), "flood", 400)
	last := out.log[len(out.log)-1]
	if out.err != nil || len(out.log) > 170 || !strings.HasPrefix(last, "WARN the plugin logged more than can be kept dropped_lines=2") {
		t.Errorf("%v %d lines, the last %.100q", out.err, len(out.log), last)
	}
	for _, l := range out.log {
		if len(l) > 66<<10 {
			t.Errorf("a line of %d bytes", len(l))
		}
	}
}

func TestHostCalls(t *testing.T) {
	var got []string
	r := start(t, "", map[string]host.Func{"host/secret.get": func(_ context.Context, c *host.Caller, params json.RawMessage) (any, error) {
		got = []string{c.Run, c.Step, c.Distribution}
		if !c.Mine(c.Temp+"/x") || c.Mine(c.Temp+"/../x") || c.Mine("/etc/passwd") {
			t.Error("whose files")
		}
		var p struct {
			Key string `json:"key"`
		}
		if err := json.Unmarshal(params, &p); err != nil || p.Key != "KEY" {
			t.Error(p, err)
		}
		return map[string]string{"value": "open sesame"}, nil
	}})
	if out := r.run(t.Context(), "secret", 1); out.err != nil || out.ops != "set metadata/secret \"open sesame\"\n" {
		t.Errorf("%+v", out)
	}
	if !slices.Equal(got, []string{"@local/b/t-1", "s", "agentenv-acme"}) {
		t.Error(got)
	}
	r = start(t, "", map[string]host.Func{"host/secret.get": func(context.Context, *host.Caller, json.RawMessage) (any, error) {
		return nil, host.Refuse("'KEY' isn't granted")
	}})
	if out := r.run(t.Context(), "secret", 1); fmt.Sprint(out.err) != "'KEY' isn't granted" || step.IsInfra(out.err) {
		t.Errorf("%+v", out)
	}
}

func TestWhatAProcessGets(t *testing.T) {
	t.Setenv("AGENTENV_SECRET", "x")
	r := start(t, "", nil)
	out := r.run(t.Context(), "temp", 1)
	if out.err != nil || strings.Contains(out.ops, "SECRET") || !strings.Contains(out.ops, "LANG=LANG-value") || strings.Contains(out.ops, plugin.Variable) {
		t.Errorf("%v %s", out.err, out.ops)
	}
	if out = r.run(t.Context(), "leaves", 1); out.err != nil {
		t.Fatal(out.err)
	}
	var pid int
	if _, err := fmt.Sscanf(out.ops, "set metadata/pid %d", &pid); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for range 100 { // it is killed; whose child it is now reaps it
		if syscall.Kill(pid, 0) != nil || zombie(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("process %d lives", pid)
}

func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(b), ") Z ")
}

// TestManyAtOnce: calls of one process don't mix.
func TestManyAtOnce(t *testing.T) {
	r := start(t, "", nil)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			out := r.run(t.Context(), "score", i)
			if out.err != nil || !strings.Contains(out.ops, fmt.Sprintf(`"n":%d,`, i)) {
				t.Error(out.err, out.ops)
			}
		})
	}
	wg.Wait()
}

// TestItClosesItsStdout: a process that can't answer any more is ended, and another one started.
func TestItClosesItsStdout(t *testing.T) {
	r := start(t, "closes", nil)
	out := r.run(t.Context(), "score", 1)
	if !step.IsInfra(out.err) || !strings.Contains(fmt.Sprint(out.err), "was ended by the signal") {
		t.Error(out.err)
	}
}

func TestPreflight(t *testing.T) {
	r := start(t, "", nil)
	for do, want := range map[string][]string{
		"fine": nil, "forbidden": {"do: is forbidden; ask", "hm"}, "elsewhere": {"not here"},
	} {
		var got []string
		for _, p := range r.step.Preflight(t.Context(), doc.Build(map[string]any{"id": "s", "do": do}), step.Plan{}) {
			got = append(got, p.String())
		}
		if len(got) != len(want) {
			t.Errorf("%s: %q", do, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], want[i]) {
				t.Errorf("%s: %q", do, got)
			}
		}
	}
	dead := start(t, "dead", nil)
	if l := dead.step.Preflight(t.Context(), doc.Build(map[string]any{"id": "s"}), step.Plan{}); len(l) != 1 || !strings.Contains(l[0].Summary, "ended with exit code 3") {
		t.Error(l)
	}
}
