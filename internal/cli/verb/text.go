package verb

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/term"
)

// Time spells a moment: for a person in local time, for a program in RFC 3339.
func Time(s *term.Streams, t time.Time) string {
	switch {
	case t.IsZero():
		return ""
	case s.OutTTY:
		return t.Local().Format(time.DateTime)
	default:
		return t.UTC().Format(time.RFC3339)
	}
}

// Took spells a duration in seconds, as summaries do: "0.2s".
func Took(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s" }

// Score spells a score: no more than four digits after the point, and none that say nothing.
func Score(v float64) string {
	text := strconv.FormatFloat(v, 'f', 4, 64)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}

// TakenOver is what stands beside the scores of a run that a person's hand was in.
const TakenOver = "a person took over"

// Scores spells scores by verifier: "hello: 1, style: 0.5".
func Scores(scores map[string]float64) string {
	var parts []string
	for _, id := range slices.Sorted(maps.Keys(scores)) {
		parts = append(parts, id+": "+Score(scores[id]))
	}
	return strings.Join(parts, ", ")
}

// Levels are what --isolation takes, weakest first.
func Levels() []string {
	return []string{sandbox.LevelNone, sandbox.LevelNamespaces, sandbox.LevelContainer}
}

// Reference reads ID or ID:VERSION; version 0 is the latest.
func Reference(text string) (id string, version int, err error) {
	id, v, pinned := strings.Cut(text, ":")
	if pinned {
		if version, err = strconv.Atoi(v); err != nil || version < 1 {
			return "", 0, Usagef("%q is no reference; write ID or ID:VERSION", text)
		}
	}
	return id, version, nil
}

// ParseDuration reads a duration as flags take it: "90" and "90s" are seconds, "15m", "2h".
func ParseDuration(text string) (time.Duration, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if !(n >= 0 && n <= 1e9) { // NaN is neither
			return 0, fmt.Errorf("%q is no length of time", text)
		}
		return time.Duration(n * float64(time.Second)), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is no length of time; write 90, 90s or 15m", text)
	}
	return d, nil
}

// Duration is a flag that ParseDuration reads.
type Duration time.Duration

func (d *Duration) Set(text string) error {
	v, err := ParseDuration(text)
	*d = Duration(v)
	return err
}

func (d *Duration) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

func (d *Duration) Type() string { return "duration" }

// Probe prints one thing that was tried in a sandbox and whether it was withstood.
func Probe(s *term.Streams, p sandbox.Probe) {
	mark := s.OutColors().Green("holds")
	switch {
	case p.OK:
	case p.Warning:
		mark = s.OutColors().Yellow("lacks")
	default:
		mark = s.OutColors().Red("BROKEN")
	}
	detail := p.Detail
	if p.Fix != "" {
		detail += " (" + p.Fix + ")"
	}
	s.Printf("%s\n", strings.TrimRight(fmt.Sprintf("  %-24s %s  %s", p.Name, mark, term.Clean(detail)), " "))
}

// Limit prints what holds a sandbox to one limit.
func Limit(s *term.Streams, name, by string) {
	if by != "none" {
		by = "by " + by
	}
	s.Printf("  %-24s %s\n", name+" limit", by)
}
