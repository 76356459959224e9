package env

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/envstore"
)

type validateOptions struct {
	version             int
	providers, universe string
	json                *bool
}

func newValidate(p *verb.Program) *cobra.Command {
	var o validateOptions
	cmd := &cobra.Command{
		Use:   "validate ENV",
		Short: "Deploy a stored environment, check it and take it down",
		Long: `Deploys a stored environment for itself and checks every server of it: its card, the schema of every tool, its tools beside its /openapi.yaml where it has one, and
its data plane. With --universe, data is loaded, exported, loaded again from the export and exported once more; both exports must be the same.

No model is asked. Exits 1 when a check fails. agent-env conform checks a server that runs already against every row of the protocol.`,
		Example: "  agent-env env validate mail\n  agent-env env validate office --universe @local/desk/world --json",
		Args:    verb.Args("ENV"), ValidArgsFunction: completeStored(p),
		RunE: func(cmd *cobra.Command, args []string) error { return validate(cmd.Context(), p, args[0], o) },
	}
	f := cmd.Flags()
	f.IntVar(&o.version, "version", 0, "the `VERSION` of the environment; the latest when left out")
	f.StringVar(&o.providers, "sandbox", "", "the `PROVIDER`s to try, comma-separated")
	f.StringVar(&o.universe, "universe", "", "load and export this environment or universe, `ID` or ID:VERSION")
	o.json = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// validated is what --json prints.
type validated struct {
	verb.Format
	Env     string      `json:"env_id"`
	Version int         `json:"version"`
	OK      bool        `json:"ok"`
	Checks  []app.Check `json:"checks"`
}

func validate(ctx context.Context, p *verb.Program, text string, o validateOptions) error {
	a, _, err := open(ctx, p)
	if err != nil {
		return err
	}
	e, err := a.StoredEnv(ctx, text, o.version)
	if err != nil {
		return err
	}
	if err := a.CheckEnv(ctx, e, o.providers); err != nil {
		return err
	}
	universe, err := data(ctx, a, o.universe)
	if err != nil {
		return err
	}
	working, end := verb.Working(ctx, p)
	checks, err := a.ValidateEnv(ctx, e, o.providers, universe, working)
	end()
	if err != nil {
		return err
	}
	return p.TellChecks(checks, fmt.Sprintf("%s v%d", e.ID, e.Version), *o.json, func(ok bool) any { return validated{verb.V1(), e.ID, e.Version, ok, checks} })
}

// data is the stored data that a reference names; nil for "".
func data(ctx context.Context, a *app.App, text string) (*envstore.Data, error) {
	if text == "" {
		return nil, nil
	}
	id, version, err := verb.Reference(text)
	if err != nil {
		return nil, err
	}
	s, err := a.Store(ctx)
	if err != nil {
		return nil, err
	}
	d, err := envstore.ReadData(ctx, s, id, version)
	if err != nil {
		return nil, err
	}
	return &d, nil
}
