// Package config holds the verbs that tell where settings come from.
package config

import (
	"encoding/json"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/term"
)

// New is the noun with its verbs.
func New(p *verb.Program) *cobra.Command {
	return verb.Group("config", "See where every setting comes from, and trust configuration files",
		newShow(p), newExplain(p), newSources(p), newTrust(p))
}

// load is the configuration for commands that only report: problems of it are part of the report.
func load(p *verb.Program) (*config.Config, error) {
	a, err := p.App()
	if err != nil {
		return nil, err
	}
	return a.Config(), nil
}

// text spells a value in one line.
func text(v any) string {
	if s, ok := v.(string); ok {
		return term.Clean(s)
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return "?"
	}
	return term.Clean(strings.TrimSuffix(b.String(), "\n"))
}

// from says which place sets something.
func from(l config.Layer) string {
	if l.Where == "" {
		return l.Kind
	}
	return term.Clean(l.Where)
}
