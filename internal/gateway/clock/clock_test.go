package clock_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/gateway/clock"
)

func at(t *testing.T, s string) time.Time {
	t.Helper()
	v, err := clock.ParseTime(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestClock(t *testing.T) {
	real := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := clock.New(func() time.Time { return real })
	if _, armed := c.Now(); armed {
		t.Fatal("a new clock is armed")
	}
	real = real.Add(10 * time.Second) // unarmed time counts once
	if _, err := c.Set(at(t, "2030-01-02T03:04:05+01:00"), 60); err != nil {
		t.Fatal(err)
	}
	real = real.Add(2500 * time.Millisecond)
	if now, _ := c.Now(); clock.Format(now) != "2030-01-02T02:06:35Z" {
		t.Errorf("now %s", clock.Format(now))
	}
	if e := c.Elapsed(); e != 160 {
		t.Errorf("elapsed %v", e)
	}
	if d, ok := c.Real(120); !ok || d != 2*time.Second {
		t.Errorf("120 virtual seconds take %v, %v", d, ok)
	}
	// A jump forward has been lived through, one back hasn't.
	if _, err := c.Set(at(t, "2030-01-02T03:06:35Z"), 0); err != nil {
		t.Fatal(err)
	}
	if e := c.Elapsed(); e != 160+3600 {
		t.Errorf("elapsed %v after a jump forward", e)
	}
	if _, err := c.Set(at(t, "2029-01-01T00:00:00Z"), 0); err != nil {
		t.Fatal(err)
	}
	real = real.Add(time.Hour)
	if e := c.Elapsed(); e != 160+3600 {
		t.Errorf("elapsed %v of a clock that stands", e)
	}
	if _, runs := c.Real(1); runs {
		t.Error("a clock that stands reaches a later time")
	}
	c.Clear()
	c.Clear()
	if _, armed := c.Now(); armed || c.Generation() != 5 {
		t.Errorf("armed %v, generation %d", armed, c.Generation())
	}
}

func TestRestoreGoesOn(t *testing.T) {
	real := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	now := func() time.Time { return real }
	c := clock.New(now)
	if _, err := c.Set(at(t, "2030-01-01T00:00:00Z"), 2); err != nil {
		t.Fatal(err)
	}
	saved := c.Save()
	real = real.Add(time.Minute)
	again := clock.New(now)
	if err := again.Restore(saved); err != nil {
		t.Fatal(err)
	}
	if v, _ := again.Now(); clock.Format(v) != "2030-01-01T00:02:00Z" {
		t.Errorf("restored clock shows %s", clock.Format(v))
	}
}

// TestCalendarsEnd: an armed clock always answers, and refuses what would pass the end within a day.
func TestCalendarsEnd(t *testing.T) {
	real := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := clock.New(func() time.Time { return real })
	if _, err := c.Set(at(t, "9999-12-31T00:00:00Z"), 1); !errors.Is(err, clock.ErrInvalid) {
		t.Errorf("a time hours before the end: %v", err)
	}
	if _, err := c.Set(at(t, "9000-01-01T00:00:00Z"), clock.MaxRate); err != nil {
		t.Fatal(err)
	}
	real = real.AddDate(50, 0, 0)
	if now, ok := c.Now(); !ok || now.Year() != 9999 {
		t.Errorf("now %v, %v", now, ok)
	}
	for _, rate := range []float64{-1, 86401, math.NaN(), math.Inf(1)} {
		if _, err := c.Set(at(t, "2030-01-01T00:00:00Z"), rate); !errors.Is(err, clock.ErrInvalid) {
			t.Errorf("rate %v: %v", rate, err)
		}
	}
}

func TestParse(t *testing.T) {
	for _, s := range []string{"", "2030-01-02", "2030-01-02T03:04Z", "2030-01-02T03:04:05", " 2030-01-02T03:04:05Z", "20300102T030405Z", "2030-13-02T03:04:05Z", "2030-01-02T03:04:05+01", "2030-W01-1T00:00:00Z"} {
		if v, err := clock.ParseTime(s); err == nil {
			t.Errorf("ParseTime(%q) = %v", s, v)
		}
	}
	for s, want := range map[string]float64{"PT24H": 86400, "P1DT6H": 108000, "PT30M": 1800, "P2W": 1209600, "PT0.5S": 0.5} {
		if got, err := clock.ParseDuration(s); err != nil || got != want {
			t.Errorf("ParseDuration(%q) = %v, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "P", "PT", "P1Y", "P1M", "1H", "PT1.5H", "-PT1S", "P99999999999999999999W"} {
		if got, err := clock.ParseDuration(s); err == nil {
			t.Errorf("ParseDuration(%q) = %v", s, got)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("2030-01-02 03:04:05.5z")
	f.Add("P1DT6H")
	f.Fuzz(func(t *testing.T, s string) {
		if v, err := clock.ParseTime(s); err == nil {
			if again, err := clock.ParseTime(clock.Format(v)); err != nil || again.Sub(v).Abs() > time.Microsecond {
				t.Errorf("%q is %v and comes back as %v, %v", s, v, again, err)
			}
		}
		if d, err := clock.ParseDuration(s); err == nil && (d < 0 || math.IsNaN(d)) {
			t.Errorf("%q takes %v", s, d)
		}
	})
}
