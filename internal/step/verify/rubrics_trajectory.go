package verify

import (
	"fmt"
	"regexp"
	"strings"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/trajectory"
)

// filter is what of a trajectory a judge sees: trajectory_filter, or everything but thinking where a step has none.
type filter struct {
	calls, results, response, thinking bool

	screenshots bool
	lastN       int
	perCase     bool // frames by what a criterion looks at
	budget      int
	actionLog   bool
	exclude     *regexp.Regexp
	always      map[string]*regexp.Regexp
	maxLines    int
}

func filterOf(n doc.Node) (filter, error) {
	f := filter{calls: true, results: true, response: true}
	if n.Kind() != doc.Object {
		return f, nil
	}
	on := func(name string) bool { v, _ := n.Get(name).Bool(); return v }
	num := func(name string) int { v, _ := n.Get(name).Int(); return int(v) }
	f.calls, f.results, f.response, f.thinking = on("include_tool_calls"), on("include_tool_call_results"), on("include_response"), on("include_thinking")
	f.screenshots = n.Get("compaction_type").Text() == "screenshot"
	f.perCase = n.Get("frame_strategy").Text() == "per_criterion"
	f.lastN, f.budget, f.maxLines = num("screenshot_last_n"), num("frame_budget"), num("action_log_max_lines")
	f.actionLog = n.Get("trajectory_text").Text() == "action_log"
	var err error
	if s := n.Get("evidence_exclude_pattern").Text(); s != "" {
		if f.exclude, err = step.Pattern(s, "IGNORECASE"); err != nil {
			return f, step.Errorf("ValueError", "trajectory_filter.evidence_exclude_pattern: %w", err)
		}
	}
	for label, p := range n.Get("always_show_actions").Members() {
		re, err := step.Pattern(p.Text(), "IGNORECASE")
		if err != nil {
			return f, step.Errorf("ValueError", "trajectory_filter.always_show_actions.%s: %w", label, err)
		}
		if f.always == nil {
			f.always = map[string]*regexp.Regexp{}
		}
		f.always[label] = re
	}
	return f, nil
}

// upToTurn keeps the steps until the end of the n-th turn: a turn begins with what the user says.
func upToTurn(t *trajectory.Trajectory, n int) []trajectory.Step {
	turns := 0
	for i := range t.Steps {
		if t.Steps[i].Source == trajectory.User {
			if turns++; turns > n {
				return t.Steps[:i]
			}
		}
	}
	return t.Steps
}

// lastReply is what the agent said last.
func lastReply(steps []trajectory.Step) string {
	for i := len(steps) - 1; i >= 0; i-- {
		if s := &steps[i]; s.Source == trajectory.Agent {
			if text := contentText(s.Message); text != "" {
				return text
			}
		}
	}
	return ""
}

// conversation is what user and agent said to each other, a line a message.
func conversation(steps []trajectory.Step) []string {
	var out []string
	for i := range steps {
		s := &steps[i]
		if text := contentText(s.Message); text != "" && s.Source != trajectory.System {
			out = append(out, s.Source+": "+text)
		}
	}
	return out
}

func contentText(c trajectory.Content) string {
	if c.Parts == nil {
		return strings.TrimSpace(c.Text)
	}
	var out []string
	for _, p := range c.Parts {
		switch {
		case p.Type == "text":
			out = append(out, p.Text)
		case p.Source != nil:
			out = append(out, "["+p.Type+"]")
		}
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// text is what the judge reads of the steps.
func (f *filter) text(steps []trajectory.Step) string {
	if f.actionLog {
		return f.log(steps)
	}
	var b strings.Builder
	for i := range steps {
		s := &steps[i]
		if s.Source == trajectory.System && i == 0 {
			continue // the agent's own instructions
		}
		if text := contentText(s.Message); text != "" && (f.response || s.Source != trajectory.Agent) {
			fmt.Fprintf(&b, "[step %d] %s: %s\n", s.StepID, s.Source, text)
		}
		if f.thinking && s.Reasoning != "" {
			fmt.Fprintf(&b, "[step %d] thinking: %s\n", s.StepID, s.Reasoning)
		}
		if f.calls {
			for _, c := range s.ToolCalls {
				fmt.Fprintf(&b, "[step %d] call %s: %s %s\n", s.StepID, c.ID, c.Name, c.Arguments)
			}
		}
		if f.results && s.Observation != nil {
			for _, r := range s.Observation.Results {
				if r.Content != nil {
					fmt.Fprintf(&b, "[step %d] result %s: %s\n", s.StepID, r.CallID, contentText(*r.Content))
				}
			}
		}
	}
	return b.String()
}

// log is one line a call, the middle of many left out.
func (f *filter) log(steps []trajectory.Step) string {
	var lines []string
	for i := range steps {
		for _, c := range steps[i].ToolCalls {
			args := string(c.Arguments)
			if len(args) > 200 {
				args = strings.ToValidUTF8(args[:200], "") + "…"
			}
			lines = append(lines, fmt.Sprintf("step %d: %s %s", steps[i].StepID, c.Name, args))
		}
	}
	if most := f.maxLines; most > 0 && len(lines) > most {
		head := most / 2
		gap := fmt.Sprintf("… %d actions left out …", len(lines)-most)
		lines = append(append(append([]string{}, lines[:head]...), gap), lines[len(lines)-(most-head):]...)
	}
	return strings.Join(lines, "\n")
}

// shot is a screenshot of a trajectory.
type shot struct {
	name   string
	media  string
	path   string
	action string // the call that it answers
	always bool   // it is shown whatever the budget
}

// shots are all screenshots in order, without those whose action is no evidence.
func (f *filter) shots(steps []trajectory.Step) []shot {
	var out []shot
	for i := range steps {
		s := &steps[i]
		if s.Observation == nil {
			continue
		}
		actions := map[string]string{}
		for _, c := range s.ToolCalls {
			actions[c.ID] = c.Name + " " + string(c.Arguments)
		}
		n := 0
		for _, r := range s.Observation.Results {
			if r.Content == nil {
				continue
			}
			for _, p := range r.Content.Parts {
				if p.Type != "image" || p.Source == nil {
					continue
				}
				n++
				sh := shot{name: fmt.Sprintf("step-%d", s.StepID), media: p.Source.Media, path: p.Source.Path, action: actions[r.CallID]}
				if n > 1 {
					sh.name += fmt.Sprintf("-%d", n)
				}
				if f.exclude != nil && f.exclude.MatchString(sh.action) {
					continue
				}
				for _, re := range f.always {
					sh.always = sh.always || re.MatchString(sh.action)
				}
				out = append(out, sh)
			}
		}
	}
	return out
}

// final are the last frames.
func (f *filter) final(all []shot) []shot {
	return all[max(0, len(all)-max(1, f.lastN)):]
}

// spread are as many frames as the budget allows: those that are always shown, the last ones, and the others evenly.
func (f *filter) spread(all []shot) []shot {
	budget := f.budget
	if budget < 1 || len(all) <= budget {
		return all
	}
	keep := make([]bool, len(all))
	left := budget
	take := func(i int) {
		if !keep[i] && left > 0 {
			keep[i] = true
			left--
		}
	}
	for i := len(all) - 1; i >= max(0, len(all)-max(1, f.lastN)); i-- {
		take(i)
	}
	for i := len(all) - 1; i >= 0; i-- {
		if all[i].always {
			take(i)
		}
	}
	var rest []int
	for i := range all {
		if !keep[i] {
			rest = append(rest, i)
		}
	}
	for j, n := 0, left; j < n; j++ {
		take(rest[j*len(rest)/n])
	}
	var out []shot
	for i := range all {
		if keep[i] {
			out = append(out, all[i])
		}
	}
	return out
}
