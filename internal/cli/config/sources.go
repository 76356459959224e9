package config

import (
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/term"
)

func newSources(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "sources",
		Short: "List the places that settings are read from, lowest first",
		Args:  verb.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return sources(p, *asJSON) },
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object")
	return cmd
}

// places is what --json prints.
type places struct {
	verb.Format
	Sources []config.Source `json:"sources"`
}

func sources(p *verb.Program, asJSON bool) error {
	c, err := load(p)
	if err != nil {
		return err
	}
	out := places{verb.V1(), c.Sources()}
	if asJSON {
		return p.Streams.JSON(out)
	}
	t := term.NewTable("SOURCE", "NAME", "SET", "SETS", "VALUE")
	for _, s := range out.Sources {
		set := "no"
		if s.Set {
			set = "yes"
		}
		t.Row(s.Kind, s.Name, set, strings.Join(s.Keys, ", "), s.Value)
	}
	return t.Print(p.Streams)
}
