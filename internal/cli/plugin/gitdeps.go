package plugin

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/term"
)

func newInstallDeps(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var d app.GitDeps
	var yes bool
	cmd := &cobra.Command{
		Use:   "install-deps ID",
		Short: "Install the Python packages that a git plugin declares",
		Long: `Installs the packages that the plugin's manifest names in requires_pip, with uv, or with pip where uv is missing, into an environment of the plugin's own, after it
has shown what would be installed and asked. The plugin's programs find them first. Nothing else installs packages of git plugins: not install, not update, not sync.

Packages are named by requirements; those of scope host, which protoAgent's own process imports, are not installed.`,
		Example:           "  agent-env plugin install-deps board\n  agent-env plugin install-deps board --optional --dry-run",
		Args:              verb.Args("ID"),
		ValidArgsFunction: completeGit(p, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			d.ID = args[0]
			return installDeps(cmd.Context(), p, d, way{yes: yes, asJSON: *asJSON})
		},
	}
	cmd.Flags().BoolVar(&d.Optional, "optional", false, "install those too that the plugin can do without")
	sourceFlags(cmd, &d.IndexURL, &d.FindLinks)
	changeFlags(cmd, &d.DryRun, &yes)
	asJSON = verb.JSONFlag(cmd, "print one JSON object; it needs --yes or --dry-run")
	return cmd
}

// depsInstalled is what install-deps --json prints.
type depsInstalled struct {
	verb.Format
	ID       string            `json:"id"`
	Changed  bool              `json:"changed"`
	DryRun   bool              `json:"dry_run"`
	Packages []string          `json:"requires_pip"`
	Left     []string          `json:"not_installed"` // optional, or for protoAgent's own process
	Plan     []string          `json:"plan"`
	Diff     []dist.Difference `json:"diff"`
	Problems []string          `json:"problems"`
}

func installDeps(ctx context.Context, p *verb.Program, d app.GitDeps, w way) error {
	if err := w.check(d.DryRun); err != nil {
		return err
	}
	a, err := p.Ready()
	if err != nil {
		return err
	}
	c, err := located(dist.Change{FindLinks: d.FindLinks})
	if err != nil {
		return err
	}
	d.FindLinks = c.FindLinks
	t := w.talk(p)
	out, err := a.InstallGitDeps(ctx, d, t)
	if w.asJSON {
		o := encodeOutcome(out.Outcome, d.DryRun)
		if err != nil && !errors.Is(err, dist.ErrProblems) {
			return err
		}
		if printed := p.Streams.JSON(depsInstalled{o.Format, d.ID, o.Changed, d.DryRun, all(out.Packages), all(out.Left), o.Plan, o.Diff, o.Problems}); printed != nil {
			return printed
		}
		if err != nil {
			return verb.Exit(verb.Refused)
		}
		return nil
	}
	return tellDeps(p, d, out, err, t.Say)
}

func tellDeps(p *verb.Program, d app.GitDeps, out app.GitDepsDone, err error, say func(string)) error {
	switch {
	case errors.Is(err, term.ErrAborted):
		p.Streams.Problem("Aborted!")
		return verb.Final(verb.Refused)
	case errors.Is(err, dist.ErrDeclined):
		return verb.Exit(verb.Refused)
	case errors.Is(err, dist.ErrProblems):
		say("Nothing was changed: the packages of " + d.ID + " are as they were.")
		return verb.Exit(verb.Refused)
	case err != nil:
		return err
	case len(out.Packages) == 0:
		say(d.ID + " declares no packages that are installed.")
	case d.DryRun:
		p.Streams.Note("Dry run: nothing was changed.")
	case !out.Changed:
		say("Nothing changed: every package is as it was.")
	default:
		say("Installed for " + d.ID + ". Programs of the plugin that run already take notice when they start again.")
	}
	if len(out.Left) > 0 {
		say("Not installed: " + strings.Join(out.Left, ", "))
	}
	return nil
}
