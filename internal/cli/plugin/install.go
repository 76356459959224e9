package plugin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/term"
)

func newInstall(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var o gitplugins.Request
	cmd := &cobra.Command{
		Use:   "install URL",
		Short: "Install a git plugin, or a plugin bundle, into the workspace",
		Long: `Installs the plugin that a git repository holds, or all plugins that a plugin bundle names, and pins them in the workspace's plugins.lock: all of
them or none. URL is https://, ssh://, git@host:path, file:// or an absolute path; http:// needs plain_http = true in [git_plugins.sources].

Installing fetches files and nothing else: no code of a plugin runs, what it requires isn't installed, and it isn't enabled.`,
		Example: "  agent-env plugin install https://github.com/acme/board-plugin --ref v1.2.0\n  agent-env plugin install /srv/git/board-plugin --dry-run",
		Args:    verb.Args("URL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.URL = args[0]
			return install(cmd.Context(), p, o, *asJSON)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Ref, "ref", "", "install this branch, tag or `COMMIT`, and not the default branch")
	f.BoolVar(&o.Force, "force", false, "replace a plugin of the same id that came from elsewhere")
	f.BoolVar(&o.DryRun, "dry-run", false, "say what would be done, and do nothing")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func install(ctx context.Context, p *verb.Program, o gitplugins.Request, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	o.By = "cli"
	done, err := a.Git().Install(ctx, o)
	if err != nil {
		return err
	}
	defer func() { _ = done.Close() }() // the files are let go of; the process ends
	return tellInstall(p, done, o.DryRun, asJSON)
}

// tellBundle prints what a bundle suggests.
func tellBundle(s *term.Streams, b *gitplugins.BundleView, config doc.Node) {
	s.Printf("Bundle %s (%s) from %s\n", b.ID, short(b.Commit), term.Clean(b.Source))
	if len(b.Builtin) > 0 {
		s.Printf("  comes with agent-env: %s\n", term.Clean(strings.Join(b.Builtin, ", ")))
	}
	if len(b.Superseded) > 0 {
		s.Printf("  superseded: %s\n", term.Clean(strings.Join(b.Superseded, ", ")))
	}
	s.Printf("  It suggests to enable: %s\n", term.Clean(strings.Join(b.Enabled, ", ")))
	if config.Len() > 0 {
		s.Printf("  It suggests these settings: %s\n", term.Clean(string(doc.JSON(config))))
	}
	s.Println("  Nothing was enabled and no setting was written.")
}

// tellGit prints one plugin of an install.
func tellGit(s *term.Streams, pl gitplugins.PluginView, dry bool) {
	word := map[git.Outcome]string{git.Added: "Installed", git.Updated: "Updated", git.Unchanged: "Up to date:"}[pl.Outcome]
	if dry {
		word = map[git.Outcome]string{git.Added: "Would install", git.Updated: "Would update", git.Unchanged: "Up to date:"}[pl.Outcome]
	}
	s.Printf("%s %s %s (%s) from %s\n", word, pl.ID, term.Clean(pl.Version), short(pl.Commit), term.Clean(pl.Source))
	line := liner(s)
	line("about", pl.Description)
	line("repository", pl.Repository)
	gitParts(line, pl.Contributes)
	line("needs variables", pl.RequiresEnv...)
	line("needs packages, which are not installed", pl.Packages...)
	line("can use packages", pl.Optional...)
	for _, w := range pl.Warnings {
		s.Problem("Warning: %s: %s", pl.ID, term.Clean(w))
	}
	if pl.Outcome == git.Added && !dry {
		s.Println("  It is not enabled: agent-env plugin enable " + pl.ID + " turns it on.")
	}
}

// liner prints one line of a plugin or a bundle: what it is, and its values; nothing where there are none.
func liner(s *term.Streams) func(name string, values ...string) {
	return func(name string, values ...string) {
		if text := strings.TrimSpace(strings.Join(values, ", ")); text != "" {
			s.Printf("  %s: %s\n", name, term.Clean(text))
		}
	}
}

func gitParts(line func(string, ...string), c gitplugins.Contributes) {
	line("program", strings.Join(c.Command, " "))
	names := make([]string, len(c.Types))
	for i, t := range c.Types {
		names[i] = t.Name
	}
	slices.Sort(names)
	line("types", names...)
	if c.MCP > 0 {
		line("MCP servers", fmt.Sprint(c.MCP))
	}
	line("skills", c.Skills...)
	line("workflows", c.Workflows...)
	line("bundles", c.Bundles...)
	line("views", c.Views...)
	line("settings", c.Settings...)
	line("Python, which is not loaded here", c.Python...)
}

func newSync(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "sync",
		Short: "Bring back the git plugins that plugins.lock names",
		Long: `Makes the workspace's git plugins what its plugins.lock says: what is missing or was changed is fetched again, at the commit that is locked. What is
here and unchanged asks no server for anything. One plugin that fails stops no other, and the exit code is then 1.`,
		Example: "  agent-env plugin sync",
		Args:    verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return stand(cmd.Context(), p, *asJSON, (*git.Store).Sync)
		},
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

func newVerify(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:     "verify",
		Short:   "Compare the files of git plugins with plugins.lock",
		Long:    "Reads the files of every git plugin of the workspace and compares them with the digests in its plugins.lock. The exit code is 1 where one differs or is missing.",
		Example: "  agent-env plugin verify",
		Args:    verb.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return stand(cmd.Context(), p, *asJSON, (*git.Store).Verify)
		},
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// bad tells a state in which a plugin isn't what the lock says.
func bad(s git.State) bool { return s == git.Missing || s == git.Modified || s == git.Failed }

// stand does something with all rows of the lock and prints what is here of them.
func stand(ctx context.Context, p *verb.Program, asJSON bool, do func(*git.Store, context.Context) ([]git.Standing, error)) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	s, err := a.Git().Store(ctx)
	if err != nil {
		return err
	}
	all, err := do(s, ctx)
	if err != nil && len(all) == 0 {
		return err
	}
	failed := false
	rows := []gitplugins.RowView{}
	for _, st := range all {
		rows = append(rows, gitplugins.ViewRow(st, false))
		failed = failed || bad(st.State)
	}
	if asJSON {
		err = errors.Join(err, p.Streams.JSON(struct {
			verb.Format
			Plugins []gitplugins.StateView `json:"plugins"`
		}{verb.V1(), gitplugins.ViewStates(all)}))
	} else {
		for _, r := range rows {
			tail := ""
			if r.Error != nil {
				tail = " (" + term.Clean(strings.ReplaceAll(*r.Error, "\n", "; ")) + ")"
			}
			p.Streams.Printf("%s: %s%s\n", r.ID, r.State, tail)
		}
		if len(rows) == 0 {
			p.Streams.Note("Nothing is installed from git.")
		}
	}
	if err == nil && failed {
		return verb.Exit(verb.Refused)
	}
	return err
}
