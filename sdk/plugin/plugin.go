// Package plugin writes a plugin of AgentEnv in Go: a program that adds step types, environment and artifact types, providers of sandboxes, and commands. It speaks the protocol of
// docs/plugin-protocol.md; package plugintest is a host to test against.
//
//	func main() { os.Exit(acme.Main(context.Background(), os.Args[1:])) }
//
// Words: the host is AgentEnv; a type is what the plugin adds; a call is one thing that the host asks; a diff is what a step changes in its run's context document.
// What Print writes to stdout is lost to messages: log with Call.Log, or write to stderr.
package plugin

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// Plugin is what a program adds.
type Plugin struct {
	Name    string
	Version string
	Steps   []Step
	Envs    []Env
	// Artifacts are types of artifacts.
	Artifacts []Artifact
	Commands  []Command
	// Sandboxes are providers of sandboxes.
	Sandboxes []Sandboxes
}

// Step is a step type.
type Step struct {
	Name        string
	Description string          // one line
	Schema      json.RawMessage // JSON Schema of its own fields; nil: any
	Refs        []Ref
	Scores      bool // its steps leave a score
	// Run does it. What it sets in c counts when it returns nil; see Fail, Infra and Keep for what it may return.
	Run func(ctx context.Context, c *Call) error
	// Check tells what is wrong with a step's document, reading nothing else; Preflight why it can't run here. Both may be nil.
	Check     func(ctx context.Context, step Document) []Problem
	Preflight func(ctx context.Context, step Document) []Problem
}

// Command is a subcommand of agent-env. The person's terminal is stdin, stdout and stderr.
type Command struct {
	Name        string
	Description string
	// Run answers the exit code.
	Run func(ctx context.Context, h *Host, args []string) int
}

// Document is a JSON object.
type Document json.RawMessage

// Decode reads it into v.
func (d Document) Decode(v any) error {
	if err := json.Unmarshal(d, v); err != nil {
		return Fail("ConfigError", "the document is not what it should be: %v", err)
	}
	return nil
}

// Types are all types of the plugin, as its manifest has them.
func (p *Plugin) Types() []Type {
	var out []Type
	for _, s := range p.Steps {
		out = append(out, Type{Group: GroupSteps, Name: s.Name, Description: s.Description, Schema: s.Schema, Refs: s.Refs, Scores: s.Scores})
	}
	for _, e := range p.Envs {
		out = append(out, Type{Group: GroupEnvs, Name: e.Name, Description: e.Description, Schema: e.Schema, Refs: e.Refs})
	}
	for _, a := range p.Artifacts {
		out = append(out, Type{Group: GroupArtifacts, Name: a.Name, Description: a.Description, Schema: a.Schema, Refs: a.Refs})
	}
	for _, s := range p.Sandboxes {
		out = append(out, Type{Group: GroupProviders, Name: s.Name, Description: s.Description, Sandbox: &s.Can})
	}
	for _, c := range p.Commands {
		out = append(out, Type{Group: GroupCommands, Name: c.Name, Description: c.Description})
	}
	return out
}

// Manifest is the content of agentenv_plugin.json.
func (p *Plugin) Manifest() ([]byte, error) {
	b, err := json.MarshalIndent(Manifest{Format: 1, Protocol: Version, Types: p.Types()}, "", "  ")
	if err != nil {
		return nil, err
	}
	if _, err := ParseManifest(b); err != nil {
		return nil, err
	}
	return append(b, '\n'), nil
}

// Main is the program: started by the host it serves, and answers the exit code. Started by a person, `manifest` prints what agentenv_plugin.json must hold,
// and `wheel DISTRIBUTION [DIR]` writes a package that holds this program, to be installed by `agent-env plugin add`.
func (p *Plugin) Main(ctx context.Context, args []string) int {
	if where, ok := os.LookupEnv(Variable); ok {
		if err := p.serveHost(ctx, where); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
			return 1
		}
		return 0
	}
	if slices.Equal(args, []string{"manifest"}) {
		b, err := p.Manifest()
		if err == nil {
			_, err = os.Stdout.Write(b)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
			return 1
		}
		return 0
	}
	if len(args) > 1 && len(args) < 4 && args[0] == "wheel" {
		path, err := p.writeWheel(args[1], append(args, ".")[2])
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
			return 1
		}
		_, _ = fmt.Fprintln(os.Stdout, path)
		return 0
	}
	fmt.Fprintf(os.Stderr, "%s %s is a plugin of agent-env, which starts it; `%s manifest` prints its %s, `%s wheel DISTRIBUTION [DIR]` writes a package of it\n",
		p.Name, p.Version, p.Name, ManifestName, p.Name)
	return 2
}
