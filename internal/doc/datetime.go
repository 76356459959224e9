package doc

import (
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/lazyregexp"
)

// datetime is TOML 1.0's four forms: an offset or local date-time, a local date, a local time.
var datetime = lazyregexp.New(`^(?:(\d{4}-\d\d-\d\d)(?:[Tt ](\d\d:\d\d:\d\d)(\.\d+)?([Zz]|[+-]\d\d:\d\d)?)?|(\d\d:\d\d:\d\d)(\.\d+)?)$`)

// validDatetime tells whether s is one of the four forms and names a day and a time that exist.
func validDatetime(s string) bool {
	m := datetime().FindStringSubmatch(s)
	if m == nil {
		return false
	}
	date, clock, zone := m[1], m[2]+m[5], m[4]
	if date != "" {
		if d, err := time.Parse(time.DateOnly, date); err != nil || d.Year() < 1 {
			return false
		}
	}
	if clock != "" {
		if _, err := time.Parse(time.TimeOnly, clock); err != nil {
			return false
		}
	}
	if len(zone) > 1 {
		if _, err := time.Parse("15:04", zone[1:]); err != nil {
			return false
		}
	}
	return true
}

// isoformat spells a valid date-time as Python's isoformat does: microseconds or no fraction, T, a numeric offset.
func isoformat(s string) string {
	m := datetime().FindStringSubmatch(s)
	if m == nil {
		return s
	}
	fraction := m[3] + m[6]
	if fraction != "" {
		fraction = (fraction + "000000")[:7]
		if fraction == ".000000" {
			fraction = ""
		}
	}
	zone := strings.ToUpper(m[4])
	if zone == "Z" || zone == "-00:00" {
		zone = "+00:00"
	}
	switch {
	case m[5] != "":
		return m[5] + fraction
	case m[2] == "":
		return m[1]
	default:
		return m[1] + "T" + m[2] + fraction + zone
	}
}
