package eval

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/bundlerun"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/term"
)

func newList(p *verb.Program) *cobra.Command {
	var page verb.Page
	var prefix string
	var ran bool
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List stored evals, newest first",
		Long: "Lists the latest version of each stored eval, newest first: those that bundles wrote, and those of eval create.\n\n" +
			"With --runs the eval runs are listed: eval report tells of one, eval compare of two.",
		Example: "  agent-env eval list --limit 5\n  agent-env eval list --json",
		Args:    verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ran {
				return listRuns(cmd.Context(), p, prefix, page, *asJSON)
			}
			return list(cmd.Context(), p, prefix, page, *asJSON)
		},
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "only ids that begin with this `TEXT`")
	cmd.Flags().BoolVar(&ran, "runs", false, "list eval runs in place of evals")
	verb.PageFlags(cmd, &page, "evals")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// listing is what --json prints.
type listing struct {
	verb.Format
	Evals []listed `json:"evals"`
	More  bool     `json:"more"` // older evals than these exist
}

type listed struct {
	ID      string    `json:"id"`
	Version int       `json:"version"`
	Tasks   int       `json:"tasks"`
	Created time.Time `json:"created"`
	Bundle  string    `json:"bundle,omitempty"`
}

func list(ctx context.Context, p *verb.Program, prefix string, page verb.Page, asJSON bool) error {
	if err := page.Check(); err != nil {
		return err
	}
	s, err := open(ctx, p)
	if err != nil {
		return err
	}
	found, more, err := s.List(ctx, store.Eval, prefix, page.Offset, page.Limit)
	if err != nil {
		return err
	}
	out := listing{Format: verb.V1(), Evals: []listed{}, More: more}
	t := term.NewTable("EVAL", "VERSION", ">TASKS", "CREATED", "BUNDLE")
	for _, x := range found {
		out.Evals = append(out.Evals, listed{x.ID, x.Version, x.List.Len(), x.Created, x.Owner})
		t.Row(x.ID, "v"+strconv.Itoa(x.Version), strconv.Itoa(x.List.Len()), verb.Time(p.Streams, x.Created), x.Owner)
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	if len(found) == 0 {
		p.Streams.Note("There are no such evals. Store one with: agent-env eval create FILE --id ID")
		return nil
	}
	if err := t.Print(p.Streams); err != nil {
		return err
	}
	if more {
		p.Streams.Note("There are older evals: --offset %d shows them.", page.Offset+len(found))
	}
	return nil
}

// runListing is what --runs --json prints.
type runListing struct {
	verb.Format
	Runs []ranOnce `json:"eval_runs"`
	More bool      `json:"more"`
}

type ranOnce struct {
	ID      string    `json:"eval_run_id"`
	Eval    string    `json:"eval_id"`
	Version int       `json:"eval_version"`
	Tasks   int       `json:"tasks"`
	K       int       `json:"k"`
	Created time.Time `json:"created"`
}

func listRuns(ctx context.Context, p *verb.Program, prefix string, page verb.Page, asJSON bool) error {
	if err := page.Check(); err != nil {
		return err
	}
	engine, err := openEngine(ctx, p)
	if err != nil {
		return err
	}
	all, err := engine.EvalRuns(ctx, "")
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(x bundlerun.EvalRun) bool { return !strings.HasPrefix(x.Eval, prefix) })
	all = all[min(page.Offset, len(all)):]
	out := runListing{Format: verb.V1(), Runs: []ranOnce{}, More: len(all) > page.Limit}
	t := term.NewTable("EVAL RUN", "EVAL", "VERSION", ">TASKS", ">K", "BEGUN")
	for _, x := range all[:min(page.Limit, len(all))] {
		out.Runs = append(out.Runs, ranOnce{x.ID, x.Eval, x.Version, len(x.Tasks), x.K, x.Created})
		t.Row(x.ID, x.Eval, "v"+strconv.Itoa(x.Version), strconv.Itoa(len(x.Tasks)), strconv.Itoa(x.K), verb.Time(p.Streams, x.Created))
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	if len(out.Runs) == 0 {
		p.Streams.Note("There are no such eval runs. Make one with: agent-env eval run ID")
		return nil
	}
	if err := t.Print(p.Streams); err != nil {
		return err
	}
	if out.More {
		p.Streams.Note("There are older eval runs: --offset %d shows them.", page.Offset+len(out.Runs))
	}
	return nil
}
