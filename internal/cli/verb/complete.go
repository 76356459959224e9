package verb

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/store"
)

// completionTime is how long a completion may look for ids: a shell waits for it.
const completionTime = 300 * time.Millisecond

// Lookup finds the ids that a completion offers, newest first. It only reads, and may leave it to the shell to drop those that don't begin with prefix.
type Lookup func(ctx context.Context, a *app.App, prefix string) ([]cobra.Completion, error)

// Complete offers ids for a flag, or for each argument; also says what the shell may do besides.
func (p *Program) Complete(find Lookup, also cobra.ShellCompDirective) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
		defer cancel()
		a, err := p.App()
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		found, err := find(ctx, a, prefix)
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		return found, also | cobra.ShellCompDirectiveKeepOrder
	}
}

// CompleteFirst is Complete for the first argument alone.
func (p *Program) CompleteFirst(find Lookup, also cobra.ShellCompDirective) cobra.CompletionFunc {
	ids := p.Complete(find, also)
	return func(cmd *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return ids(cmd, args, prefix)
	}
}

// Stored finds the newest stored tasks, or evals.
func Stored(k store.Kind) Lookup {
	return func(ctx context.Context, a *app.App, prefix string) ([]cobra.Completion, error) {
		s, err := a.Tasks(ctx)
		if err != nil {
			return nil, err
		}
		found, _, err := s.List(ctx, k, prefix, 0, 50)
		var out []cobra.Completion
		for _, x := range found {
			out = append(out, x.ID)
		}
		return out, err
	}
}
