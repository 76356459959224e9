package step

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/guest"
)

func diff(fill func(d *Diff)) []Op {
	var d Diff
	fill(&d)
	return d.Ops()
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func everything(int) bool { return true }

func only(steps ...int) func(int) bool {
	return func(s int) bool { return slices.Contains(steps, s) }
}

func TestViewReadsWhatItsStepsLeft(t *testing.T) {
	var h History
	h.Commit(0, diff(func(d *Diff) {
		noError(t, d.Set("agent_model", "m"))
		noError(t, d.Append("deployed_sandboxes", Sandbox{Name: "box"}))
		noError(t, d.Set(Child(VerificationsPath, "a"), Verification{Score: 1}))
	}))
	h.Commit(2, diff(func(d *Diff) {
		noError(t, d.Set("agent_model", "n"))
		noError(t, d.Append("deployed_sandboxes", Sandbox{Name: "other"}))
	}))
	h.Commit(1, diff(func(d *Diff) { noError(t, d.Set(Child(VerificationsPath, "b/c~1"), Verification{Score: 0.5})) }))

	var model string
	for _, tt := range []struct {
		in   func(int) bool
		want string
	}{{everything, "n"}, {only(0, 1), "m"}, {only(2), "n"}, {only(1), ""}} {
		model = ""
		ok, err := h.View(tt.in).Get("agent_model", &model)
		if err != nil || ok != (tt.want != "") || model != tt.want {
			t.Errorf("model %q, %t, %v; want %q", model, ok, err, tt.want)
		}
	}
	v := h.View(everything)
	if got := v.Under(VerificationsPath); !slices.Equal(got, []string{"a", "b%2Fc~1"}) {
		t.Errorf("Under: %q", got)
	}
	if got := h.View(only(1, 2)).Under(VerificationsPath); !slices.Equal(got, []string{"b%2Fc~1"}) {
		t.Errorf("Under: %q", got)
	}
	var score Verification
	if ok, err := v.Get(Child(VerificationsPath, "b/c~1"), &score); !ok || err != nil || score.Score != 0.5 {
		t.Errorf("%+v, %t, %v", score, ok, err)
	}
	if got := v.Under(""); !slices.Equal(got, []string{"agent_model", "deployed_sandboxes"}) {
		t.Errorf("Under the root: %q", got)
	}
	if got := names(t, v); got != "box other" {
		t.Errorf("sandboxes %q", got)
	}
	if got := names(t, h.View(only(2))); got != "other" {
		t.Errorf("sandboxes of step 2: %q", got)
	}
	if ok, _ := v.Get("metadata", new(any)); ok {
		t.Error("metadata itself was never set")
	}
}

func names(t *testing.T, v View) string {
	t.Helper()
	var out []string
	for _, raw := range v.List(SandboxesPath) {
		var s Sandbox
		noError(t, json.Unmarshal(raw, &s))
		out = append(out, s.Name)
	}
	return strings.Join(out, " ")
}

func TestOpsOfOnePath(t *testing.T) {
	tests := []struct {
		name      string
		fill      func(d *Diff)
		get, list string // in JSON; "": nothing
	}{
		{"set", func(d *Diff) { _ = d.Set("p", 1) }, `1`, `null`},
		{"append", func(d *Diff) { _ = d.Append("p", 1); _ = d.Append("p", "x") }, `[1,"x"]`, `[1,"x"]`},
		{"a list, and more", func(d *Diff) { _ = d.Set("p", []int{1, 2}); _ = d.Append("p", 3) }, `[1,2,3]`, `[1,2,3]`},
		{"set over appended", func(d *Diff) { _ = d.Append("p", 1); _ = d.Set("p", []int{9}) }, `[9]`, `[9]`},
		{"unset", func(d *Diff) { _ = d.Set("p", 1); d.Unset("p") }, ``, `null`},
		{"unset, then more", func(d *Diff) { _ = d.Append("p", 1); d.Unset("p"); _ = d.Append("p", 2) }, `[2]`, `[2]`},
		{"null", func(d *Diff) { _ = d.Set("p", nil) }, `null`, `null`},
		{"elsewhere", func(d *Diff) { _ = d.Set("p/q", 1) }, ``, `null`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var h History
			h.Commit(0, diff(tt.fill))
			v := h.View(everything)
			var raw json.RawMessage
			ok, err := v.Get("p", &raw)
			noError(t, err)
			if ok != (tt.get != "") || string(raw) != tt.get {
				t.Errorf("Get: %s, %t; want %s", raw, ok, tt.get)
			}
			list, err := json.Marshal(v.List("p"))
			noError(t, err)
			if string(list) != tt.list {
				t.Errorf("List: %s; want %s", list, tt.list)
			}
			if under := v.Under(""); tt.name != "elsewhere" && slices.Contains(under, "p") != ok {
				t.Errorf("Under: %q, but Get tells %t", under, ok)
			}
		})
	}
}

func TestGetIntoTheWrongType(t *testing.T) {
	var h History
	h.Commit(0, diff(func(d *Diff) { noError(t, d.Set("p", "text")) }))
	if ok, err := h.View(everything).Get("p", new(int)); !ok || err == nil {
		t.Errorf("%t, %v", ok, err)
	}
	if err := new(Diff).Set("p", func() {}); err == nil {
		t.Error("a function was set")
	}
}

func TestRetryDropsDiffs(t *testing.T) {
	var h History
	for i := range 4 {
		h.Commit(i, diff(func(d *Diff) {
			noError(t, d.Append("log", i))
			noError(t, d.Set(fmt.Sprintf("by/%d", i), 1))
		}))
	}
	h.Drop(1, 2, 7)
	want := func(list, under string) {
		t.Helper()
		v := h.View(everything)
		if got := fmt.Sprintf("%s", v.List("log")); got != list {
			t.Errorf("log %s, not %s", got, list)
		}
		if got := fmt.Sprint(v.Under("by")); got != under {
			t.Errorf("by %s, not %s", got, under)
		}
	}
	want("[0 3]", "[0 3]")
	h.Commit(2, diff(func(d *Diff) { noError(t, d.Append("log", 22)) }))
	want("[0 3 22]", "[0 3]")
	// A second attempt's diff takes the place of the first's, at the place where it ended.
	h.Commit(0, diff(func(d *Diff) { noError(t, d.Append("log", 100)) }))
	want("[3 22 100]", "[3]")
	h.Commit(3, nil)
	want("[22 100]", "[]")
}

func TestParallelSteps(t *testing.T) {
	var h History
	var wg sync.WaitGroup
	const n = 64
	for i := range n {
		wg.Go(func() {
			var d Diff
			var inner sync.WaitGroup
			for j := range 4 {
				inner.Go(func() { _ = d.Append("log", i*10+j) })
			}
			inner.Wait()
			h.Commit(i, d.Ops())
			v := h.View(only(i))
			if got := len(v.List("log")); got != 4 {
				t.Errorf("step %d sees %d of its own", i, got)
			}
		})
	}
	wg.Wait()
	if got := len(h.View(everything).List("log")); got != 4*n {
		t.Errorf("%d entries", got)
	}
}

// TestViewsCostWhatTheyRead counts how often a view asks whether it sees a step: the length of the run must not matter.
func TestViewsCostWhatTheyRead(t *testing.T) {
	var h History
	for i := range 500 {
		h.Commit(i, diff(func(d *Diff) { noError(t, d.Set(Child("metadata/results", fmt.Sprint(i)), i)) }))
	}
	asked := 0
	v := h.View(func(int) bool { asked++; return true })
	var got int
	if ok, err := v.Get("metadata/results/499", &got); !ok || err != nil || got != 499 || asked != 1 {
		t.Errorf("%d, %t, %v, asked %d times", got, ok, err, asked)
	}
	if asked = 0; len(v.Under("metadata/results")) != 500 || asked != 500 {
		t.Errorf("asked %d times", asked)
	}
}

func TestDiffTravelsAsJSON(t *testing.T) {
	ops := diff(func(d *Diff) {
		noError(t, d.Set("a", map[string]int{"x": 1}))
		d.Unset("b")
	})
	b, err := json.Marshal(ops)
	noError(t, err)
	if string(b) != `[{"op":"set","path":"a","value":{"x":1}},{"op":"unset","path":"b"}]` {
		t.Errorf("%s", b)
	}
	var back []Op
	noError(t, json.Unmarshal(b, &back))
	var h History
	h.Commit(0, back)
	var a struct{ X int }
	if ok, err := h.View(everything).Get("a", &a); !ok || err != nil || a.X != 1 {
		t.Errorf("%+v, %t, %v", a, ok, err)
	}
}

func TestErrors(t *testing.T) {
	cause := errors.New("broken pipe")
	if err := Infra(cause); !IsInfra(fmt.Errorf("dial: %w", err)) || !errors.Is(err, cause) {
		t.Error("Infra is lost")
	}
	if Infra(nil) != nil {
		t.Error("Infra(nil)")
	}
	if !IsInfra(fmt.Errorf("exec: %w", guest.ErrGone)) || IsInfra(cause) {
		t.Error("IsInfra")
	}
	var e *Error
	if err := fmt.Errorf("run: %w", Errorf("TimeoutError", "after %w", cause)); !errors.As(err, &e) || e.Type != "TimeoutError" || !errors.Is(err, cause) {
		t.Errorf("%+v", e)
	}
}

// BenchmarkHistory is a chain of 500 steps that each read what the step before left, and leave something.
func BenchmarkHistory(b *testing.B) {
	for b.Loop() {
		var h History
		for i := range 500 {
			v := h.View(func(s int) bool { return s < i })
			var box []Sandbox
			if _, err := v.Get(SandboxesPath, &box); err != nil {
				b.Fatal(err)
			}
			var last Verification
			if ok, err := v.Get(Child(VerificationsPath, fmt.Sprint(i-1)), &last); ok != (i > 0) || err != nil {
				b.Fatal(ok, err)
			}
			var d Diff
			if i == 0 {
				_ = d.Append(SandboxesPath, Sandbox{Name: "box", ID: "b-1"})
			}
			if err := d.Set(Child(VerificationsPath, fmt.Sprint(i)), Verification{Score: 1, Results: []Row{{"criterion": "c", "score": 1}}}); err != nil {
				b.Fatal(err)
			}
			h.Commit(i, d.Ops())
		}
	}
}
