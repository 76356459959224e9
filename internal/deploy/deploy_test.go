package deploy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/guest/nethost"
	"agentenv.internal/agentenv/internal/guest/pid1"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
)

func TestMain(m *testing.M) {
	pid1.Dispatch()
	nethost.Dispatch()
	if len(os.Args) == 3 && os.Args[1] == "serve" {
		os.Exit(playServer(os.Args[2]))
	}
	goleak.VerifyTestMain(m)
}

const run = "@local/b/t-12345678"

// providers makes a book over named providers.
func providers(t *testing.T, chain string, ps map[string]sandbox.Provider) *Deployments {
	set := catalog.New[sandbox.Provider]("sandbox type")
	for name, p := range ps {
		set.Add(name, catalog.Origin{Kind: catalog.Builtin}, p)
		t.Cleanup(func() { _ = p.Close() })
	}
	return New(set, strings.Split(chain, ","), slog.New(slog.DiscardHandler))
}

func one(t *testing.T, o fake.Options) (*Deployments, *fake.Provider) {
	p := fake.New(o)
	return providers(t, "local", map[string]sandbox.Provider{"local": p}), p
}

func request(stepID, name string) Request {
	return Request{Run: run, Step: stepID, Attempt: 1, Name: name}
}

// seen keeps what an Observer is told.
type seen struct {
	mu   sync.Mutex
	text []string
}

func (s *seen) BoxCreated(_, name string, b sandbox.Info) { s.add("made " + name) }
func (s *seen) BoxRemoved(_, name string, b sandbox.Info, err error) {
	s.add(fmt.Sprintf("removed %s %v", name, err))
}

func (s *seen) EnvKept(step string, p Piece) { s.add("kept " + p.What + " of " + step) }

func (s *seen) EnvTaken(step string, t TakeOver) error {
	s.add(fmt.Sprintf("%s of %s is taken by %s, ended %t after %d", t.Name, step, t.By, t.Ended, t.Inputs))
	return nil
}

func (s *seen) add(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = append(s.text, text)
}

func names(ls []Live) string {
	var out []string
	for _, l := range ls {
		out = append(out, l.Name)
	}
	return strings.Join(out, " ")
}

func TestLifeOfARun(t *testing.T) {
	d, p := one(t, fake.Options{})
	o := &seen{}
	d.Open(run, Policy{Observer: o})
	for _, name := range []string{"a", "b"} {
		if _, err := d.Create(t.Context(), request("s-"+name, name)); err != nil {
			t.Fatal(err)
		}
	}
	if s := p.Machines()[0].Spec(); !s.Tied || s.Run != run || s.Name != "a" {
		t.Errorf("%+v", s)
	}
	if got := names(d.Live(run)); got != "a b" {
		t.Error(got)
	}
	h, err := d.Box(t.Context(), run, "a")
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := d.Box(t.Context(), run, "a"); again != h {
		t.Error("a second handle was opened")
	}
	if _, err := d.Create(t.Context(), request("s-c", "a")); !errors.Is(err, ErrTaken) || step.IsInfra(err) {
		t.Error(err)
	}
	if _, err := d.Box(t.Context(), run, "nosuch"); !errors.Is(err, ErrNoBox) || step.IsInfra(err) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // a cancelled run is taken down all the same
	gone, err := d.Down(ctx, run)
	if err != nil || gone.Removed != 2 || len(gone.Left) != 0 || len(p.Machines()) != 0 || len(d.Live("")) != 0 {
		t.Errorf("%+v %v", gone, err)
	}
	if _, err := h.Stat(t.Context(), "/"); err == nil {
		t.Error("the handle still answers")
	}
	if _, err := d.Create(t.Context(), request("s", "x")); !errors.Is(err, ErrDown) {
		t.Error(err)
	}
	if _, err := d.Box(t.Context(), run, "a"); !errors.Is(err, ErrDown) || !step.IsInfra(err) {
		t.Error(err)
	}
	if gone, err := d.Down(t.Context(), run); gone.Removed != 0 || err != nil {
		t.Errorf("a second Down: %+v %v", gone, err)
	}
	slices.Sort(o.text)
	if got := strings.Join(o.text, ", "); got != "made a, made b, removed a <nil>, removed b <nil>" {
		t.Error(got)
	}
	d.Open(run, Policy{}) // a resumed run begins anew
	if _, err := d.Create(t.Context(), request("s", "x")); err != nil {
		t.Error(err)
	}
}

func TestKeepMakesLeasedSandboxes(t *testing.T) {
	d, p := one(t, fake.Options{})
	d.Open(run, Policy{Keep: true, Isolation: sandbox.LevelNone})
	r := request("s", "a")
	r.Spec.Lease = time.Minute
	if _, err := d.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if s := p.Machines()[0].Spec(); s.Tied || s.Lease != time.Minute || s.Isolation != sandbox.LevelNone {
		t.Errorf("%+v", s)
	}
}

func TestSameStepAndAttemptGetsTheSameSandbox(t *testing.T) {
	d, p := one(t, fake.Options{})
	a, _ := d.Create(t.Context(), request("s", "a"))
	// The answer was lost: another process of the same run asks again.
	set := catalog.New[sandbox.Provider]("sandbox type")
	set.Add("local", catalog.Origin{Kind: catalog.Builtin}, p)
	other := New(set, []string{"local"}, slog.New(slog.DiscardHandler))
	b, err := other.Create(t.Context(), request("s", "a"))
	if err != nil || a.ID != b.ID || len(p.Machines()) != 1 {
		t.Errorf("%s and %s, %v", a.ID, b.ID, err)
	}
}

func TestChain(t *testing.T) {
	broken := fake.New(fake.Options{OnCreate: func(sandbox.Spec) error { return errors.New("disk full") }})
	refuses := fake.New(fake.Options{OnCreate: func(sandbox.Spec) error { return fmt.Errorf("no namespaces here: %w", sandbox.ErrUnsupported) }})
	works := fake.New(fake.Options{})
	d := providers(t, "refuses,works", map[string]sandbox.Provider{"broken": broken, "refuses": refuses, "works": works})
	for _, c := range []struct {
		override []string
		typ      string
		want     string
	}{
		{nil, "", ""},
		{nil, "works", ""},
		{nil, " nosuch, works ", ""},
		{[]string{"works"}, "broken", ""},
		{nil, "broken,works", "create sandbox 'x' (broken): disk full"},
		{nil, "refuses", "refuses: no namespaces here: not supported by this sandbox provider"},
		{nil, "nosuch,refuses", "'nosuch': no such sandbox type here (known: broken, refuses, works); refuses: no namespaces here: not supported by this sandbox provider"},
	} {
		d.Open(run, Policy{Chain: c.override})
		r := request("s", "x")
		r.Type = c.typ
		_, err := d.Create(t.Context(), r)
		if got := fmt.Sprint(err); got != c.want && !(err == nil && c.want == "") {
			t.Errorf("%v %q: %s", c.override, c.typ, got)
		}
		if err != nil && strings.HasPrefix(c.want, "refuses") != (errors.Is(err, sandbox.ErrUnsupported) && !strings.HasPrefix(c.want, "'")) {
			t.Errorf("%v %q: kind of %v", c.override, c.typ, err)
		}
		_, _ = d.Down(t.Context(), run)
	}
	if err := d.Check(t.Context(), nil, "nosuch", sandbox.Spec{}); !errors.Is(err, sandbox.ErrUnsupported) {
		t.Error(err)
	}
	if err := d.Check(t.Context(), []string{"works"}, "nosuch", sandbox.Spec{}); err != nil {
		t.Error(err)
	}
}

// stubborn fails to destroy some of its boxes.
type stubborn struct {
	*fake.Provider
	mu    sync.Mutex
	fails map[string]int // id -> how often Destroy fails
	order []string
	slow  time.Duration
}

func (s *stubborn) Destroy(ctx context.Context, id string) error {
	select {
	case <-time.After(s.slow):
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.order = append(s.order, id)
	if s.fails[id] > 0 {
		s.fails[id]--
		return errors.New("device busy")
	}
	return s.Provider.Destroy(ctx, id)
}

func TestDownUndoesLastFirstAndNamesWhatFails(t *testing.T) {
	p := &stubborn{Provider: fake.New(fake.Options{}), fails: map[string]int{}}
	d := providers(t, "local", map[string]sandbox.Provider{"local": p})
	a, _ := d.Create(t.Context(), request("s1", "a"))
	_ = d.Defer(run, "s2", "gateway", func(context.Context) error { p.order = append(p.order, "gateway"); return errors.New("won't stop") })
	b, _ := d.Create(t.Context(), request("s3", "b"))
	p.fails[a.ID] = 1
	gone, err := d.Down(t.Context(), run)
	if got := strings.Join(p.order, " "); got != b.ID+" gateway "+a.ID {
		t.Error(got)
	}
	if err == nil || err.Error() != "gateway: won't stop\nsandbox "+a.ID+": device busy" {
		t.Error(err)
	}
	if gone.Removed != 1 || !slices.Equal(gone.Left, []string{a.ID}) || names(d.Live("")) != "a" {
		t.Errorf("%+v, live %s", gone, names(d.Live("")))
	}
	if gone, err := d.Down(t.Context(), run); err != nil || gone.Removed != 1 || len(gone.Left) != 0 {
		t.Errorf("what failed is tried again: %+v %v", gone, err)
	}
}

func TestSandboxesGoSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &stubborn{Provider: fake.New(fake.Options{}), slow: time.Second}
		d := providers(t, "local", map[string]sandbox.Provider{"local": p})
		for i := range 16 {
			if _, err := d.Create(t.Context(), request(fmt.Sprint("s", i), fmt.Sprint("b", i))); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		gone, err := d.Down(t.Context(), run)
		if took := time.Since(began); err != nil || gone.Removed != 16 || took != 2*time.Second {
			t.Errorf("%+v %v in %s", gone, err, took)
		}
	})
}

func TestDownIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &stubborn{Provider: fake.New(fake.Options{}), slow: time.Hour}
		d := providers(t, "local", map[string]sandbox.Provider{"local": p})
		b, _ := d.Create(t.Context(), request("s", "b"))
		began := time.Now()
		gone, err := d.Down(t.Context(), run)
		if took := time.Since(began); took != downTimeout || !errors.Is(err, context.DeadlineExceeded) || !slices.Equal(gone.Left, []string{b.ID}) {
			t.Errorf("%+v %v in %s", gone, err, took)
		}
		p.slow = 0
	})
}

func TestCreateThatIsOvertakenByDownLeavesNothing(t *testing.T) {
	making, goOn := make(chan struct{}), make(chan struct{})
	d, p := one(t, fake.Options{OnCreate: func(sandbox.Spec) error { close(making); <-goOn; return nil }})
	made := make(chan error, 1)
	go func() {
		_, err := d.Create(t.Context(), request("s", "a"))
		made <- err
	}()
	<-making
	down := make(chan error, 1)
	go func() {
		_, err := d.Down(t.Context(), run)
		down <- err
	}()
	for { // until Down has closed the account
		if _, err := d.Box(t.Context(), run, "a"); errors.Is(err, ErrDown) {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(goOn)
	if err := <-made; !errors.Is(err, ErrDown) {
		t.Error(err)
	}
	if err := <-down; err != nil || len(p.Machines()) != 0 {
		t.Errorf("%d left, %v", len(p.Machines()), err)
	}
}

func TestTwoStepsThatWantOneName(t *testing.T) {
	d, p := one(t, fake.Options{})
	var wg sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		wg.Go(func() { _, errs[i] = d.Create(t.Context(), request(fmt.Sprint("s", i), "same")) })
	}
	wg.Wait()
	taken := 0
	for _, err := range errs {
		if errors.Is(err, ErrTaken) {
			taken++
		}
	}
	if taken != 7 || len(p.Machines()) != 1 {
		t.Errorf("%d refused, %d made", taken, len(p.Machines()))
	}
}

func TestUndoTakesBackOneStep(t *testing.T) {
	d, p := one(t, fake.Options{})
	for _, s := range []string{"s1", "s2"} {
		_, _ = d.Create(t.Context(), request(s, s+"-box"))
	}
	if err := d.Undo(t.Context(), run, "s2", "s9"); err != nil || names(d.Live(run)) != "s1-box" || len(p.Machines()) != 1 {
		t.Errorf("%v, live %s", err, names(d.Live(run)))
	}
	r := request("s2", "s2-box")
	r.Attempt = 2
	if _, err := d.Create(t.Context(), r); err != nil || len(p.Machines()) != 2 {
		t.Error(err)
	}
	if err := d.Undo(t.Context(), "another run", "s1"); err != nil {
		t.Error(err)
	}
}

func TestRemove(t *testing.T) {
	d, _ := one(t, fake.Options{})
	info, _ := d.Create(t.Context(), request("s", "a"))
	if id, err := d.Remove(t.Context(), run, "a"); err != nil || id != info.ID {
		t.Error(id, err)
	}
	if _, err := d.Remove(t.Context(), run, "a"); !errors.Is(err, ErrNoBox) {
		t.Error(err)
	}
	if gone, _ := d.Down(t.Context(), run); gone.Removed != 0 {
		t.Error("removed twice")
	}
}

func TestSandboxOfAnotherProcessIsFound(t *testing.T) {
	p := fake.New(fake.Options{Files: map[string]string{"/mark": "x"}})
	info, err := p.Create(t.Context(), sandbox.Spec{Run: run, Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	d := providers(t, "local", map[string]sandbox.Provider{"local": p})
	h, err := d.Box(t.Context(), run, "box")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := h.ReadFile(t.Context(), "/mark", 10); err != nil || string(b) != "x" {
		t.Error(err)
	}
	if _, err := d.Box(t.Context(), "@local/b/other", "box"); !errors.Is(err, ErrNoBox) {
		t.Error(err)
	}
	if ls := d.Live(run); len(ls) != 1 || ls[0].Box.ID != info.ID {
		t.Errorf("%+v", ls)
	}
	if gone, err := d.Down(t.Context(), run); gone.Removed != 1 || err != nil {
		t.Errorf("%+v %v", gone, err)
	}
}

func TestDeadSandboxIsGone(t *testing.T) {
	d, p := one(t, fake.Options{})
	_, _ = d.Create(t.Context(), request("s", "a"))
	p.Machines()[0].Kill()
	if _, err := d.Box(t.Context(), run, "a"); !errors.Is(err, guest.ErrGone) || !step.IsInfra(err) {
		t.Error(err)
	}
	swept, err := d.Sweep(t.Context())
	if err != nil || len(swept) != 1 || swept[0].Provider != "local" || len(swept[0].IDs) != 1 {
		t.Errorf("%+v %v", swept, err)
	}
	if swept, _ := d.Sweep(t.Context()); len(swept) != 0 {
		t.Errorf("%+v", swept)
	}
}
