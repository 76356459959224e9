package eval

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

// fileForms tells what FILE may be.
const fileForms = `FILE is a JSON list of task ids and of tables {"task_id": "<id>", "task_version": <n>}, the version optional; or a .toml as a bundle's
evals/<name>.toml, with ids of stored tasks. "-" reads a JSON list from standard input.`

func newCreate(p *verb.Program) *cobra.Command {
	var id *string
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "create FILE --id ID",
		Short: "Store a list of tasks as a new version of an eval",
		Long: `Checks that every task is in the store, and stores the list as the next version of ID. All problems are told at once, and nothing is stored while
there is one.

` + fileForms + ` A task is listed once: eval run --k repeats tasks.

Exit codes: 0 stored; 1 refused; 2 the command line can't be meant.`,
		Example: "  agent-env eval create nightly.json --id mail/nightly",
		Args:    verb.Args("FILE"),
		RunE:    func(cmd *cobra.Command, args []string) error { return create(cmd.Context(), p, args[0], *id, *asJSON) },
	}
	id = verb.IDFlag(cmd, "`ID` of the eval")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("id", completeID(p)) // fails for an unknown flag alone
	return cmd
}

// stored is what --json prints. A refusal has no version.
type stored struct {
	verb.Format
	OK       bool           `json:"ok"`
	ID       string         `json:"id"`
	Version  int            `json:"version,omitempty"`
	Tasks    int            `json:"tasks,omitempty"`
	Added    []string       `json:"added,omitempty"`    // ids that the version before lacked
	Replaced []string       `json:"replaced,omitempty"` // ids that it had
	Problems []verb.Problem `json:"problems"`
}

// print shows what was stored, or why nothing was. how is what follows the version: "(2 tasks)".
func (o stored) print(p *verb.Program, l diag.List, asJSON bool, how string) error {
	o.Format, o.OK, o.Problems = verb.V1(), !l.HasErrors(), verb.Problems(l)
	if err := p.Answer(o, asJSON, l); err != nil {
		return err
	}
	if !asJSON {
		p.Streams.Printf("%s: v%d (%s)\n", term.Clean(o.ID), o.Version, how)
	}
	return nil
}

func create(ctx context.Context, p *verb.Program, file, id string, asJSON bool) error {
	if id == "" {
		return verb.Usagef("agent-env eval create needs --id ID, the id to store the eval under")
	}
	s, err := open(ctx, p)
	if err != nil {
		return err
	}
	out := stored{ID: id}
	n, err := p.Document(file)
	l, told := diag.From(err)
	if err != nil && !told {
		return err
	}
	if err == nil {
		w, found, err := s.CreateEval(ctx, id, n)
		if err != nil {
			return err
		}
		l, out.Version, out.Tasks = found, w.Version, w.N
	}
	return out.print(p, l, asJSON, diag.Count(out.Tasks, "task"))
}
