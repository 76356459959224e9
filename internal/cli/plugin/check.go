package plugin

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/term"
)

func newCheck(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Load every plugin and say what doesn't take effect",
		Long: `Loads everything that plugins provide, git plugins that are on in the workspace here too, and prints a line for each thing that
doesn't take effect. It fails when there is one, and when the
configuration or the metadata of a package can't be read. What the configuration replaces is no problem.`,
		Example: "  agent-env plugin check && echo all in effect",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return check(cmd.Context(), p, cmd, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// checked is what --json prints.
type checked struct {
	report
	OK       bool      `json:"ok"`
	Problems []problem `json:"problems"`
}

type problem struct {
	contribution
	Package string `json:"package"`
	Version string `json:"version"`
}

func check(ctx context.Context, p *verb.Program, cmd *cobra.Command, asJSON bool) error {
	a, err := p.App()
	if err != nil {
		return err
	}
	r, err := a.CheckPlugins(ctx, Taken(cmd.Root()))
	if err != nil {
		return err
	}
	var bad []dist.Contribution
	total := 0
	for _, pl := range r.Plugins {
		total += len(pl.Contributions)
		for _, c := range pl.Contributions {
			if c.Status != dist.Active && c.Status != dist.Replaced {
				bad = append(bad, c)
			}
		}
	}
	trouble := a.ConfigTrouble()
	groups := alone(r, bad)
	ok := len(bad) == 0 && trouble == nil && len(r.Discovery) == 0 && len(groups) == 0
	if asJSON {
		out := checked{report: encode(a, r), OK: ok, Problems: []problem{}}
		for _, c := range bad {
			out.Problems = append(out.Problems, problem{encodeContribution(c), c.Package, c.Version})
		}
		if err := p.Streams.JSON(out); err != nil || ok {
			return err
		}
		return verb.Exit(verb.Refused)
	}
	troubles(p.Streams, r)
	for _, c := range bad {
		p.Streams.Println(term.Clean(fmt.Sprintf("%s %s: %s %s: ", c.Package, c.Version, dist.GroupWord(c.Group), c.Name)) + state(c))
	}
	for _, g := range groups {
		if trouble == nil {
			p.Streams.Println(term.Clean(fmt.Sprintf("%s: %s [%s]", g, r.Groups[g].Reason, r.Groups[g].Code)))
		}
	}
	switch {
	case len(bad) > 0:
		return fmt.Errorf("%d plugin contribution(s) did not take effect", len(bad))
	case trouble != nil:
		return fmt.Errorf("the configuration can't be used: %s", trouble.Reason)
	case len(groups) > 0:
		return fmt.Errorf("%s of the configuration did not take effect", diag.Count(len(groups), "table"))
	case !ok:
		return fmt.Errorf("the metadata of %s can't be read", diag.Count(len(r.Discovery), "package"))
	}
	p.Streams.Printf("ok: %d plugin package(s), %d contribution(s), all in effect\n", len(r.Plugins), total)
	return nil
}

// alone are the groups that are blocked and have no contribution that says so, sorted: classes of the configuration that don't load.
func alone(r dist.Report, bad []dist.Contribution) []string {
	var out []string
	for _, g := range sortedKeys(r.Groups) {
		if !slices.ContainsFunc(bad, func(c dist.Contribution) bool { return c.Group == g }) {
			out = append(out, g)
		}
	}
	return out
}
