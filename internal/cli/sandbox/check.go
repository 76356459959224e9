package sandbox

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/sandbox"
)

func newCheck(p *verb.Program) *cobra.Command {
	var chain, image string
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Start a sandbox, try to break out of it, and tell what held",
		Long: `Starts a sandbox, tries what it must withstand (reading the home folder, seeing the host's processes, reaching the network and
so on), tells what held, and removes it. The same tries are made in every sandbox and recorded with every run.`,
		Example: "  agent-env sandbox check\n  agent-env sandbox check --json",
		Args:    verb.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return check(cmd.Context(), p, chain, image, *asJSON) },
	}
	cmd.Flags().StringVar(&chain, "sandbox", "", "the `PROVIDER` to check")
	cmd.Flags().StringVar(&image, "image", "", "make it of this `IMAGE`")
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// checked is what --json prints.
type checked struct {
	verb.Format
	Provider  string            `json:"provider"`
	Isolation sandbox.Isolation `json:"isolation"`
	OK        bool              `json:"ok"` // everything that the level needs was withstood
}

func check(ctx context.Context, p *verb.Program, chain, image string, asJSON bool) error {
	a, err := open(ctx, p)
	if err != nil {
		return err
	}
	info, err := a.CheckBox(ctx, chain, image)
	if err != nil {
		return err
	}
	out := checked{verb.V1(), info.Provider, info.Isolation, true}
	var broken []string
	for _, probe := range info.Isolation.Probes {
		if !probe.OK && !probe.Warning {
			out.OK = false
			broken = append(broken, probe.Name)
		}
	}
	if asJSON {
		if err := p.Streams.JSON(out); err != nil {
			return err
		}
	} else {
		printIsolation(p, out)
	}
	if !out.OK {
		return errors.New("these do not hold: " + strings.Join(broken, ", "))
	}
	return nil
}

func printIsolation(p *verb.Program, c checked) {
	s := p.Streams
	s.Printf("%s: %s\n", c.Provider, s.OutColors().Bold(c.Isolation.Level))
	for _, probe := range c.Isolation.Probes {
		verb.Probe(s, probe)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Isolation.Limits)) {
		verb.Limit(s, name, c.Isolation.Limits[name])
	}
}
