package runs

import (
	"context"
	"fmt"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sleep"
	"agentenv.internal/agentenv/internal/term"
	"agentenv.internal/agentenv/internal/trajectory"
)

type trajectoryOptions struct {
	on, follow bool
	step       string
}

// turnsShown is what --trajectory --json prints.
type turnsShown struct {
	verb.Format
	Run    string          `json:"run_id"`
	Status runlog.Status   `json:"status"`
	Turns  []app.AgentTurn `json:"turns"`
}

// lookForMore is how often a follower looks what agents have done since.
const lookForMore = 250 * time.Millisecond

func showTurns(ctx context.Context, p *verb.Program, text string, o trajectoryOptions, asJSON bool) error {
	log, id, err := find(ctx, p, text)
	if err != nil {
		return err
	}
	a, err := p.App()
	if err != nil {
		return err
	}
	w := turnWriter{s: p.Streams, said: map[turnKey]int{}}
	for idle := 0; ; {
		sum, err := log.Get(ctx, id) // before the turns, so that none of an ended run is missed
		if err != nil {
			return err
		}
		turns, err := a.Turns(ctx, log, id)
		if err != nil {
			return err
		}
		if o.step != "" {
			turns = ofStep(turns, o.step)
		}
		if asJSON {
			return p.Streams.JSON(turnsShown{verb.V1(), id, sum.Status, append([]app.AgentTurn{}, turns...)})
		}
		w.show(turns)
		switch {
		case !o.follow || sum.Status.Ended():
			if w.lines == 0 {
				p.Streams.Note("No agent of %s has done anything.", id)
			}
			return nil
		case sum.Status == runlog.Interrupted:
			if idle++; idle > 2*int(lookAgain/lookForMore) {
				return fmt.Errorf("%s: %w; agent-env runs resume goes on with it, agent-env runs cancel ends it", id, errIdle)
			}
		default:
			idle = 0
		}
		if err := sleep.For(ctx, lookForMore); err != nil {
			return err
		}
	}
}

func ofStep(turns []app.AgentTurn, step string) []app.AgentTurn {
	var out []app.AgentTurn
	for _, t := range turns {
		if t.Step == step {
			out = append(out, t)
		}
	}
	return out
}

// turnKey tells turns apart, wherever they are on record.
type turnKey struct {
	step    string
	attempt int
	turn    int
	agent   string
}

// turnWriter prints what was not printed before.
type turnWriter struct {
	s     *term.Streams
	said  map[turnKey]int // how many lines of a turn
	last  turnKey
	lines int
}

func (w *turnWriter) show(turns []app.AgentTurn) {
	for _, t := range turns {
		k := turnKey{t.Step, t.Attempt, t.Turn, t.Agent}
		all := turnLines(t.Trajectory)
		n := w.said[k]
		if n >= len(all) {
			continue
		}
		if w.last != k {
			w.head(t)
			w.last = k
		}
		for _, l := range all[n:] {
			w.s.Printf("%s\n", l)
			w.lines++
		}
		w.said[k] = len(all)
	}
}

func (w *turnWriter) head(t app.AgentTurn) {
	if w.lines > 0 {
		w.s.Printf("\n")
	}
	text := term.Clean(t.Step) + ": " + term.Clean(t.Agent)
	if t.Turn > 1 {
		text += fmt.Sprintf(", turn %d", t.Turn)
	}
	if t.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", t.Attempt)
	}
	w.s.Printf("%s\n", w.s.OutColors().Bold(text))
}

// turnLines are what happened, in the order in which it was recorded: more of it only adds lines.
func turnLines(t *trajectory.Trajectory) []string {
	var out []string
	add := func(mark, text string) {
		if strings.TrimSpace(text) != "" {
			out = append(out, "  "+mark+" "+indented(text))
		}
	}
	for _, s := range t.Steps {
		add(fmt.Sprintf("%-6s", s.Source), contentText(&s.Message))
		for _, c := range s.ToolCalls {
			add("   ->  ", c.Name+" "+string(c.Arguments))
		}
		if s.Observation == nil {
			continue
		}
		for _, r := range s.Observation.Results {
			if r.Content != nil {
				add("   <-  ", contentText(r.Content))
			}
		}
	}
	return out
}

func contentText(c *trajectory.Content) string {
	if c.Parts == nil {
		return c.Text
	}
	var out []string
	for _, p := range c.Parts {
		if p.Type == "text" {
			out = append(out, p.Text)
		} else {
			out = append(out, "["+p.Type+"]")
		}
	}
	return strings.Join(out, "\n")
}

// mostShown is how much of one message or result is shown, in characters.
const mostShown = 2000

// indented is a text below its mark, without what terminals act on.
func indented(text string) string {
	n := 0
	for i := range text {
		if n == mostShown {
			text = text[:i] + fmt.Sprintf("… (%d characters in all: --json has them)", len([]rune(text)))
			break
		}
		n++
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := range lines {
		lines[i] = term.Clean(lines[i])
	}
	return strings.Join(lines, "\n         ")
}
