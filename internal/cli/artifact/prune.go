package artifact

import (
	"context"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/artifactstore/removal"
	"agentenv.internal/agentenv/internal/cli/verb"
)

func newPrune(p *verb.Program) *cobra.Command {
	var o removal.PruneOptions
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Delete old versions of artifacts that nothing uses",
		Long: `Deletes every version that is not the latest of its artifact and that nothing uses, what belonged to such versions, and bytes that nothing names any more. What a
task, an environment, an agent, an eval, another artifact that stays, the ledger of a bundle or a run under way uses is kept; --dry-run tells why for each version.`,
		Example: "  agent-env artifact prune --dry-run\n  agent-env artifact prune --prefix @local/~/my-bundle/ --keep 3",
		Args:    verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Keep < 1 {
				return verb.Usagef("--keep is at least 1: the latest version is never pruned")
			}
			return remove(cmd.Context(), p, o.Dry, *asJSON, func(ctx context.Context, r *removal.Remover) (removal.Removal, error) { return r.Prune(ctx, o) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Prefix, "prefix", "", "only artifacts whose ids begin with this `TEXT`")
	f.IntVar(&o.Keep, "keep", 1, "keep the latest `N` versions of each artifact")
	f.BoolVar(&o.Dry, "dry-run", false, "tell what would be deleted and what would be kept, and why; delete nothing")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}
