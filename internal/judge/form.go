package judge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// form is how one case is asked and read. Criteria go by c1, c2, …, so that ids of authors never confuse a judge.
type form struct {
	c        *Case
	criteria string
	rules    string
	schema   json.RawMessage
}

func formOf(c Case) (*form, error) {
	f := &form{c: &c}
	if len(c.Criteria) == 0 && c.Format != Mistakes {
		return nil, errors.New("there are no criteria to judge by")
	}
	var list []map[string]any
	for i, k := range c.Criteria {
		e := map[string]any{"id": name(i), "criterion": k.Text}
		if k.Weight < 0 {
			e["must_not_be"] = true
		}
		if c.Format == Partial && k.Outcomes != nil {
			var os []map[string]any
			for _, o := range k.Outcomes {
				os = append(os, map[string]any{"label": o.Label, "score": o.Score})
			}
			e["scores"] = os
		} else if c.Format == Partial && k.Range != nil {
			e["lowest"], e["highest"] = k.Range[0], k.Range[1]
		}
		list = append(list, e)
	}
	b, err := json.MarshalIndent(list, "", " ")
	if err != nil {
		return nil, fmt.Errorf("the criteria can't be written: %w", err)
	}
	f.criteria = string(b)
	row := `"id":{"type":"string"},"score":{"type":"number"},"justification":{"type":"string"}`
	need := `"id","score","justification"`
	f.rules = "Give every criterion exactly one entry in results, by its id, with a justification that names what you saw. "
	switch c.Format {
	case Binary:
		f.rules += "score is 1 when it holds and 0 when it does not; nothing between."
	case Partial:
		f.rules += "score is one of the criterion's scores where it lists any, a number from its lowest to its highest where it names them, and else a number from 0 to 1."
	case Evidence:
		f.rules += "score is 1 or 0. frame is the name of the frame that shows it, or an empty text; evidence_status is one of " + strings.Join(statuses, ", ") + "."
		row += `,"frame":{"type":"string"},"evidence_status":{"type":"string"}`
		need += `,"frame","evidence_status"`
	case Mistakes:
		f.criteria = "" // steps are judged, not criteria
		f.rules = "List in findings every mistake of the agent: severity (low, medium, high, critical), the number of its step, what it should have done, and a description. " +
			"coverage is the share, from 0 to 1, of what it was asked that it did. botched is true when it made things worse than they were. summary is one sentence."
		f.schema = json.RawMessage(`{"type":"object","properties":{"findings":{"type":"array","items":{"type":"object","properties":{"severity":{"type":"string","enum":["low","medium","high","critical"]},` +
			`"step":{"type":"integer"},"should":{"type":"string"},"description":{"type":"string"}},"required":["severity","step","should","description"],"additionalProperties":false}},` +
			`"coverage":{"type":"number"},"botched":{"type":"boolean"},"summary":{"type":"string"}},"required":["findings","coverage","botched","summary"],"additionalProperties":false}`)
		return f, nil
	default:
		return nil, fmt.Errorf("%q is no format of verdicts", c.Format)
	}
	f.rules += " Where must_not_be is true, first decide whether the thing is there: score 1 when it is absent, 0 when it is present."
	f.schema = json.RawMessage(`{"type":"object","properties":{"results":{"type":"array","items":{"type":"object","properties":{` + row + `},"required":[` + need + `],"additionalProperties":false}}},"required":["results"],"additionalProperties":false}`)
	return f, nil
}

func name(i int) string { return "c" + strconv.Itoa(i+1) }

// read reads an answer. An error says what is wrong with it, in words for the judge.
func (f *form) read(raw string) (Verdict, error) {
	b, err := only(raw)
	if err != nil {
		return Verdict{}, err
	}
	if f.c.Format == Mistakes {
		return readMistakes(b)
	}
	var in struct {
		Results []struct {
			ID            *string         `json:"id"`
			Score         json.RawMessage `json:"score"`
			Justification *string         `json:"justification"`
			Frame         *string         `json:"frame"`
			Status        *string         `json:"evidence_status"`
		} `json:"results"`
	}
	if err := strict(b, &in); err != nil {
		return Verdict{}, err
	}
	rows := make([]*Row, len(f.c.Criteria))
	for i, r := range in.Results {
		where := fmt.Sprintf("results[%d]", i)
		if r.ID == nil || r.Justification == nil || strings.TrimSpace(*r.Justification) == "" {
			return Verdict{}, fmt.Errorf("%s lacks an id or a justification", where)
		}
		k := f.index(*r.ID)
		if k < 0 {
			return Verdict{}, fmt.Errorf("%s has the id %q, which no criterion has", where, *r.ID)
		}
		if rows[k] != nil {
			return Verdict{}, fmt.Errorf("%s is the second for %s", where, *r.ID)
		}
		row := Row{ID: f.c.Criteria[k].ID, Justification: *r.Justification}
		if err := f.score(&row, &f.c.Criteria[k], r.Score); err != nil {
			return Verdict{}, fmt.Errorf("%s: %w", where, err)
		}
		if f.c.Format == Evidence {
			if err := f.evidence(&row, r.Frame, r.Status); err != nil {
				return Verdict{}, fmt.Errorf("%s: %w", where, err)
			}
		}
		rows[k] = &row
	}
	var v Verdict
	for i, r := range rows {
		if r == nil {
			return Verdict{}, fmt.Errorf("there is no entry for %s", name(i))
		}
		v.Rows = append(v.Rows, *r)
	}
	if f.c.Batch {
		return v, lazy(v.Rows)
	}
	return v, nil
}

const (
	// shortest is how many characters a justification has that says something.
	shortest = 20
	// alike is how many rows may share a justification, beside a quarter of them.
	alike = 5
)

// lazy refuses rows that were not judged one by one.
func lazy(rows []Row) error {
	said, short := map[string]int{}, 0
	for _, r := range rows {
		j := strings.TrimSpace(r.Justification)
		said[j]++
		if len(j) < shortest {
			short++
		}
		if n := said[j]; n >= alike && 4*n >= len(rows) {
			return fmt.Errorf("%d entries have one justification; judge each by itself", n)
		}
	}
	if 2*short >= len(rows) {
		return fmt.Errorf("%d of %d justifications say hardly anything", short, len(rows))
	}
	return nil
}

func (f *form) index(id string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "c"))
	if err != nil || n < 1 || n > len(f.c.Criteria) || name(n-1) != id {
		return -1
	}
	return n - 1
}

// score reads a number, and nothing else for one: no text, no bool, no null.
func (f *form) score(r *Row, k *Criterion, raw json.RawMessage) error {
	var s float64
	if len(raw) == 0 || bytes.IndexByte([]byte("-0123456789"), raw[0]) < 0 || json.Unmarshal(raw, &s) != nil || math.IsNaN(s) || math.IsInf(s, 0) {
		return errors.New("score is not a number")
	}
	r.Raw, r.Score = s, s
	if f.c.Format != Partial {
		if s != 0 && s != 1 {
			return fmt.Errorf("score is %v, and only 0 and 1 are possible", s)
		}
		r.Pass = s == 1
		return nil
	}
	low, high := 0.0, 1.0
	switch {
	case k.Outcomes != nil:
		ok := false
		var known []string
		for _, o := range k.Outcomes {
			ok = ok || near(o.Score, s)
			known = append(known, strconv.FormatFloat(o.Score, 'g', -1, 64))
			low, high = min(low, o.Score), max(high, o.Score)
		}
		if !ok {
			return fmt.Errorf("score is %v, and only %s are possible", s, strings.Join(known, ", "))
		}
	case k.Range != nil:
		low, high = k.Range[0], k.Range[1]
	}
	if s < low || s > high {
		return fmt.Errorf("score is %v, which is not from %v to %v", s, low, high)
	}
	if high > low {
		r.Score = (s - low) / (high - low)
	}
	at := k.PassAt
	if at == 0 {
		at = 0.5
	}
	r.Pass = r.Score >= at
	return nil
}

// statuses are what may be said of evidence; the last five of them can't carry a score.
var statuses = []string{"visible", "not_applicable", "missing", "contradicted", "blocked", "unavailable", "ambiguous"}

func (f *form) evidence(r *Row, frame, status *string) error {
	if frame == nil || status == nil {
		return errors.New("frame or evidence_status is missing")
	}
	known := false
	for i, s := range statuses {
		if s != *status {
			continue
		}
		known = true
		if i >= 3 { // contradicted, blocked, unavailable, ambiguous
			r.Score, r.Pass = 0, false
		}
	}
	if !known {
		return fmt.Errorf("evidence_status %q is none of %s", *status, strings.Join(statuses, ", "))
	}
	if *frame != "" {
		there := false
		for _, fr := range f.c.Frames {
			there = there || fr.Name == *frame
		}
		if !there {
			return fmt.Errorf("there is no frame %q", *frame)
		}
	}
	r.Frame, r.Status = *frame, *status
	return nil
}

// Finding is one mistake.
type Finding struct {
	Severity    string `json:"severity"`
	Step        int    `json:"step"`
	Should      string `json:"should"`
	Description string `json:"description"`
}

// penalties are taken off the coverage.
var penalties = map[string]float64{"low": 0.02, "medium": 0.08, "high": 0.25, "critical": 1}

func readMistakes(b []byte) (Verdict, error) {
	var in struct {
		Findings *[]Finding `json:"findings"`
		Coverage *float64   `json:"coverage"`
		Botched  *bool      `json:"botched"`
		Summary  *string    `json:"summary"`
	}
	if err := strict(b, &in); err != nil {
		return Verdict{}, err
	}
	if in.Findings == nil || in.Coverage == nil || in.Botched == nil || in.Summary == nil {
		return Verdict{}, errors.New("findings, coverage, botched or summary is missing")
	}
	if *in.Coverage < 0 || *in.Coverage > 1 {
		return Verdict{}, fmt.Errorf("coverage is %v, which is not from 0 to 1", *in.Coverage)
	}
	score := *in.Coverage
	for i, f := range *in.Findings {
		p, ok := penalties[f.Severity]
		if !ok {
			return Verdict{}, fmt.Errorf("findings[%d] has the severity %q, which is none of low, medium, high, critical", i, f.Severity)
		}
		score -= p
	}
	if *in.Botched {
		score = 0
	}
	score = max(0, score)
	return Verdict{Findings: *in.Findings, Coverage: *in.Coverage, Summary: *in.Summary, Score: &score}, nil
}

// only is the one JSON object of an answer: all of it, or all that a fence holds. A second one, or words that hold one, are no verdict.
func only(raw string) ([]byte, error) {
	s := strings.TrimSpace(raw)
	if after, ok := strings.CutPrefix(s, "```"); ok {
		s = strings.TrimPrefix(after, "json")
		in, ok := strings.CutSuffix(strings.TrimSpace(s), "```")
		if !ok {
			return nil, errors.New("its fence has no end")
		}
		s = strings.TrimSpace(in)
	}
	switch {
	case s == "":
		return nil, errors.New("it is empty")
	case s[0] != '{':
		return nil, errors.New("it is not a JSON object alone")
	}
	return []byte(s), nil
}

// strict decodes one object without unknown members, duplicates, or anything after it.
func strict(b []byte, v any) error {
	if err := duplicates(b); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return fmt.Errorf("it is not the JSON that was asked for (%w)", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	return nil
}

// duplicates refuses objects that say one thing twice: which of the two was meant is a guess.
func duplicates(b []byte) error {
	d := json.NewDecoder(bytes.NewReader(b))
	type level struct {
		keys map[string]bool // nil in a list
		key  bool            // a key is due
	}
	var stack []level
	for {
		t, err := d.Token()
		if err != nil {
			return nil // the decoder that follows tells
		}
		top := len(stack) - 1
		if top >= 0 && stack[top].keys != nil && stack[top].key {
			if k, ok := t.(string); ok {
				k = strings.ToLower(k)
				if stack[top].keys[k] {
					return fmt.Errorf("%q is there twice", k)
				}
				stack[top].keys[k], stack[top].key = true, false
				continue
			}
		}
		switch t {
		case json.Delim('{'):
			stack = append(stack, level{map[string]bool{}, true})
			continue
		case json.Delim('['):
			stack = append(stack, level{})
			continue
		case json.Delim('}'), json.Delim(']'):
			stack = stack[:top]
			if top == 0 {
				return nil
			}
		}
		if n := len(stack) - 1; n >= 0 {
			stack[n].key = true
		}
	}
}
