package trigger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/lazyregexp"
)

// hours are when an executor works, by their own day's clock.
type hours struct {
	Start  string   `json:"start"`
	End    string   `json:"end"` // of the next day when it isn't after Start
	Days   []string `json:"days"`
	Offset string   `json:"utc_offset,omitempty"`
	Zone   string   `json:"time_zone,omitempty"`
}

var (
	weekdays      = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} // as time.Weekday counts
	hourGrammar   = lazyregexp.New(`^([01]\d|2[0-3]):[0-5]\d$`)
	offsetGrammar = lazyregexp.New(`^[+-]([01]\d|2[0-3]):[0-5]\d$`)
)

func readHours(v any, w string) (*hours, error) {
	obj, ok := v.(map[string]any)
	if !ok {
		return nil, bad("%s.hours must be an object {start, end, utc_offset or time_zone, days}", w)
	}
	h := &hours{Start: textOf(obj, "start"), End: textOf(obj, "end"), Days: slices.Clone(weekdays)}
	switch {
	case !hourGrammar().MatchString(h.Start) || !hourGrammar().MatchString(h.End):
		return nil, bad("%s.hours: start and end are times of day, HH:MM", w)
	case h.Start == h.End:
		return nil, bad("%s.hours: start is end, so nobody would ever work", w)
	}
	zone, hasZone := present(obj, "time_zone")
	offset, hasOffset := present(obj, "utc_offset")
	if hasZone && hasOffset {
		return nil, bad("%s.hours take utc_offset or time_zone, not both", w)
	}
	if hasZone {
		h.Zone, _ = zone.(string)
		if _, err := time.LoadLocation(h.Zone); err != nil || h.Zone == "" || h.Zone == "Local" {
			return nil, bad("%s.hours.time_zone must be an IANA time zone such as 'Europe/Paris', not %v", w, zone)
		}
	} else {
		if h.Offset = "+00:00"; hasOffset {
			h.Offset, _ = offset.(string)
		}
		if !offsetGrammar().MatchString(h.Offset) {
			return nil, bad("%s.hours.utc_offset must be ±HH:MM", w)
		}
	}
	if days, ok := present(obj, "days"); ok {
		list, ok := texts(days)
		if !ok || len(list) == 0 || slices.ContainsFunc(list, func(d string) bool { return !slices.Contains(weekdays, d) }) {
			return nil, bad("%s.hours.days must be a non-empty list of %s", w, strings.Join(weekdays, ", "))
		}
		h.Days = list
	}
	return h, nil
}

func (h *hours) location() *time.Location {
	if h.Zone != "" {
		if loc, err := time.LoadLocation(h.Zone); err == nil { // it was checked
			return loc
		}
	}
	var hh, mm int
	_, _ = fmt.Sscanf(h.Offset[1:], "%d:%d", &hh, &mm) // it was checked
	seconds := hh*3600 + mm*60
	if h.Offset[0] == '-' {
		seconds = -seconds
	}
	return time.FixedZone(h.Offset, seconds)
}

func minutes(hhmm string) int {
	h, _ := strconv.Atoi(hhmm[:2]) // it was checked
	m, _ := strconv.Atoi(hhmm[3:])
	return h*60 + m
}

// opening is when the hours open next; false when they are open at now.
func (h *hours) opening(now time.Time) (time.Time, bool) {
	loc := h.location()
	start, end := minutes(h.Start), minutes(h.End)
	if end <= start {
		end += 24 * 60
	}
	today := now.In(loc)
	for ahead := -1; ahead < 15; ahead++ {
		y, m, d := today.AddDate(0, 0, ahead).Date()
		// The day of an instant near noon is the day that is meant, whatever the zone does at midnight.
		if day := time.Date(y, m, d, 12, 0, 0, 0, loc).Weekday(); !slices.Contains(h.Days, weekdays[day]) {
			continue
		}
		opens, closes := instant(y, m, d, start, loc), instant(y, m, d, end, loc)
		switch {
		case !closes.After(opens): // a day that skips its hours
		case !now.Before(opens) && now.Before(closes):
			return time.Time{}, false
		case opens.After(now):
			return opens, true
		}
	}
	return time.Time{}, false
}

// instant is when the clocks of loc show a time of day: the first time when they show it twice, and the moment at which they jump over it when never.
func instant(y int, m time.Month, d, minute int, loc *time.Location) time.Time {
	t := time.Date(y, m, d, 0, minute, 0, 0, loc)
	wall := time.Date(y, m, d, 0, minute, 0, 0, time.UTC)
	shown := func(t time.Time) time.Time {
		l := t.In(loc)
		return time.Date(l.Year(), l.Month(), l.Day(), l.Hour(), l.Minute(), l.Second(), 0, time.UTC)
	}
	if shown(t).Equal(wall) {
		if earlier := t.Add(-time.Hour); shown(earlier).Equal(wall) {
			return earlier
		}
		return t
	}
	lo, hi := t.Add(-3*time.Hour), t.Add(3*time.Hour) // the jump is in between
	for hi.Sub(lo) > time.Second {
		mid := lo.Add(hi.Sub(lo) / 2)
		if shown(mid).Before(wall) {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi.Truncate(time.Second)
}
