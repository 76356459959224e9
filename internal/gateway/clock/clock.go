// Package clock is an environment's virtual time: what agents and servers are told it is.
//
// A clock is armed at a virtual time t0 and runs from then on at a rate, by the real time that has passed; reading it moves nothing. An armed clock never
// fails to answer: at the end of the calendar it stands still.
package clock

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/lazyregexp"
)

// MaxRate is the most virtual seconds that may pass in a real one: a day.
const MaxRate = 86400

// ErrInvalid is wrapped by the errors about times, rates and durations that can't be taken.
var ErrInvalid = errors.New("invalid")

var (
	maxTime = time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)
	minTime = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
)

// Clock is unarmed at first. Its methods may be called from several goroutines.
type Clock struct {
	real func() time.Time

	mu         sync.Mutex
	armed      bool
	t0         time.Time
	rate       float64
	anchor     time.Time // real time at which the clock was armed or cleared
	lived      float64   // virtual seconds up to anchor
	generation uint64
}

// New makes an unarmed clock over the given real time; nil is time.Now.
func New(realTime func() time.Time) *Clock {
	if realTime == nil {
		realTime = time.Now
	}
	return &Clock{real: realTime, rate: 1, anchor: realTime()}
}

// State is what a clock is at one moment.
type State struct {
	Armed bool
	T0    time.Time
	Rate  float64
	Now   time.Time
}

// Saved is a clock as it is kept in a file.
type Saved struct {
	Armed  bool      `json:"armed"`
	T0     time.Time `json:"t0,omitzero"`
	Rate   float64   `json:"rate"`
	Anchor time.Time `json:"anchor"`
	Lived  float64   `json:"lived"`
}

// Set arms the clock, or arms it anew, so that it is now t0. A t0 that would reach the end of the calendar within a real day is refused.
func (c *Clock) Set(t0 time.Time, rate float64) (State, error) {
	if err := CheckRate(rate); err != nil {
		return State{}, err
	}
	if t0.After(Advance(maxTime, -MaxRate*rate)) || t0.Before(minTime) {
		return State{}, fmt.Errorf("%w: virtual_time %s at rate %g would pass the end of the calendar within a day", ErrInvalid, Format(t0), rate)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(&t0)
	c.armed, c.t0, c.rate = true, t0.UTC(), rate
	c.generation++
	return c.state(), nil
}

// Clear disarms the clock; clearing twice changes nothing.
func (c *Clock) Clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settle(nil)
	c.armed, c.t0, c.rate = false, time.Time{}, 1
	c.generation++
}

// settle counts the stretch that ends now. A jump forward is time that was lived through, one back is none.
func (c *Clock) settle(next *time.Time) {
	now := c.real()
	ran := now.Sub(c.anchor).Seconds() * c.rate
	c.lived += ran
	if next != nil && c.armed {
		c.lived += max(0, next.Sub(Advance(c.t0, ran)).Seconds())
	}
	c.anchor = now
}

// State is the clock now.
func (c *Clock) State() State {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state()
}

func (c *Clock) state() State {
	if !c.armed {
		return State{Rate: 1}
	}
	return State{true, c.t0, c.rate, Advance(c.t0, c.real().Sub(c.anchor).Seconds()*c.rate)}
}

// Now is the virtual time; false while unarmed.
func (c *Clock) Now() (time.Time, bool) {
	s := c.State()
	return s.Now, s.Armed
}

// Generation counts how often the clock was armed or cleared.
func (c *Clock) Generation() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.generation
}

// Elapsed is how many virtual seconds have passed since the clock was made: at the rate of each stretch, 1 while unarmed.
func (c *Clock) Elapsed() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lived + c.real().Sub(c.anchor).Seconds()*c.rate
}

// Real is how long virtual seconds take at the present rate; false when they never pass.
func (c *Clock) Real(virtual float64) (time.Duration, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rate == 0 {
		return 0, false
	}
	return time.Duration(min(virtual/c.rate, 1e9) * float64(time.Second)), true
}

// Save is the clock for a file.
func (c *Clock) Save() Saved {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Saved{c.armed, c.t0, c.rate, c.anchor.UTC().Round(0), c.lived}
}

// Restore goes on with a clock from a file: what passed in between has passed.
func (c *Clock) Restore(s Saved) error {
	if err := CheckRate(s.Rate); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed, c.t0, c.rate, c.anchor, c.lived = s.Armed, s.T0.UTC(), s.Rate, s.Anchor, s.Lived
	c.generation++
	return nil
}

// CheckRate refuses what is no rate.
func CheckRate(rate float64) error {
	if math.IsNaN(rate) || math.IsInf(rate, 0) || rate < 0 || rate > MaxRate {
		return fmt.Errorf("%w: a rate is a number from 0 to %d, not %g", ErrInvalid, MaxRate, rate)
	}
	return nil
}

// Advance is t and so many seconds; it stops at the ends of the calendar.
func Advance(t time.Time, seconds float64) time.Time {
	const ages, durations = 4e11, 9e9 // seconds: beyond the calendar; what a time.Duration holds
	if seconds > ages {
		return maxTime
	}
	if seconds < -ages {
		return minTime
	}
	if math.Abs(seconds) > durations {
		days := math.Trunc(seconds / 86400)
		t, seconds = t.AddDate(0, 0, int(days)), seconds-days*86400
	}
	t = t.Add(time.Duration(seconds * float64(time.Second)))
	if t.After(maxTime) {
		return maxTime
	}
	if t.Before(minTime) {
		return minTime
	}
	return t
}

// Format spells a time as RFC 3339 in UTC, with microseconds where there are some.
func Format(t time.Time) string {
	t = t.UTC().Truncate(time.Microsecond)
	if t.Nanosecond() == 0 {
		return t.Format("2006-01-02T15:04:05Z")
	}
	return t.Format("2006-01-02T15:04:05.000000Z")
}

var timeGrammar = lazyregexp.New(`^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})$`)

// ParseTime reads YYYY-MM-DDThh:mm:ss[.f](Z|±hh:mm); a space may stand for the T.
func ParseTime(s string) (time.Time, error) {
	bad := fmt.Errorf("%w: %q is no time of the form YYYY-MM-DDThh:mm:ss[.f](Z|+hh:mm)", ErrInvalid, s)
	if !timeGrammar().MatchString(s) {
		return time.Time{}, bad
	}
	b := []byte(s)
	b[10] = 'T'
	if last := len(b) - 1; b[last] == 'z' {
		b[last] = 'Z'
	}
	t, err := time.Parse(time.RFC3339Nano, string(b))
	if err != nil || t.UTC().Year() < 1 || t.UTC().Year() > 9999 {
		return time.Time{}, bad
	}
	return t.UTC(), nil
}

var durationGrammar = lazyregexp.New(`^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)

// ParseDuration reads an ISO 8601 duration of weeks, days, hours, minutes and seconds, in seconds: years and months have no fixed length.
func ParseDuration(s string) (float64, error) {
	m := durationGrammar().FindStringSubmatch(s)
	total, any := 0.0, false
	for i, unit := range [...]float64{7 * 86400, 86400, 3600, 60, 1} {
		if m == nil || m[i+1] == "" {
			continue
		}
		n, err := strconv.ParseFloat(m[i+1], 64)
		if err != nil {
			any = false
			break
		}
		total, any = total+n*unit, true
	}
	if !any || total > 999999999*86400 {
		return 0, fmt.Errorf("%w: %q is no ISO 8601 duration such as PT30M, PT24H or P1DT6H", ErrInvalid, s)
	}
	return total, nil
}

// IsDuration tells a duration from a time by its first letter.
func IsDuration(s string) bool { return len(s) > 0 && s[0] == 'P' }
