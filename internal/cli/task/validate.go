package task

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/task"
	"agentenv.internal/agentenv/internal/taskstore"
	"agentenv.internal/agentenv/internal/term"
)

type validateOptions struct {
	which   verb.Which
	unknown bool
	json    *bool
}

func newValidate(p *verb.Program) *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate ID|FILE",
		Short: "Check a task, stored or in a file, and whether it can run here",
		Long: `Checks a task's steps, everything that they name in the store, and then whether this machine can run them. Nothing is written or run.

What begins with "@" is an id; what begins with ".", "/" or "~", what ends with .json and what is a file is a file; everything else is an id. --id takes
an id alone. "-" reads standard input.

Exit codes: 0 no problems; 1 problems, or there is no such task; 2 the command line can't be meant.`,
		Example:           "  agent-env task validate mail/smoke\n  agent-env task validate ./smoke.json --json",
		Args:              cobra.ArbitraryArgs, // ID tells of too many and too few
		ValidArgsFunction: completeIDs(p, cobra.ShellCompDirectiveDefault),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := o.which.ID(cmd, args)
			if err != nil {
				return err
			}
			file := !o.which.ByFlag() && isFile(text)
			if file && *o.which.Version > 0 {
				return verb.Usagef("--version is of a stored task, and %s is a file", text)
			}
			return validate(cmd.Context(), p, text, file, o)
		},
	}
	o.which = p.WhichFlags(cmd, "task", verb.Stored(store.Task))
	cmd.Flags().BoolVar(&o.unknown, "allow-unknown-fields", false, "warn of step fields that this version doesn't know, in place of refusing them")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// isFile tells whether text names a file and not a stored task.
func isFile(text string) bool {
	switch {
	case strings.HasPrefix(text, "@"):
		return false
	case text == "-", strings.ContainsRune("./~", rune(text[0])), strings.HasSuffix(text, ".json"):
		return true
	}
	info, err := os.Stat(text)
	return err == nil && !info.IsDir()
}

// validated is what --json prints.
type validated struct {
	verb.Format
	OK       bool           `json:"ok"`
	ID       string         `json:"id,omitempty"`
	Version  int            `json:"version,omitempty"`
	File     string         `json:"file,omitempty"`
	Steps    int            `json:"steps"`
	Problems []verb.Problem `json:"problems"`
}

func validate(ctx context.Context, p *verb.Program, text string, file bool, o validateOptions) error {
	a, s, err := open(ctx, p)
	if err != nil {
		return err
	}
	out := validated{Format: verb.V1()}
	opts := a.TaskOptions(o.unknown)
	var l diag.List
	if file {
		l, err = validateFile(ctx, p, a, s, text, opts, &out)
	} else {
		l, err = validateStored(ctx, a, s, text, *o.which.Version, opts, &out)
	}
	if err != nil {
		return err
	}
	out.OK, out.Problems = !l.HasErrors(), verb.Problems(l)
	if err := p.Answer(out, *o.json, l); err != nil {
		return err
	}
	if !*o.json {
		p.Streams.Printf("%s: %s: no problems\n", term.Clean(text), diag.Count(out.Steps, "step"))
	}
	return nil
}

func validateFile(ctx context.Context, p *verb.Program, a *app.App, s *taskstore.Store, path string, o task.Options, out *validated) (diag.List, error) {
	out.File = path
	n, err := p.Document(path)
	if l, told := diag.From(err); told {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	out.Steps = n.Len()
	t, l, err := s.CheckTask(ctx, "", n, o)
	if err != nil || l.HasErrors() {
		return l, err
	}
	more, err := a.PreflightTask(ctx, t, n.Pos().File)
	return append(l, more...), err
}

func validateStored(ctx context.Context, a *app.App, s *taskstore.Store, id string, version int, o task.Options, out *validated) (diag.List, error) {
	x, t, l, err := s.CheckStored(ctx, id, version, o)
	if err != nil {
		return nil, err
	}
	out.ID, out.Version, out.Steps = x.ID, x.Version, x.List.Len()
	if l.HasErrors() {
		return l, nil
	}
	more, err := a.PreflightTask(ctx, t, x.Label())
	for i := range more {
		more[i].Pos.Line, more[i].Pos.Col = 0, 0 // of the stored spelling, which nobody has written
	}
	return append(l, more...), err
}
