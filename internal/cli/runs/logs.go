package runs

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/term"
)

type logsOptions struct {
	step         string
	follow, full bool
	json         *bool
}

func newLogs(p *verb.Program) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:               "logs RUN",
		Short:             "Print what happened in a run, step by step, with what the steps logged",
		Example:           "  agent-env runs logs hello-03hyh3l6 --step load\n  agent-env runs logs 03hyh3l6 --follow",
		Args:              verb.Args("RUN"),
		ValidArgsFunction: completeIDs(p),
		RunE:              func(cmd *cobra.Command, args []string) error { return logs(cmd.Context(), p, args[0], o) },
	}
	cmd.Flags().StringVar(&o.step, "step", "", "only what this `STEP` did")
	cmd.Flags().BoolVarP(&o.follow, "follow", "f", false, "wait for more until the run has ended")
	cmd.Flags().BoolVar(&o.full, "full", false, "print long lines whole, from the objects that hold them")
	o.json = verb.JSONFlag(cmd, "print one JSON object per event")
	return cmd
}

// logged is a line that --json prints; the last line has type "summary".
type logged struct {
	verb.Format
	Type string `json:"type"`
	runlog.Event
}

type logsSummary struct {
	verb.Format
	Type   string         `json:"type"`
	Events int            `json:"events"`
	Run    runlog.Summary `json:"run"`
}

func logs(ctx context.Context, p *verb.Program, text string, o logsOptions) error {
	log, id, err := find(ctx, p, text)
	if err != nil {
		return err
	}
	events := log.Events(ctx, id, 0)
	if o.follow {
		events = follow(ctx, log, id)
	}
	shown := 0
	for e, err := range events {
		if err != nil {
			return err
		}
		if o.step != "" && e.Step != o.step {
			continue
		}
		shown++
		if *o.json {
			if err := p.Streams.JSON(logged{verb.V1(), "event", e}); err != nil {
				return err
			}
			continue
		}
		if o.full {
			if e, err = whole(ctx, p, e); err != nil {
				return err
			}
		}
		p.Streams.Printf("%s\n", eventLine(p.Streams, e))
	}
	sum, err := log.Get(ctx, id)
	if err != nil {
		return err
	}
	if *o.json {
		return p.Streams.JSON(logsSummary{verb.V1(), "summary", shown, sum})
	}
	if shown == 0 && o.step != "" {
		return unknownStep(ctx, log, id, o.step)
	}
	return nil
}

// whole is an event whose log line is all of it, where an object holds that.
func whole(ctx context.Context, p *verb.Program, e runlog.Event) (runlog.Event, error) {
	var line runlog.LogLine
	if e.Kind != runlog.StepLog || json.Unmarshal(e.Data, &line) != nil || line.Object == nil {
		return e, nil
	}
	a, err := p.App()
	if err != nil {
		return e, err
	}
	s, err := a.Store(ctx)
	if err != nil {
		return e, err
	}
	o, err := load(ctx, s, ref.Digest(line.Object.Digest))
	if err != nil {
		return e, err
	}
	line.Message, line.Object = string(o.bytes), nil
	e.Data, err = json.Marshal(line)
	return e, err
}

// unknownStep tells a step that has logged nothing from one that the run hasn't.
func unknownStep(ctx context.Context, log runlog.Log, id, want string) error {
	rec, err := runlog.Load(ctx, log, id)
	if err != nil {
		return err
	}
	var names []string
	for _, s := range rec.Steps {
		if s.ID == want {
			return nil
		}
		names = append(names, s.ID)
	}
	if len(names) == 0 {
		return errors.New("the run never started a step")
	}
	return fmt.Errorf("the run has no step %q; its steps are %s", want, strings.Join(names, ", "))
}

// eventLine is an event in one line: when, which step, what.
func eventLine(s *term.Streams, e runlog.Event) string {
	head := verb.Time(s, e.At)
	if e.Step != "" {
		head += " " + term.Clean(e.Step)
	}
	return head + " " + term.Clean(what(e))
}

func what(e runlog.Event) string {
	decode := func(into any) bool { return json.Unmarshal(e.Data, into) == nil }
	switch e.Kind {
	case runlog.RunStarted:
		if d := (runlog.RunStart{}); decode(&d) {
			return "run started: " + diag.Count(len(d.Steps), "step")
		}
	case runlog.RunEnded:
		if d := (runlog.RunEnd{}); decode(&d) {
			return joinNonEmpty("run "+string(d.Status), verb.Scores(d.Scores), fault(d.ErrorType, d.Error))
		}
	case runlog.StepStarted:
		if d := (runlog.StepStart{}); decode(&d) {
			if e.Attempt > 1 {
				return fmt.Sprintf("started (%s), attempt %d", d.Type, e.Attempt)
			}
			return "started (" + d.Type + ")"
		}
	case runlog.StepEnded:
		if d := (runlog.StepEnd{}); decode(&d) {
			return joinNonEmpty(fmt.Sprintf("%s in %.1fs", d.Status, d.Seconds), fault(d.ErrorType, d.Error))
		}
	case runlog.StepLog, runlog.Note:
		if d := (runlog.LogLine{}); decode(&d) {
			return logText(d)
		}
	case runlog.StepsReset:
		if d := (runlog.Reset{}); decode(&d) {
			return resetText(d)
		}
	case runlog.StepCost:
		if d := (runlog.Cost{}); decode(&d) {
			return "spent " + costText(d)
		}
	case runlog.StepDecided:
		if d := (step.Decision{}); decode(&d) {
			return joinNonEmpty("decided "+strings.TrimSpace(d.Choice+" "+by(d.By)), d.Comment)
		}
	case runlog.Cancelling:
		return "the run is cancelled: nothing new starts"
	case runlog.BoxCreated, runlog.BoxRemoved:
		if d := (runlog.Box{}); decode(&d) {
			what := fmt.Sprintf("sandbox %s (%s %s) %s", d.Name, d.Provider, d.ID, strings.TrimPrefix(e.Kind, "box."))
			if n := len(d.Blocked); n > 0 {
				what += fmt.Sprintf(", kept from %d destinations", n)
			}
			return joinNonEmpty(what, d.Error)
		}
	case runlog.EnvTaken:
		if d := (runlog.Taken{}); decode(&d) {
			if d.Ended {
				return fmt.Sprintf("the person (%s) gave computer %s of environment %s back after %s", d.By, d.Name, d.Env, diag.Count(int(d.Inputs), "input"))
			}
			return fmt.Sprintf("a person (%s) takes over computer %s of environment %s", d.By, d.Name, d.Env)
		}
	case runlog.EnvKept:
		if d := (runlog.Kept{}); decode(&d) {
			what := "a large result"
			switch d.What {
			case "calls":
				what = "the log of calls"
			case "screen":
				what = "the film of the screen"
			case "errand":
				what = "what an agent did for a trigger"
			}
			return fmt.Sprintf("%s of environment %s is kept: %s, %s", what, d.Env, diag.Count(int(d.Size), "byte"), d.Digest)
		}
	}
	return e.Kind + " " + string(e.Data) // an event of a newer program
}

func resetText(d runlog.Reset) string {
	what := "these run again: " + strings.Join(d.Steps, ", ")
	if len(d.Steps) == 0 {
		what = "nothing runs again"
	}
	if d.Reason == runlog.ResetRetry {
		return fmt.Sprintf("step %s failed, the run goes back to step %s; %s", d.Step, d.From, what)
	}
	return "resumed; " + what
}

func by(who string) string {
	if who == "" {
		return ""
	}
	return "by " + who
}

// costText is "$0.0123, 1200 tokens in, 340 out".
func costText(c runlog.Cost) string {
	return fmt.Sprintf("$%s, %d tokens in, %d out", strconv.FormatFloat(c.USD, 'f', -1, 64), c.InputTokens, c.OutputTokens)
}

func logText(d runlog.LogLine) string {
	text := d.Message
	if d.Level != "" && !strings.EqualFold(d.Level, "info") {
		text = strings.ToUpper(d.Level) + " " + text
	}
	if d.Object != nil {
		text += fmt.Sprintf(" (%d bytes in all; --full prints them)", d.Object.Size)
	}
	for _, k := range slices.Sorted(maps.Keys(d.Attrs)) {
		text += fmt.Sprintf(" %s=%v", k, d.Attrs[k])
	}
	return text
}

func fault(typ, text string) string {
	if typ == "" {
		return text
	}
	return typ + ": " + text
}

func joinNonEmpty(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(s string) bool { return s == "" }), ": ")
}
