package plugin

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/term"
)

func newAdd(p *verb.Program) *cobra.Command {
	var asJSON *bool
	var c dist.Change
	var yes bool
	cmd := &cobra.Command{
		Use:   "add SPEC…",
		Short: "Install plugin packages",
		Long: `Installs plugin packages with uv, or with pip where uv is missing, into a copy of the plugin environment, loads what they provide, and only
then takes the copy for the environment. Whatever fails, the environment stays as it was. SPEC is a requirement such as 'agentenv-acme>=1.2', a wheel
file, or 'name @ URL'.

Where packages come from is what the installer's own variables and files say (UV_INDEX, PIP_INDEX_URL, uv.toml, pip.conf, …) unless --index-url or
--find-links say otherwise.`,
		Example: "  agent-env plugin add agentenv-acme\n  agent-env plugin add ./agentenv_acme-1.2.0-py3-none-any.whl --dry-run\n" +
			"  agent-env plugin add 'agentenv-acme>=1.2' --find-links ./wheels --yes",
		Args: verb.Args("SPEC…"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Add = args
			return change(cmd.Context(), p, cmd, c, way{yes: yes, asJSON: *asJSON, done: "Added. `agent-env plugin list` shows every plugin."})
		},
	}
	f := cmd.Flags()
	sourceFlags(cmd, &c.IndexURL, &c.FindLinks)
	f.BoolVar(&c.Keep, "keep", false, "keep what was installed although it doesn't work")
	changeFlags(cmd, &c.DryRun, &yes)
	asJSON = verb.JSONFlag(cmd, "print one JSON object; it needs --yes or --dry-run")
	return cmd
}

// sourceFlags are where packages come from.
func sourceFlags(cmd *cobra.Command, indexURL *string, findLinks *[]string) {
	cmd.Flags().StringVar(indexURL, "index-url", "", "take packages from this index, and not from the installer's, at `URL`")
	cmd.Flags().StringArrayVar(findLinks, "find-links", nil, "look for packages in this `FOLDER` too (may be given several times)")
}

func changeFlags(cmd *cobra.Command, dry, yes *bool) {
	cmd.Flags().BoolVar(dry, "dry-run", false, "say what would be done, and do nothing")
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "don't ask")
}

// way is how a change is made and told.
type way struct {
	yes, asJSON, force bool
	done               string // what is said at the end
}

// changed is what --json prints.
type changed struct {
	verb.Format
	Changed  bool              `json:"changed"`
	DryRun   bool              `json:"dry_run"`
	Plan     []string          `json:"plan"`
	Diff     []dist.Difference `json:"diff"`
	Plugins  []problem         `json:"contributions"` // of what is new or changed
	Problems []string          `json:"problems"`
}

// check refuses a change that could ask nobody.
func (w way) check(dry bool) error {
	if w.asJSON && !w.yes && !dry {
		return verb.Usagef("--json can't ask: add --yes or --dry-run")
	}
	return nil
}

// talk is how the installer tells and asks.
func (w way) talk(p *verb.Program) dist.Talk {
	t := dist.Talk{
		Say:    func(line string) { p.Streams.Println(term.Clean(line)) },
		Detail: func(line string) { p.Streams.Detail("%s", line) },
	}
	if w.asJSON {
		t.Say = func(line string) { p.Streams.Problem("%s", term.Clean(line)) }
	}
	if !w.yes {
		t.Confirm = func(ctx context.Context) (bool, error) { return p.Streams.Confirm(ctx, "Proceed?", "--yes") }
	}
	return t
}

func change(ctx context.Context, p *verb.Program, cmd *cobra.Command, c dist.Change, w way) error {
	if err := w.check(c.DryRun); err != nil {
		return err
	}
	a, err := p.Ready()
	if err != nil {
		return err
	}
	c, err = located(c)
	if err != nil {
		return err
	}
	t := w.talk(p)
	out, err := a.ChangePlugins(ctx, c, w.force, Taken(cmd.Root()), t)
	if w.asJSON {
		if printed := p.Streams.JSON(encodeOutcome(out, c.DryRun)); printed != nil {
			return errors.Join(err, printed)
		}
		if errors.Is(err, dist.ErrProblems) {
			return verb.Exit(verb.Refused)
		}
		return err
	}
	switch {
	case errors.Is(err, dist.ErrProblems) && out.Changed:
		t.Say("Kept as installed (--keep).")
		return verb.Exit(verb.Refused)
	case errors.Is(err, dist.ErrProblems):
		t.Say("Nothing was changed: the plugin environment is as it was.")
		return verb.Exit(verb.Refused)
	case errors.Is(err, term.ErrAborted):
		p.Streams.Problem("Aborted!")
		return verb.Final(verb.Refused)
	case errors.Is(err, dist.ErrDeclined):
		return verb.Exit(verb.Refused)
	case err != nil:
		return err
	case c.DryRun:
		p.Streams.Note("Dry run: nothing was changed.")
	case !out.Changed:
		t.Say("Nothing changed: every package is as it was.")
	default:
		t.Say(w.done)
	}
	return nil
}

func encodeOutcome(o dist.Outcome, dry bool) changed {
	out := changed{
		Format: verb.V1(), Changed: o.Changed, DryRun: dry, Plan: append([]string{}, o.Plan...),
		Diff: append([]dist.Difference{}, o.Diff...), Plugins: []problem{}, Problems: append([]string{}, o.Problems...),
	}
	for _, c := range o.Plugins {
		out.Plugins = append(out.Plugins, problem{encodeContribution(c), c.Package, c.Version})
	}
	return out
}

// located makes the paths of a change absolute: the installer runs elsewhere.
func located(c dist.Change) (dist.Change, error) {
	var err error
	abs := func(texts []string, isPath func(string) bool) []string {
		out := make([]string, 0, len(texts))
		for _, s := range texts {
			if isPath(s) {
				full, e := filepath.Abs(s)
				err = errors.Join(err, e)
				s = full
			}
			out = append(out, s)
		}
		return out
	}
	c.Add = abs(c.Add, dist.IsFile)
	c.FindLinks = abs(c.FindLinks, dist.IsFolder)
	return c, err
}

// Install is how other commands install what they need: agent-env plugin add --yes, told on stderr.
func Install(p *verb.Program, root *cobra.Command) func(ctx context.Context, requirements []string) error {
	return func(ctx context.Context, requirements []string) error {
		a, err := p.Ready()
		if err != nil {
			return err
		}
		t := way{yes: true, asJSON: true}.talk(p)
		out, err := a.ChangePlugins(ctx, dist.Change{Add: requirements}, false, Taken(root), t)
		if errors.Is(err, dist.ErrProblems) && !out.Changed {
			t.Say("Nothing was changed: the plugin environment is as it was.")
			return verb.Exit(verb.Refused)
		}
		return err
	}
}
