package runlog

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// DefaultLimit is how many runs a page holds when the query doesn't say.
const DefaultLimit = 100

// RequestBuffer is how many requests wait in an owner's channel; more of them wait in the log.
const RequestBuffer = 64

// Prepare answers events as a log stores them: copied, with At filled in, in UTC and cut to microseconds.
func Prepare(es []Event, now time.Time) ([]Event, error) {
	out := slices.Clone(es)
	for i := range out {
		e := &out[i]
		if e.Kind == "" {
			return nil, errors.New("an event without a kind")
		}
		if e.At.IsZero() {
			e.At = now
		}
		e.At = e.At.UTC().Truncate(time.Microsecond)
		if len(e.Data) == 0 {
			e.Data = nil
		} else if !json.Valid(e.Data) {
			return nil, fmt.Errorf("%s: its data is no JSON", e.Kind)
		}
		e.Data = slices.Clone(e.Data)
	}
	return out, nil
}

// PrepareMeta answers a run's Meta as a log stores it.
func PrepareMeta(m Meta, now time.Time) (Meta, error) {
	if m.ID == "" {
		return m, errors.New("a run without an id")
	}
	if m.Created.IsZero() {
		m.Created = now
	}
	m.Created = m.Created.UTC().Truncate(time.Microsecond)
	if _, err := json.Marshal(m.Options); err != nil {
		return m, fmt.Errorf("the options of run %s: %w", m.ID, err)
	}
	return m, nil
}

// Seen is the status that people see of a run whose events fold to s: without an end and with nobody to drive it, it is interrupted.
// driven is true while an owner renews, and for a run that nobody claimed yet while the process that made it may live.
func (s Status) Seen(driven bool) Status {
	if s.Ended() || driven {
		return s
	}
	return Interrupted
}

// Wants tells whether a query selects the run. The status must be the one that people see.
func (q Query) Wants(s Summary) bool {
	return (q.Task == "" || s.Task == q.Task) && (q.Group == "" || s.Group == q.Group) && (q.Eval == "" || s.Eval == q.Eval) &&
		(len(q.Status) == 0 || slices.Contains(q.Status, s.Status))
}

// Cursor is what Page.Next spells: the last run of a page. Runs are listed by their creation, newest first, then by the order of Create.
type Cursor struct {
	Created int64 // microseconds
	Seq     int64
}

func (c Cursor) String() string {
	return strconv.FormatInt(c.Created, 36) + "." + strconv.FormatInt(c.Seq, 36)
}

// ParseCursor reads what Cursor.String spelled.
func ParseCursor(s string) (Cursor, error) {
	a, b, _ := strings.Cut(s, ".")
	created, err1 := strconv.ParseInt(a, 36, 64)
	seq, err2 := strconv.ParseInt(b, 36, 64)
	if err1 != nil || err2 != nil {
		return Cursor{}, errors.New("this is no page of a list; take the value from the page before")
	}
	return Cursor{created, seq}, nil
}

// Match tells whether text, as people type it, may mean the run id: a prefix or suffix of it, or a prefix of its last segment.
func Match(id, text string) bool {
	return text != "" && (strings.HasPrefix(id, text) || strings.HasSuffix(id, text) ||
		strings.HasPrefix(id[strings.LastIndexByte(id, '/')+1:], text))
}

// Pick is the run that text means among those that it matches, newest first.
func Pick(text string, matches []string) (string, error) {
	if slices.Contains(matches, text) {
		return text, nil
	}
	switch len(matches) {
	case 0:
		return "", fmt.Errorf("%q: %w", text, ErrNotFound)
	case 1:
		return matches[0], nil
	}
	const most = 5
	names, more := matches, ""
	if len(names) > most {
		more = fmt.Sprintf(" and %d more", len(names)-most)
		names = names[:most]
	}
	return "", fmt.Errorf("%q is the beginning or end of %d run ids: %s%s; type more of one", text, len(matches), strings.Join(names, ", "), more)
}

// NotFound is an error that names the run and is ErrNotFound.
func NotFound(run string) error { return fmt.Errorf("%s: %w", run, ErrNotFound) }

// Owned is an error that says who drives the run and is ErrOwned.
func Owned(run string, o OwnerInfo) error {
	return fmt.Errorf("%s: process %d on %s drives it: %w", run, o.PID, o.Host, ErrOwned)
}
