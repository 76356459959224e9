package eval

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
)

func newAddTasks(p *verb.Program) *cobra.Command {
	var id *string
	var version *int
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "add-tasks FILE --id ID",
		Short: "Store an eval with more tasks as its next version",
		Long: `Takes a version of an eval, adds the tasks of FILE, and stores the result as the eval's next version. A task that the eval has already keeps its place
and gets the version that FILE says.

` + fileForms + `

Exit codes: 0 stored; 1 refused, or there is no such eval; 2 the command line can't be meant.`,
		Example: "  agent-env eval add-tasks more.json --id mail/nightly",
		Args:    verb.Args("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := verb.CheckVersion(cmd, *version); err != nil {
				return err
			}
			return addTasks(cmd.Context(), p, args[0], *id, *version, *asJSON)
		},
	}
	id = verb.IDFlag(cmd, "`ID` of the eval")
	version = cmd.Flags().Int("version", 0, "the version to start from; the latest when left out")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("id", completeID(p)) // fails for an unknown flag alone
	return cmd
}

func addTasks(ctx context.Context, p *verb.Program, file, id string, version int, asJSON bool) error {
	if id == "" {
		return verb.Usagef("agent-env eval add-tasks needs --id ID, the eval to add to")
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
		w, found, err := s.AddTasks(ctx, id, version, n)
		if err != nil {
			return err
		}
		l, out.Version, out.Tasks, out.Added, out.Replaced = found, w.Version, w.N, w.Added, w.Replaced
	}
	return out.print(p, l, asJSON, fmt.Sprintf("%s: %d added, %d replaced", diag.Count(out.Tasks, "task"), len(out.Added), len(out.Replaced)))
}
