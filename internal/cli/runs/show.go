package runs

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/term"
)

func newShow(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var t trajectoryOptions
	cmd := &cobra.Command{
		Use:   "show RUN",
		Short: "Show one run: its steps, scores, sandboxes and how isolated they were",
		Long: `Shows one run. RUN is a run's id, or the end or beginning of one that no other run shares.

With --trajectory it shows what its agents did instead: messages, calls of tools and what came back. A run that is under way, or that was killed, is shown to the last thing that
happened; --follow waits for more until the run has ended.`,
		Example:           "  agent-env runs show hello-03hyh3l6\n  agent-env runs show 03hyh3l6 --trajectory --follow",
		Args:              verb.Args("RUN"),
		ValidArgsFunction: completeIDs(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !t.on && (t.follow || t.step != ""):
				return verb.Usagef("--follow and --step go with --trajectory")
			case t.on && t.follow && *asJSON:
				return verb.Usagef("--follow prints text; leave out --json")
			case t.on:
				return showTurns(cmd.Context(), p, args[0], t, *asJSON)
			}
			return show(cmd.Context(), p, args[0], *asJSON)
		},
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	cmd.Flags().BoolVar(&t.on, "trajectory", false, "show what the run's agents did")
	cmd.Flags().StringVar(&t.step, "step", "", "with --trajectory: only in this `STEP`")
	cmd.Flags().BoolVarP(&t.follow, "follow", "f", false, "with --trajectory: wait for more until the run has ended")
	return cmd
}

// shown is what --json prints.
type shown struct {
	verb.Format
	Run runlog.Record `json:"run"`
}

func show(ctx context.Context, p *verb.Program, text string, asJSON bool) error {
	log, id, err := find(ctx, p, text)
	if err != nil {
		return err
	}
	rec, err := runlog.Load(ctx, log, id)
	if err != nil {
		return err
	}
	if asJSON {
		return p.Streams.JSON(shown{verb.V1(), rec})
	}
	printRecord(p.Streams, rec, time.Now())
	return nil
}

func printRecord(s *term.Streams, r runlog.Record, now time.Time) {
	bold := s.OutColors().Bold
	s.Printf("%s\n", bold(r.ID))
	line := func(name, value string) {
		if value != "" {
			s.Printf("  %-10s %s\n", name, term.Clean(value))
		}
	}
	line("status", string(r.Status))
	line("scores", scoresOf(r.Summary))
	if r.Error != "" {
		line("error", strings.TrimPrefix(r.FailedAt+": "+r.Error, ": "))
	}
	line("task", fmt.Sprintf("%s v%d", r.Task, r.TaskVersion))
	line("bundle", r.Bundle)
	line("eval", r.Eval)
	line("started", verb.Time(s, r.Started))
	line("took", verb.Took(took(r.Summary, now)))
	if o := r.Owner; o != nil {
		line("runs at", fmt.Sprintf("%s, process %d", o.Host, o.PID))
	}
	if r.Status == runlog.Interrupted {
		line("", "nobody drives it: agent-env runs resume, or cancel")
	}
	if r.Epochs > 1 {
		line("resumed", diag.Count(r.Epochs-1, "time"))
	}
	if r.Cost != (runlog.Cost{}) {
		line("cost", costText(r.Cost))
	}
	line("left", strings.Join(r.Left, ", "))
	printSteps(s, r)
	printHands(s, r)
	printFilms(s, r)
	printBoxes(s, r)
	printRows(s, r)
}

func printSteps(s *term.Streams, r runlog.Record) {
	if len(r.Steps) == 0 {
		return
	}
	s.Printf("\n")
	t := term.NewTable("STEP", "TYPE", "STATUS", ">TOOK", ">TRIES", "ERROR")
	for _, st := range r.Steps {
		took := ""
		if !st.Started.IsZero() && !st.Ended.IsZero() {
			took = verb.Took(st.Ended.Sub(st.Started))
		}
		fault := st.Error
		if st.ErrorType != "" {
			fault = st.ErrorType + ": " + fault
		}
		tries := ""
		if st.Attempt > 1 {
			tries = strconv.Itoa(st.Attempt)
		}
		t.Row(st.ID, st.Type, string(st.Status), took, tries, fault)
	}
	_ = t.Print(s) // Streams.Failed tells of it
	for _, st := range r.Steps {
		if st.Type == "review" && st.Status == runlog.Running {
			s.Printf("\n%s waits for a decision: agent-env runs decide %s %s continue|abort\n", term.Clean(st.ID), r.ID, term.Clean(st.ID))
		}
	}
}

// printHands shows who took computers over.
func printHands(s *term.Streams, r runlog.Record) {
	for _, h := range r.Hands {
		till := "its end isn't on record"
		if !h.To.IsZero() {
			till = fmt.Sprintf("to %s, %s", verb.Time(s, h.To), diag.Count(int(h.Inputs), "input"))
		}
		s.Printf("\na person took over %s of %s (%s): from %s, %s; the log of its calls has each input\n", term.Clean(h.Name), term.Clean(h.Env), term.Clean(h.By), verb.Time(s, h.From), till)
	}
}

// printFilms shows what there is of computers' screens, and how to get it.
func printFilms(s *term.Streams, r runlog.Record) {
	for i, f := range r.Films {
		s.Printf("\nscreen of %s: %s; agent-env runs export %s", term.Clean(f.Env), term.Size(f.Size), r.ID)
		if len(r.Films) > 1 {
			s.Printf(" --screen %d", i+1)
		}
		s.Printf(" -o screen.png\n")
	}
}

// printBoxes shows the sandboxes with what was found in force when they were made.
func printBoxes(s *term.Streams, r runlog.Record) {
	for _, b := range r.Boxes {
		var iso sandbox.Isolation
		_ = json.Unmarshal(b.Isolation, &iso) // an entry of another version shows less
		s.Printf("\nsandbox %s (%s %s): %s\n", term.Clean(b.Name), b.Provider, b.ID, iso.Level)
		for _, probe := range iso.Probes {
			verb.Probe(s, probe)
		}
		for _, name := range slices.Sorted(maps.Keys(iso.Limits)) {
			verb.Limit(s, name, iso.Limits[name])
		}
	}
}

// printRows shows what each verifier found.
func printRows(s *term.Streams, r runlog.Record) {
	for _, id := range slices.Sorted(maps.Keys(r.Verified)) {
		var v step.Verification
		if json.Unmarshal(r.Verified[id], &v) != nil {
			continue
		}
		var none step.Unscored
		if json.Unmarshal(r.Verified[id], &none) == nil && none.Reason != "" {
			s.Printf("\nverifier %s: unscored: %s\n", term.Clean(id), term.Clean(none.Reason))
			continue
		}
		s.Printf("\nverifier %s: %s\n", term.Clean(id), verb.Score(v.Score))
		for _, row := range v.Results {
			text := func(name string) string {
				t, _ := row[name].(string)
				return term.Clean(t)
			}
			score := ""
			if f, ok := row["score"].(float64); ok {
				score = verb.Score(f)
			}
			if skipped, _ := row["skipped"].(bool); skipped {
				score = "skipped"
			}
			s.Printf("  %-8s %s", score, text("criterion"))
			if j := text("justification"); j != "" {
				s.Printf(": %s", j)
			}
			s.Printf("\n")
		}
	}
}
