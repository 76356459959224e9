package run

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/task"
)

// graph is a random task with what its steps do. Times are such that no two things ever happen at once.
type graph struct {
	task     *task.Task
	takes    []time.Duration
	fails    []int // the first so many attempts fail
	makesBox []bool
	cancel   time.Duration // 0: never
	parallel int
}

func randomGraph(r *rand.Rand) *graph {
	n := 1 + r.IntN(40)
	g := &graph{task: &task.Task{ID: "@local/m"}}
	dense := r.Float64() * 0.3
	trouble := r.Float64() * 0.5
	used := map[time.Duration]bool{}
	moment := func() time.Duration { // sums of a few of them differ, since each has digits of its own
		for {
			d := time.Duration(1+r.Int64N(1<<40)) * time.Nanosecond
			if !used[d] {
				used[d] = true
				return d
			}
		}
	}
	for i := range n {
		id := fmt.Sprintf("s%d", i)
		st := task.Step{ID: id, Type: id, Doc: doc.Build(map[string]any{"id": id, "type": id})}
		for d := range i {
			if r.Float64() < dense {
				st.Deps = append(st.Deps, d)
			}
		}
		st.Tolerated, st.Always = r.Float64() < 0.4, r.Float64() < 0.15
		g.task.Steps = append(g.task.Steps, st)
		fails := 0
		if r.Float64() < trouble {
			fails = []int{1, 1, 2, 3, 1 << 30}[r.IntN(5)]
		}
		if r.Float64() < 0.5 {
			from := i
			if anc := g.task.Ancestors()[i].Items(); len(anc) > 0 && r.IntN(2) == 0 {
				from = anc[r.IntN(len(anc))]
			}
			rule := &task.Retry{From: from, Max: r.IntN(4)}
			if r.IntN(2) == 0 {
				rule.Backoff = moment()
			}
			g.task.Steps[i].Retry = rule
		}
		g.takes, g.fails, g.makesBox = append(g.takes, moment()), append(g.fails, fails), append(g.makesBox, r.Float64() < 0.2)
	}
	if r.Float64() < 0.2 {
		g.cancel = moment()
	}
	if r.Float64() < 0.3 {
		g.parallel = 1 + r.IntN(4)
	}
	return g
}

func (g *graph) String() string {
	var b strings.Builder
	for i, st := range g.task.Steps {
		fmt.Fprintf(&b, "%d deps=%v takes=%v fails=%d tolerated=%v always=%v", i, st.Deps, g.takes[i], g.fails[i], st.Tolerated, st.Always)
		if st.Retry != nil {
			fmt.Fprintf(&b, " retry=%+v", *st.Retry)
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "cancel=%v parallel=%d", g.cancel, g.parallel)
	return b.String()
}

// verdict is how a graph ends.
type verdict struct {
	Status runlog.Status
	Steps  []runlog.Status
	Tries  []int
	Took   time.Duration
}

// model is the reference: it asks the whole graph what may start, every time.
type model struct {
	*graph
	now     time.Duration
	state   []state
	stop    []bool // cancelled while it ran
	tries   []int
	retries []int
	ends    []time.Duration
	redo    []bool
	groups  []group
	fatal   bool
	stopped bool
	cut     bool
	failed  []bool
}

type group struct {
	in    []bool
	at    time.Duration
	reset bool
}

func (g *graph) reference() verdict {
	n := len(g.task.Steps)
	m := &model{
		graph: g, state: make([]state, n), stop: make([]bool, n), tries: make([]int, n), retries: make([]int, n), ends: make([]time.Duration, n),
		redo: make([]bool, n), failed: make([]bool, n),
	}
	for {
		m.settleAndStart()
		next, what := m.next()
		if what == nil {
			break
		}
		m.now = next
		what()
	}
	v := verdict{Status: runlog.Unscored, Tries: m.tries, Took: m.now}
	for i := range n {
		v.Steps = append(v.Steps, map[state]runlog.Status{succeeded: runlog.Succeeded, failed: runlog.Failed, skipped: runlog.Skipped}[m.state[i]])
		if m.stop[i] {
			v.Steps[i] = runlog.Cancelled
		}
		if m.state[i] == failed && !m.stop[i] {
			v.Status = runlog.Failed
		}
	}
	if m.cut {
		v.Status = runlog.Cancelled
	}
	return v
}

func (m *model) running() (n int) {
	for _, s := range m.state {
		if s == running {
			n++
		}
	}
	return n
}

func (m *model) settleAndStart() {
	for changed := true; changed; {
		changed = false
		for i := range m.groups {
			g := &m.groups[i]
			if !g.reset && !m.anyRunning(g.in) {
				g.reset, changed = true, true
				for j, in := range g.in {
					if in {
						m.state[j], m.failed[j], m.stop[j] = waiting, false, false
					}
				}
			}
		}
		m.groups = slices.DeleteFunc(m.groups, func(g group) bool {
			if g.reset && (m.now >= g.at || m.fatal || m.stopped) {
				changed = true
				return true
			}
			return false
		})
		for i := range m.state {
			if m.state[i] != waiting || m.held(i) || !m.depsSettled(i) {
				continue
			}
			if m.stopped || m.fatal && !m.task.Steps[i].Always {
				m.state[i], changed = skipped, true
				m.cut = m.cut || m.stopped
			}
		}
		if changed {
			continue
		}
		for i := range m.state {
			if m.state[i] == waiting && !m.held(i) && m.depsSettled(i) && (m.parallel == 0 || m.running() < m.parallel) {
				m.state[i], changed = running, true
				m.tries[i]++
				m.ends[i] = m.now + m.takes[i]
			}
		}
	}
}

func (m *model) anyRunning(in []bool) bool {
	for j := range in {
		if in[j] && m.state[j] == running {
			return true
		}
	}
	return false
}

func (m *model) held(i int) bool {
	return slices.ContainsFunc(m.groups, func(g group) bool { return g.in[i] })
}

func (m *model) depsSettled(i int) bool {
	for _, d := range m.task.Ancestors()[i].Items() {
		if !m.state[d].settled() {
			return false
		}
	}
	return true
}

// next is the next thing to happen.
func (m *model) next() (time.Duration, func()) {
	var at time.Duration
	var what func()
	soonest := func(t time.Duration, f func()) {
		if what == nil || t < at {
			at, what = t, f
		}
	}
	for i := range m.state {
		if m.state[i] == running {
			soonest(m.ends[i], func() { m.end(i) })
		}
	}
	for _, g := range m.groups {
		if g.reset {
			soonest(g.at, func() {})
		}
	}
	if m.cancel > 0 && !m.stopped && what != nil {
		soonest(m.cancel, func() {
			m.stopped = true
			for i := range m.state {
				if m.state[i] == running && !m.redo[i] {
					m.state[i], m.stop[i], m.cut = failed, true, true
				}
			}
		})
	}
	return at, what
}

func (m *model) end(i int) {
	if m.redo[i] {
		m.redo[i], m.state[i] = false, waiting
		return
	}
	if m.tries[i] > m.fails[i] {
		m.state[i] = succeeded
		return
	}
	rule := m.task.Steps[i].Retry
	if rule == nil || m.retries[i] >= rule.Max || m.fatal || m.stopped {
		m.state[i] = failed
		m.fatal = m.fatal || !m.task.Steps[i].Tolerated
		return
	}
	g := group{in: make([]bool, len(m.state)), at: m.now + min(rule.Backoff<<min(m.retries[i], 16), maxBackoff)}
	m.retries[i]++
	m.state[i] = waiting
	for j := range m.state {
		g.in[j] = j == rule.From || m.task.Dependents(rule.From).Has(j)
		if g.in[j] && m.state[j] == running {
			m.redo[j], m.ends[j] = true, m.now // told to stop, it stops at once
		}
	}
	m.groups = append(m.groups, g)
}

// bench runs graphs.
type bench struct {
	*graph
	mu      sync.Mutex
	tries   []int
	under   int
	most    int
	onStart func(i int)
	boxes   *world
}

func (b *bench) runner() *Runner {
	set := catalog.New[step.Executor]("step type")
	for i := range b.task.Steps {
		set.Add(b.task.Steps[i].Type, catalog.Origin{Kind: catalog.Builtin}, executor(func(ctx context.Context, c *step.Call) error { return b.work(ctx, i, c) }))
	}
	return &Runner{Executors: set, World: b.boxes, Log: slog.New(slog.DiscardHandler)}
}

func (b *bench) work(ctx context.Context, i int, c *step.Call) error {
	b.mu.Lock()
	b.tries[i]++
	b.under++
	b.most = max(b.most, b.under)
	if b.onStart != nil {
		b.onStart(i)
	}
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		b.under--
		b.mu.Unlock()
	}()
	var seen []string
	for _, raw := range c.State.List("metadata/trace") {
		seen = append(seen, string(raw))
	}
	if len(slices.Compact(slices.Sorted(slices.Values(seen)))) != len(seen) {
		return fmt.Errorf("sees the diff of an attempt that was dropped: %v", seen)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(b.takes[i]):
	}
	if c.Attempt <= b.fails[i] {
		return errors.New("fails")
	}
	if b.makesBox[i] {
		b.boxes.policy.Observer.BoxCreated(c.Step, "box-"+c.Step, sandbox.Info{ID: fmt.Sprintf("%s-%d", c.Step, c.Attempt)})
	}
	return c.Out.Append("metadata/trace", c.Step)
}

func newBench(g *graph) *bench {
	return &bench{graph: g, tries: make([]int, len(g.task.Steps)), boxes: &world{}}
}

// judged is what the record of a run says.
func judged(t *testing.T, g *graph, res Result, o *owner, tries []int) verdict {
	t.Helper()
	rec := runlog.Fold(runlog.Summary{}, o.events)
	v := verdict{Status: res.Status, Tries: tries}
	if rec.Status != res.Status || len(rec.Steps) != len(g.task.Steps) {
		t.Errorf("on record it is %s with %d steps, but it ended %s", rec.Status, len(rec.Steps), res.Status)
	}
	for _, st := range rec.Steps {
		v.Steps = append(v.Steps, st.Status)
	}
	return v
}

// soaking multiplies what tests try.
func soaking(few, many int) int {
	if os.Getenv("AGENTENV_SOAK") != "" {
		return many
	}
	return few
}

// TestModel compares runs of random graphs with the reference.
func TestModel(t *testing.T) {
	for seed := range soaking(300, 10_000) {
		g := randomGraph(rand.New(rand.NewPCG(uint64(seed), 1)))
		want := g.reference()
		synctest.Test(t, func(t *testing.T) {
			b, o := newBench(g), &owner{}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if g.cancel > 0 {
				timer := time.AfterFunc(g.cancel, cancel)
				defer timer.Stop()
			}
			began := time.Now()
			res, err := b.runner().Run(ctx, Request{Run: "@local/m-1", Task: g.task, Owner: o, Parallel: g.parallel})
			if err != nil {
				t.Fatal(err)
			}
			got := judged(t, g, res, o, b.tries)
			got.Took = time.Since(began)
			if g.parallel > 0 {
				if b.most > g.parallel {
					t.Errorf("%d steps at once", b.most)
				}
				// Which of the ready steps goes first is nobody's business.
				got.Took, want.Took, got.Tries, want.Tries = 0, 0, nil, nil
				if want.Status != runlog.Unscored {
					got.Steps, want.Steps = nil, nil
					if want.Status != got.Status && (g.cancel > 0) {
						got.Status = want.Status
					}
				}
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("seed %d:\n got %+v\nwant %+v\n%s\n%s", seed, got, want, g, strings.Join(o.text(), "\n"))
			}
		})
		if t.Failed() {
			return
		}
	}
}

// TestModelOfResume kills runs of random graphs at random events, takes sandboxes away, and holds what the resumed run does against the rules.
func TestModelOfResume(t *testing.T) {
	for seed := range soaking(200, 10_000) {
		r := rand.New(rand.NewPCG(uint64(seed), 2))
		g := randomGraph(r)
		g.cancel = 0
		for i := range g.fails { // attempts that a kill cuts short count: what fails, fails for ever
			if g.fails[i] > 0 {
				g.fails[i] = 1 << 30
			}
		}
		synctest.Test(t, func(t *testing.T) { resumed(t, r, g, seed) })
		if t.Failed() {
			return
		}
	}
}

func resumed(t *testing.T, r *rand.Rand, g *graph, seed int) {
	b, whole := newBench(g), &owner{}
	req := Request{Run: "@local/m-1", Task: g.task, Parallel: g.parallel}
	req.Owner = whole
	res, err := b.runner().Run(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	want := judged(t, g, res, whole, nil)

	// The owner dies after some of its events, and its successors too.
	record := &owner{}
	left := r.IntN(len(whole.events) + 1)
	var prior *Prior
	var made map[string]bool // boxes that stand
	for life := 0; ; life++ {
		mortal := &owner{events: record.events, refuse: func(runlog.Event) error {
			if left--; left < 0 {
				return runlog.ErrFenced
			}
			return nil
		}}
		b := newBench(g)
		ran := make([]bool, len(g.task.Steps))
		anc := g.task.Ancestors()
		b.onStart = func(i int) {
			ran[i] = true
			if prior == nil || slices.ContainsFunc(prior.past, func(p past) bool { return p.settled() && p.end.Fatal }) {
				return // after a fatal failure nothing is made again
			}
			for j := range g.task.Steps {
				if id := fmt.Sprintf("%s-%d", g.task.Steps[j].ID, prior.past[j].attempt); g.makesBox[j] && anc[i].Has(j) && !ran[j] && prior.past[j].status == runlog.Succeeded && !made[id] {
					t.Errorf("seed %d: step %d runs, and the sandbox of step %d is gone", seed, i, j)
				}
			}
		}
		req.Owner, req.Prior = mortal, prior
		res, err := b.runner().Run(t.Context(), req)
		record.events = mortal.events
		if prior != nil {
			for i, p := range prior.Steps {
				if p.Action == Kept && ran[i] && g.task.Steps[i].Retry == nil && !resetLater(g, record.events, p.ID) {
					t.Errorf("seed %d: step %s was to be kept (%s), and ran", seed, p.ID, p.Why)
				}
				if p.Action == Never && ran[i] {
					t.Errorf("seed %d: step %s was never to run", seed, p.ID)
				}
			}
		}
		if err == nil {
			got := judged(t, g, res, record, nil)
			for i, st := range want.Steps {
				if st == runlog.Failed && !g.task.Steps[i].Tolerated {
					got.Steps = nil // what had started, or was under way, as a fatal failure came depends on the moment
				}
			}
			if got.Steps == nil {
				want.Steps = nil
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("seed %d after %d kills:\n got %+v\nwant %+v\n%s\n%s", seed, life, got, want, g, strings.Join(record.text(), "\n"))
			}
			return
		}
		if !errors.Is(err, runlog.ErrFenced) {
			t.Fatal(err)
		}
		made = map[string]bool{}
		for _, e := range record.events {
			if e.Kind == runlog.BoxCreated && r.IntN(2) == 0 {
				made[id(e)] = true
			}
		}
		if prior, err = b.runner().Replan(t.Context(), g.task, record.events, made, nil); err != nil {
			t.Fatal(err)
		}
		left = 1 + r.IntN(len(whole.events)+1)
		if life == 3 {
			left = 1 << 30
		}
	}
}

func id(e runlog.Event) string {
	_, rest, _ := strings.Cut(string(e.Data), `"id":"`)
	got, _, _ := strings.Cut(rest, `"`)
	return got
}

// resetLater tells whether a retry took a step back after the last start of the run.
func resetLater(g *graph, events []runlog.Event, id string) bool {
	found := false
	for _, e := range events {
		switch e.Kind {
		case runlog.RunStarted:
			found = false
		case runlog.StepsReset:
			found = found || strings.Contains(string(e.Data), `"`+id+`"`)
		}
	}
	return found
}

var _ World = (*deploy.Deployments)(nil)
