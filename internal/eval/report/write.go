package report

import (
	"encoding/csv"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
)

// CSV writes one line a trial, after a line of names.
func (r *Report) CSV(w io.Writer) error {
	var verifiers []string
	seen := map[string]bool{}
	for i := range r.Trials {
		for name := range r.Trials[i].Scores {
			seen[name] = true
		}
	}
	verifiers = slices.Sorted(maps.Keys(seen))
	c := csv.NewWriter(w)
	head := []string{"eval_run", "task", "trial", "task_version", "run", "status", "score", "seconds", "input_tokens", "output_tokens", "usd", "models", "inputs", "error", "taken_over"}
	for _, v := range verifiers {
		head = append(head, "score:"+v)
	}
	if err := c.Write(head); err != nil {
		return err
	}
	for i := range r.Trials {
		t := &r.Trials[i]
		line := []string{
			r.ID, t.Task, strconv.Itoa(t.Number), strconv.Itoa(t.Version), t.Run, string(t.Status), number(t.Score), strconv.FormatFloat(t.Seconds, 'f', 3, 64),
			strconv.FormatInt(t.Cost.InputTokens, 10), strconv.FormatInt(t.Cost.OutputTokens, 10), strconv.FormatFloat(t.Cost.USD, 'f', -1, 64),
			modelsText(t.Models), t.Inputs, t.Error, strconv.FormatBool(t.TakenOver),
		}
		for _, v := range verifiers {
			if s, ok := t.Scores[v]; ok {
				line = append(line, number(&s))
			} else {
				line = append(line, "")
			}
		}
		for i := range line {
			line[i] = harmless(line[i])
		}
		if err := c.Write(line); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// harmless keeps a spreadsheet from taking a text for a formula.
func harmless(s string) string {
	if s != "" && strings.ContainsRune("=+@\t\r", rune(s[0])) && !strings.HasPrefix(s, "@local/") {
		return "'" + s
	}
	return s
}

func number(f *float64) string {
	if f == nil {
		return ""
	}
	return strconv.FormatFloat(*f, 'g', 6, 64)
}

// modelsText is "judge: a, b; solver: c".
func modelsText(m map[string][]string) string {
	var out []string
	for _, role := range slices.Sorted(maps.Keys(m)) {
		out = append(out, role+": "+strings.Join(m[role], ", "))
	}
	return strings.Join(out, "; ")
}

type (
	suites struct {
		XMLName xml.Name `xml:"testsuites"`
		Name    string   `xml:"name,attr"`
		totals
		Suites []suite `xml:"testsuite"`
	}
	totals struct {
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Time     string `xml:"time,attr"`
	}
	suite struct {
		Name string `xml:"name,attr"`
		totals
		Stamp      string     `xml:"timestamp,attr,omitempty"`
		Properties []property `xml:"properties>property,omitempty"`
		Cases      []testcase `xml:"testcase"`
	}
	property struct {
		Name  string `xml:"name,attr"`
		Value string `xml:"value,attr"`
	}
	testcase struct {
		Class   string  `xml:"classname,attr"`
		Name    string  `xml:"name,attr"`
		Time    string  `xml:"time,attr"`
		Failure *reason `xml:"failure,omitempty"`
		Error   *reason `xml:"error,omitempty"`
		Skipped *reason `xml:"skipped,omitempty"`
	}
	reason struct {
		Type    string `xml:"type,attr,omitempty"`
		Message string `xml:"message,attr"`
	}
)

// JUnit writes a suite a task and a case a trial: scored below 1 and failed are failures, infra_failed is an error, unscored and cancelled are skipped.
func (r *Report) JUnit(w io.Writer) error {
	out := suites{Name: clean(strings.TrimSpace(r.Eval + " " + r.ID))}
	for i := range r.Tasks {
		task := &r.Tasks[i]
		s := suite{Name: clean(task.ID), Properties: []property{{"eval_run", r.ID}, {"models", clean(modelsText(r.Models))}}}
		if task.Mean != nil {
			s.Properties = append(s.Properties, property{"mean_score", number(task.Mean)})
		}
		if !r.Created.IsZero() {
			s.Stamp = r.Created.UTC().Format(time.RFC3339)
		}
		seconds := 0.0
		for j := range r.Trials {
			if t := &r.Trials[j]; t.Task == task.ID {
				s.Cases = append(s.Cases, t.testcase(&s.totals))
				seconds += t.Seconds
			}
		}
		s.Time = strconv.FormatFloat(seconds, 'f', 3, 64)
		out.Tests, out.Failures, out.Errors, out.Skipped = out.Tests+s.Tests, out.Failures+s.Failures, out.Errors+s.Errors, out.Skipped+s.Skipped
		out.Suites = append(out.Suites, s)
	}
	out.Time = strconv.FormatFloat(r.Seconds, 'f', 3, 64)
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(out); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (t *Trial) testcase(sum *totals) testcase {
	c := testcase{Class: clean(t.Task), Name: fmt.Sprintf("trial %d", t.Number), Time: strconv.FormatFloat(t.Seconds, 'f', 3, 64)}
	why := reason{Type: string(t.Status), Message: clean(t.Error)}
	if t.TakenOver {
		c.Name += " (a person took over)"
	}
	if why.Message == "" {
		why.Message = string(t.Status)
	}
	sum.Tests++
	switch t.Status {
	case runlog.Passed:
	case runlog.Scored:
		why.Message = "score " + number(t.Score)
		c.Failure = &why
		sum.Failures++
	case runlog.Failed:
		c.Failure = &why
		sum.Failures++
	case runlog.Unscored, runlog.Cancelled:
		c.Skipped = &why
		sum.Skipped++
	default: // infra_failed, and runs without an end
		c.Error = &why
		sum.Errors++
	}
	return c
}

// clean takes out what XML can't hold.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r >= 0x20 && r <= 0xd7ff || r >= 0xe000 && r <= 0xfffd || r >= 0x10000 {
			return r
		}
		return '\uFFFD'
	}, s)
}
