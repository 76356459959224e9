package verdicts_test

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store/mem"
	"agentenv.internal/agentenv/test/peer/verdicts"
)

const goldens = "testdata/verdicts.json"

// slow is more than any input may take.
const slow = 5 * time.Second

// stages reads a bundle as far as it can be planned. The error is a diag.Refusal, or one of the store.
func stages(ctx context.Context, dir, home string, v bundle.View, sel bundle.Selection) (*bundle.Plan, func(), error) {
	src, err := bundle.OpenFolder(dir, home)
	if err != nil {
		return nil, nil, err
	}
	done := func() { _ = src.Close() }
	b, l := bundle.Parse(src, bundle.Options{Kinds: step.Kinds()})
	if err := l.Err(); err != nil {
		return nil, done, err
	}
	if err := b.Resolve().Err(); err != nil {
		return nil, done, err
	}
	p, l, err := b.Plan(ctx, v, sel)
	if err == nil {
		err = l.Err()
	}
	return p, done, err
}

// homeFolder is an empty home folder.
func homeFolder(t *testing.T) string {
	t.Helper()
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return home
}

// judge is what this program says of an input that is laid out: the lines of its refusal, none where it takes the bundle.
func judge(t *testing.T, in verdicts.Input, dir, home string) (lines []string) {
	t.Helper()
	defer func() {
		if r := recover(); r != nil {
			t.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	st := mem.New(mem.Options{})
	if in.Before != nil {
		p, done, err := stages(t.Context(), filepath.Join(home, "before"), home, ledger.View(st), bundle.Selection{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ledger.Write(t.Context(), st, p, ledger.Options{}); err != nil {
			t.Fatal(err)
		}
		done()
	}
	if in.Bundle != "" && !filepath.IsAbs(in.Bundle) {
		dir += "/" + in.Bundle
	} else if in.Bundle != "" {
		dir = in.Bundle
	}
	began := time.Now()
	_, done, err := stages(t.Context(), dir, home, ledger.View(st), bundle.Selection{Tasks: in.Selected("--task"), Evals: in.Selected("--eval")})
	if took := time.Since(began); took > slow {
		t.Errorf("took %s", took)
	}
	if done != nil {
		done()
	}
	if err == nil {
		return nil
	}
	l, ok := diag.From(err)
	if !ok {
		t.Fatalf("no refusal: %v", err)
	}
	for _, p := range l.Of(diag.Error) {
		if p.Summary == "" {
			t.Errorf("a problem without words: %+v", p)
		}
		lines = append(lines, p.String())
	}
	return lines
}

// leaks are signs that a text shows what a program is made of.
var leaks = regexp.MustCompile(`\*?\b(bundle|doc|task|step|ref|diag|artifact|env|agent|fs|os|json|toml|yaml|errors|fmt|reflect|catalog|store|ledger|mem)\.[A-Z][a-zA-Z]+|interface ?\{|\bmap\[|\[\](string|byte|any)|\bstruct\b|%!|<nil>|\bnil\b|goroutine |\bpanic|0xc0|&\{|\.go:\d`)

// TestVerdicts holds this program's verdicts beside the peer's.
func TestVerdicts(t *testing.T) {
	peer, err := verdicts.Load(goldens)
	if err != nil {
		t.Fatal(err)
	}
	expected := verdicts.Deviations()
	seen := map[string]bool{}
	for _, in := range verdicts.Inputs() {
		if seen[in.Name] {
			t.Fatalf("two inputs are called %s", in.Name)
		}
		seen[in.Name] = true
		g, ok := peer[in.Name]
		if !ok || g.Input != in.Digest() {
			t.Errorf("%s: the peer hasn't been asked about this input as it is now; run the renew program", in.Name)
			continue
		}
		t.Run(in.Name, func(t *testing.T) {
			if in.CLI {
				t.Skip("only the whole program can judge it: the integration tests do")
			}
			home := homeFolder(t)
			dir, err := in.Lay(home)
			if err != nil {
				t.Fatal(err)
			}
			lines := judge(t, in, dir, home)
			checkLines(t, lines, home)
			compare(t, g, verdictOf(lines), verdicts.Places(lines, home), strings.Join(lines, "\n"), expected[in.Name])
		})
	}
	for name := range expected {
		if !seen[name] {
			t.Errorf("a deviation of an input that doesn't exist: %s", name)
		}
	}
	for name := range peer {
		if !seen[name] {
			t.Errorf("a verdict on an input that doesn't exist: %s", name)
		}
	}
}

func verdictOf(lines []string) verdicts.Verdict {
	if len(lines) == 0 {
		return verdicts.Accept
	}
	return verdicts.Refuse
}

// compare wants the peer's verdict and places, or the deviation that is listed.
func compare(t *testing.T, peer verdicts.Golden, got verdicts.Verdict, places []string, text string, d verdicts.Deviation) {
	t.Helper()
	if peer.Verdict == verdicts.Crash { // then it says nothing that could be compared
		if got != verdicts.Refuse {
			t.Errorf("the peer crashes, and the verdict is %s", got)
		}
		return
	}
	missing, extra := verdicts.Uncovered(peer.Places, places)
	same := got == peer.Verdict && len(missing) == 0 && len(extra) == 0
	switch {
	case d.Why != "" && same:
		t.Errorf("no deviation any more; take it out of the list (%s)", d.Why)
	case d.Why != "" && d.Verdict != got:
		t.Errorf("the verdict is %s, and the deviation that is listed is %s (%s)\n%s", got, d.Verdict, d.Why, text)
	case d.Why == "" && !same:
		t.Errorf("the peer says %s at %q\n got     %s at %q\n not named %q, not named by the peer %q\n%s", peer.Verdict, peer.Places, got, places, missing, extra, text)
	}
}

// checkLines holds what is true of every answer.
func checkLines(t *testing.T, lines []string, home string) {
	t.Helper()
	for _, line := range lines {
		if found := leaks.FindString(strings.ReplaceAll(line, home, "")); found != "" {
			t.Errorf("shows %q: %s", found, line)
		}
		if diag.Clean(line) != line {
			t.Errorf("isn't one clean line: %q", line)
		}
		if len(line) > 8<<10 {
			t.Errorf("a line of %d bytes: %.200s", len(line), line)
		}
	}
	if !slices.IsSorted(lines) {
		t.Errorf("not sorted: %q", lines)
	}
}

// TestPlaces holds what counts as a place.
func TestPlaces(t *testing.T) {
	for line, want := range map[string][]string{
		"artifacts/x: artifact.toml: environment_name is required: write it": {"artifacts/x: artifact.toml"},
		"artifacts/x: file.artifact: 'u' is a file":                          {"artifacts/x: file.artifact"},
		"artifacts/x/artifact.toml: id: has no end":                          {"artifacts/x/artifact.toml"},
		"tasks/t.json: step 'a b': artifacts[0].id: must be an id":           {"tasks/t.json: step 'a b': artifacts[0].id"},
		"tasks/t.json: step 'a': env_id: there is none":                      {"tasks/t.json: step 'a': env_id"},
		"tasks/t.json: Step 'a' at position 1 waits for 'b': no":             {"tasks/t.json: step 'a'"},
		"tasks/t.json: not valid JSON: x":                                    {"tasks/t.json"},
		"tasks/a:b.json: rename it: bad":                                     {"tasks/a:b.json"},
		`tasks/a\u0085.json: rename it`:                                      {`tasks/a\x85.json`},
		"tasks/e\u0301.json: rename it":                                      {"tasks/\u00e9.json"},
		"/home/x/b: no such folder":                                          {"$H/b"},
		"--task 'zz': this bundle has no task":                               {"--task 'zz'"},
		"tasks/T.json and tasks/t.json differ only in case; rename one":      {"tasks/T.json", "tasks/t.json"},
		"this bundle has no tasks or evals to run: x":                        {""},
		"aliases.toml: agents.a-1: is no alias":                              {"aliases.toml: agents.a-1"},
	} {
		if got := verdicts.Places([]string{line}, "/home/x"); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

func TestUncovered(t *testing.T) {
	missing, extra := verdicts.Uncovered([]string{"a", "b", "c: d"}, []string{"a: x", "b", "c", "e"})
	if fmt.Sprint(missing, extra) != "[c: d] [c e]" {
		t.Error(missing, extra)
	}
}
