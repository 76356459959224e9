package runs

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/term"
)

type listOptions struct {
	task          string
	status        []string
	limit, offset int
	json          *bool
}

// statuses are what --status takes.
var statuses = [...]runlog.Status{
	runlog.Queued, runlog.Running, runlog.Passed, runlog.Scored, runlog.Unscored, runlog.Failed, runlog.InfraFailed, runlog.Cancelled, runlog.Interrupted,
}

func newList(p *verb.Program) *cobra.Command {
	var o listOptions
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List runs, newest first",
		Example: "  agent-env runs list --status failed --limit 5\n  agent-env runs list --json",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return list(cmd.Context(), p, o) },
	}
	cmd.Flags().StringVar(&o.task, "task", "", "only runs of this task `ID`")
	cmd.Flags().StringSliceVar(&o.status, "status", nil, "only runs in this `STATE`; repeatable")
	cmd.Flags().IntVar(&o.limit, "limit", 20, "at most `N` runs")
	cmd.Flags().IntVar(&o.offset, "offset", 0, "leave out the newest `N` runs")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// listing is what --json prints.
type listing struct {
	verb.Format
	Runs []runlog.Summary `json:"runs"`
	More bool             `json:"more"` // older runs than these exist
}

func list(ctx context.Context, p *verb.Program, o listOptions) error {
	q := runlog.Query{Task: o.task}
	for _, s := range o.status {
		if !slices.Contains(statuses[:], runlog.Status(s)) {
			return verb.Usagef("--status knows no %q: it takes %s", s, joined(statuses[:]))
		}
		q.Status = append(q.Status, runlog.Status(s))
	}
	if o.limit < 1 || o.offset < 0 {
		return verb.Usagef("--limit is at least 1, --offset at least 0")
	}
	log, err := open(ctx, p)
	if err != nil {
		return err
	}
	out := listing{Format: verb.V1()}
	if out.Runs, out.More, err = pages(ctx, log, q, o.offset, o.limit); err != nil {
		return err
	}
	if *o.json {
		return p.Streams.JSON(out)
	}
	if len(out.Runs) == 0 {
		p.Streams.Note("There are no runs. Start one with: agent-env run hello")
		return nil
	}
	t := term.NewTable("RUN", "STATUS", "SCORES", "STARTED", ">TOOK")
	for _, r := range out.Runs {
		t.Row(r.ID, string(r.Status), scoresOf(r), verb.Time(p.Streams, r.Started), verb.Took(took(r, time.Now())))
	}
	if err := t.Print(p.Streams); err != nil {
		return err
	}
	if out.More {
		p.Streams.Note("There are older runs: --offset %d shows them.", o.offset+len(out.Runs))
	}
	return nil
}

// scoresOf are a run's scores, and whether they are an agent's alone.
func scoresOf(r runlog.Summary) string {
	text := verb.Scores(r.Scores)
	switch {
	case !r.TakenOver:
		return text
	case text == "":
		return verb.TakenOver
	default:
		return text + " (" + verb.TakenOver + ")"
	}
}

// pages skips and takes along the log's pages, and tells whether more would follow.
func pages(ctx context.Context, log runlog.Log, q runlog.Query, skip, take int) ([]runlog.Summary, bool, error) {
	const most = 1000 // rows asked for at once
	out := []runlog.Summary{}
	for {
		q.Limit = min(skip+take-len(out)+1, most)
		page, err := log.List(ctx, q)
		if err != nil {
			return nil, false, err
		}
		runs := page.Runs[min(skip, len(page.Runs)):]
		skip -= len(page.Runs) - len(runs)
		room := take - len(out)
		if len(runs) > room {
			return append(out, runs[:room]...), true, nil
		}
		out = append(out, runs...)
		if page.Next == "" {
			return out, false, nil
		}
		q.After = page.Next
	}
}

func joined(all []runlog.Status) string {
	var words []string
	for _, s := range all {
		words = append(words, string(s))
	}
	return strings.Join(words, ", ")
}
