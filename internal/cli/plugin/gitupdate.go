package plugin

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/term"
)

func newOutdated(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "outdated",
		Short: "Show which git plugins and plugin bundles have something newer",
		Long: `Asks the sources of all git plugins and plugin bundles what they have now; what was asked less than five minutes ago isn't asked again. A branch is behind where it
has moved, a release's tag (v1.2.3) where a newer release is there. What is pinned to a commit isn't asked for. The exit code is 1 where a source didn't answer.`,
		Example: "  agent-env plugin outdated\n  agent-env plugin outdated --json",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return outdated(cmd.Context(), p, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func outdated(ctx context.Context, p *verb.Program, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	all, err := a.Git().Outdated(ctx)
	if err != nil {
		return err
	}
	failed := false
	rows := []gitplugins.UpdateView{}
	for _, u := range all {
		r := gitplugins.ViewUpdate(u)
		failed = failed || r.Error != nil
		rows = append(rows, r)
	}
	if asJSON {
		err = p.Streams.JSON(struct {
			verb.Format
			Plugins []gitplugins.UpdateView `json:"plugins"`
		}{verb.V1(), rows})
	} else {
		for _, r := range rows {
			p.Streams.Printf("%s: %s\n", term.Clean(r.ID), term.Clean(updateWords(r)))
		}
		if len(rows) == 0 {
			p.Streams.Println("Nothing is installed from git.")
		}
	}
	if err == nil && failed {
		err = verb.Exit(verb.Refused)
	}
	return err
}

func updateWords(r gitplugins.UpdateView) string {
	verbs := map[string]string{"plugin": "update", "bundle": "update-bundle"}[r.Kind]
	switch {
	case r.Error != nil:
		return "failed: " + *r.Error
	case r.Superseded:
		return "comes with agent-env"
	case r.Pinned:
		return "pinned to its commit"
	case !r.Behind:
		return "up to date"
	case r.LatestRef != r.Ref:
		return r.Ref + " is installed, and " + r.LatestRef + " is there: agent-env plugin " + verbs + " " + r.ID + " --latest"
	default:
		return short(r.Current) + " is installed, and " + short(r.Latest) + " is there: agent-env plugin " + verbs + " " + r.ID
	}
}

func short(commit string) string { return commit[:min(len(commit), 10)] }

func newUpdate(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var latest, dry bool
	cmd := &cobra.Command{
		Use:   "update ID",
		Short: "Bring a git plugin to what its ref means now",
		Long: `Fetches the plugin at the ref that it was installed at: a branch is followed, a tag or a commit stays what it was, unless the tag was moved. With --latest a release's
tag (v1.2.3) moves to that of the newest release. Who installed it, its settings and whether it is on stay.`,
		Example:           "  agent-env plugin update board\n  agent-env plugin update board --latest",
		Args:              verb.Args("ID"),
		ValidArgsFunction: completeGit(p, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := p.Ready()
			if err != nil {
				return err
			}
			done, err := a.Git().Update(cmd.Context(), args[0], latest, dry)
			if err != nil {
				return err
			}
			defer func() { _ = done.Close() }() // the files are let go of; the process ends
			return tellInstall(p, done, dry, *asJSON)
		},
	}
	cmd.Flags().BoolVar(&latest, "latest", false, "move a release's tag to that of the newest release")
	cmd.Flags().BoolVar(&dry, "dry-run", false, "say what would be done, and do nothing")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func newUpdateBundle(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var u gitplugins.BundleUpdate
	cmd := &cobra.Command{
		Use:   "update-bundle ID",
		Short: "Bring a plugin bundle and its plugins to what it names now",
		Long: `Fetches the plugin bundle at its ref, installs what it names now, and removes the plugins that it names no more and that are its own; all of it or nothing. With --latest a
release's tag (v1.2.3) of the bundle moves to that of the newest release, and those of its plugins to the newest compatible ones. Nothing is enabled, and what is disabled stays so.`,
		Example:           "  agent-env plugin update-bundle desk\n  agent-env plugin update-bundle desk --ref v2.0.0",
		Args:              verb.Args("ID"),
		ValidArgsFunction: completeGit(p, true),
		RunE: func(cmd *cobra.Command, args []string) error {
			u.ID = args[0]
			return updateBundle(cmd.Context(), p, u, *asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&u.Ref, "ref", "", "take this branch, tag or `COMMIT` of the bundle")
	f.BoolVar(&u.Latest, "latest", false, "move releases' tags to newer ones; a --ref stays")
	f.BoolVar(&u.Force, "force", false, "replace plugins of the same ids that came from elsewhere")
	f.BoolVar(&u.DryRun, "dry-run", false, "say what would be done, and do nothing")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func updateBundle(ctx context.Context, p *verb.Program, u gitplugins.BundleUpdate, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	done, err := a.Git().UpdateBundle(ctx, u)
	if err != nil {
		return err
	}
	defer func() { _ = done.Close() }() // the files are let go of; the process ends
	if asJSON {
		return p.Streams.JSON(struct {
			verb.Format
			gitplugins.InstalledView
			Retired []string `json:"removed_members"`
			Kept    []string `json:"kept"`
			Missing []string `json:"skipped_missing"`
		}{verb.V1(), gitplugins.ViewInstalled(&done.Installed, u.DryRun), all(done.Retired.Members), all(done.Retired.Kept), all(done.Retired.Missing)})
	}
	if err := tellInstall(p, &done.Installed, u.DryRun, false); err != nil {
		return err
	}
	for _, id := range done.Retired.Members {
		p.Streams.Printf("Removed %s: the bundle names it no more\n", id)
	}
	if kept := done.Retired.Kept; len(kept) > 0 {
		p.Streams.Printf("Kept, since others have installed them: %s\n", strings.Join(kept, ", "))
	}
	return nil
}

// tellInstall prints what an install or an update did.
func tellInstall(p *verb.Program, done *gitplugins.Installed, dry, asJSON bool) error {
	out := gitplugins.ViewInstalled(done, dry)
	if asJSON {
		return p.Streams.JSON(struct {
			verb.Format
			gitplugins.InstalledView
		}{verb.V1(), out})
	}
	for _, pl := range out.Plugins {
		tellGit(p.Streams, pl, dry)
	}
	if b := out.Bundle; b != nil {
		tellBundle(p.Streams, b, done.Pack.Manifest.ConfigNode)
	}
	for _, w := range out.Warnings {
		p.Streams.Problem("Warning: %s", term.Clean(w))
	}
	if dry {
		p.Streams.Note("Dry run: nothing was changed.")
	}
	return nil
}
