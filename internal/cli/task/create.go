package task

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

type createOptions struct {
	id      *string
	unknown bool
	json    *bool
}

func newCreate(p *verb.Program) *cobra.Command {
	var o createOptions
	cmd := &cobra.Command{
		Use:   "create FILE --id ID",
		Short: "Store a list of steps as a new version of a task",
		Long: `Checks a task and everything that it names in the store, and stores it as the next version of ID. All problems are told at once, and nothing is
stored while there is one.

FILE is a JSON list of steps, the same as tasks/<name>.json of a bundle; "-" reads standard input. References are ids of the store, never names of a
bundle. ID is a local id (@local/…) or a bare one (mail/smoke). Every call makes a new version, whether or not something changed.

Exit codes: 0 stored; 1 refused; 2 the command line can't be meant.`,
		Example: "  agent-env task create smoke.json --id mail/smoke\n  agent-env task get mail/smoke | agent-env task create - --id mail/copy",
		Args:    verb.Args("FILE"),
		RunE:    func(cmd *cobra.Command, args []string) error { return create(cmd.Context(), p, args[0], o) },
	}
	o.id = verb.IDFlag(cmd, "`ID` of the task")
	cmd.Flags().BoolVar(&o.unknown, "allow-unknown-fields", false, "warn of step fields that this version doesn't know, in place of refusing them")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	_ = cmd.RegisterFlagCompletionFunc("id", completeID(p)) // fails for an unknown flag alone
	return cmd
}

// created is what --json prints. A refusal has no version.
type created struct {
	verb.Format
	OK       bool           `json:"ok"`
	ID       string         `json:"id"`
	Version  int            `json:"version,omitempty"`
	Steps    int            `json:"steps,omitempty"`
	Problems []verb.Problem `json:"problems"`
}

func create(ctx context.Context, p *verb.Program, file string, o createOptions) error {
	if *o.id == "" {
		return verb.Usagef("agent-env task create needs --id ID, the id to store the task under")
	}
	a, s, err := open(ctx, p)
	if err != nil {
		return err
	}
	out := created{Format: verb.V1(), ID: *o.id}
	n, err := p.Document(file)
	l, told := diag.From(err)
	if err != nil && !told {
		return err
	}
	if err == nil {
		w, found, err := s.CreateTask(ctx, *o.id, n, a.TaskOptions(o.unknown))
		if err != nil {
			return err
		}
		l, out.Version, out.Steps = found, w.Version, w.N
	}
	out.OK, out.Problems = !l.HasErrors(), verb.Problems(l)
	if err := p.Answer(out, *o.json, l); err != nil {
		return err
	}
	if !*o.json {
		p.Streams.Printf("%s: v%d (%s)\n", term.Clean(out.ID), out.Version, diag.Count(out.Steps, "step"))
	}
	return nil
}
