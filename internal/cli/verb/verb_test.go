package verb

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

func TestCode(t *testing.T) {
	for _, c := range []struct {
		err    error
		code   int
		silent bool
	}{
		{nil, Done, true},
		{errors.New("x"), Refused, false},
		{context.Canceled, Refused, false},
		{Exit(BelowScore), BelowScore, true},
		{Final(Done), Done, true},
		{Usagef("no %s", "x"), Usage, false},
		{fmt.Errorf("while: %w", Exit(7)), 7, true},
		{diag.List{{Summary: "x"}}.Err(), Refused, false},
	} {
		if Code(c.err) != c.code || Silent(c.err) != c.silent {
			t.Errorf("%v: %d, %v, want %d, %v", c.err, Code(c.err), Silent(c.err), c.code, c.silent)
		}
	}
}

func TestParseDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"90": 90 * time.Second, "90s": 90 * time.Second, "15m": 15 * time.Minute, "0.5": 500 * time.Millisecond, "1h30m": 90 * time.Minute, "0": 0,
	} {
		if got, err := ParseDuration(text); err != nil || got != want {
			t.Errorf("%s: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "soon", "-1", "-5m", "1e10", "NaN", "inf", "5 m"} {
		if got, err := ParseDuration(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

func TestSpelling(t *testing.T) {
	for v, want := range map[float64]string{1: "1", 0: "0", 0.5: "0.5", 2.0 / 3: "0.6667", 0.00001: "0", 100: "100"} {
		if got := Score(v); got != want {
			t.Errorf("score %v: %q, want %q", v, got, want)
		}
	}
	if got := Scores(map[string]float64{"b": 1, "a": 0.25}); got != "a: 0.25, b: 1" {
		t.Error(got)
	}
	s, _, _ := term.Buffers("")
	at := time.Date(2026, 11, 30, 12, 0, 0, 999, time.FixedZone("", 3600))
	if got := Time(s, at); got != "2026-11-30T11:00:00Z" {
		t.Error(got)
	}
	if Time(s, time.Time{}) != "" {
		t.Error("no time is spelled")
	}
}

func TestProblems(t *testing.T) {
	got := Problems(diag.List{
		{Severity: diag.Hint, Summary: "h"},
		{Pos: diag.Pos{File: "b", Line: 2, Col: 3}, Where: "x", Code: "c", Summary: "is wrong", Fix: "mend it"},
		{Severity: diag.Warning, Summary: "w"},
		{Pos: diag.Pos{File: "a"}, Summary: "first"},
	})
	want := []Problem{
		{Severity: "error", File: "a", Summary: "first", Text: "a: first"},
		{Severity: "error", Code: "c", File: "b", Line: 2, Column: 3, Where: "x", Summary: "is wrong", Fix: "mend it", Text: "b:2: x: is wrong; mend it"},
		{Severity: "warning", Summary: "w", Text: "w"},
		{Severity: "hint", Summary: "h", Text: "h"},
	}
	if len(got) != len(want) {
		t.Fatal(got)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%+v, want %+v", got[i], want[i])
		}
	}
}
