package bundle

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

func newCheck(p *verb.Program) *cobra.Command {
	var allowUnknown bool
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "check BUNDLE",
		Short: "Check a bundle, writing and running nothing",
		Long: `Makes every check of a bundle that needs neither a store nor a sandbox, over the whole bundle, and tells everything that is wrong at once.
What a task needs of this machine is checked by agent-env run BUNDLE --dry-run.`,
		Example:           "  agent-env bundle check ./my-bundle\n  agent-env bundle check ./my-bundle --json",
		Args:              verb.Args("BUNDLE"),
		ValidArgsFunction: CompleteNames(p),
		RunE: func(cmd *cobra.Command, args []string) error {
			return check(cmd.Context(), p, args[0], allowUnknown, *asJSON)
		},
	}
	cmd.Flags().BoolVar(&allowUnknown, "allow-unknown-fields", false, "warn of step fields that this version doesn't know, in place of refusing them")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// checked is what --json prints.
type checked struct {
	verb.Format
	OK       bool           `json:"ok"`
	Bundle   string         `json:"bundle"`
	Contents map[string]int `json:"contents"` // number of entries by folder
	Problems []verb.Problem `json:"problems"`
}

func check(ctx context.Context, p *verb.Program, text string, allowUnknown, asJSON bool) error {
	a, err := p.Ready()
	if err != nil {
		return err
	}
	c, err := a.Check(ctx, text, allowUnknown)
	if err != nil {
		return err
	}
	if asJSON {
		out := checked{verb.V1(), !c.Problems.HasErrors(), c.Root, c.Contents(), verb.Problems(c.Problems)}
		if err := p.Streams.JSON(out); err != nil {
			return err
		}
	}
	if err := c.Problems.Err(); err != nil {
		return err
	}
	for _, w := range c.Problems.Of(diag.Warning) {
		p.Streams.Problem("Warning: %s", w)
	}
	if !asJSON {
		p.Streams.Printf("%s: %s: no problems\n", term.Clean(text), counted(c))
	}
	return nil
}

// counted is "1 artifact, 2 tasks".
func counted(c app.Checked) string {
	var parts []string
	for _, f := range c.Folders {
		parts = append(parts, diag.Count(f.N, f.One))
	}
	return strings.Join(parts, ", ")
}
