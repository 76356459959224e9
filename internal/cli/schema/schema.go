// Package schema is the verb that prints JSON Schemas of the documents that people write, so that editors complete and check them. The schemas are
// made from what reading checks: the step types, and the tables of each toml. What needs other files, a store or rules across keys is not in them.
package schema

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/term"
)

// New is the command.
func New(p *verb.Program) *cobra.Command {
	var asJSON *bool
	cmd := &cobra.Command{
		Use:   "schema [NAME]",
		Short: "Print the JSON Schema of a document, for editors, or list them",
		Long: `Prints the JSON Schema (draft 2020-12) of a document that people write; without NAME, lists those that there are.

An editor that knows the schema completes names and marks mistakes while you type. docs/bundles.md tells how to set one up.`,
		Example: "  agent-env schema\n  agent-env schema task > task.schema.json\n  agent-env schema env.toml > env.schema.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return verb.Usagef("%s takes one NAME, but also got %s", cmd.CommandPath(), strings.Join(args[1:], " "))
			}
			return nil
		},
		ValidArgsFunction: complete,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return list(p, *asJSON)
			}
			return show(p, args[0], *asJSON)
		},
	}
	asJSON = verb.JSONFlag(cmd, "print one JSON object, the schema inside it")
	return cmd
}

func complete(_ *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	var out []cobra.Completion
	if len(args) == 0 {
		for _, d := range documents() {
			out = append(out, cobra.CompletionWithDesc(d.name, d.about))
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// listing is what --json prints without a name.
type listing struct {
	verb.Format
	Schemas []listed `json:"schemas"`
}

type listed struct {
	Name  string `json:"name"`
	File  string `json:"file"`
	About string `json:"about"`
}

func list(p *verb.Program, asJSON bool) error {
	out := listing{Format: verb.V1()}
	t := term.NewTable("NAME", "FILE", "WHAT IT IS")
	for _, d := range documents() {
		out.Schemas = append(out.Schemas, listed{d.name, d.file, d.about})
		t.Row(d.name, d.file, d.about)
	}
	if asJSON {
		return p.Streams.JSON(out)
	}
	return t.Print(p.Streams)
}

// shown is what --json prints with a name.
type shown struct {
	verb.Format
	Name   string          `json:"name"`
	Schema json.RawMessage `json:"schema"`
}

func show(p *verb.Program, name string, asJSON bool) error {
	all := documents()
	i := slices.IndexFunc(all, func(d document) bool { return d.name == name })
	if i < 0 {
		var names []string
		for _, d := range all {
			names = append(names, d.name)
		}
		if near := diag.Nearest(name, names); near != "" {
			return verb.Usagef("there is no schema %q; did you mean %q?", name, near)
		}
		return verb.Usagef("there is no schema %q; there are %s", name, strings.Join(names, ", "))
	}
	s := all[i].make()
	if asJSON {
		return p.Streams.JSON(shown{verb.V1(), name, doc.JSON(s)})
	}
	p.Streams.Printf("%s\n", doc.JSONIndent(s))
	return nil
}
