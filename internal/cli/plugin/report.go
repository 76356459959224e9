package plugin

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/term"
)

// report is what the three reporting verbs print as JSON. Every key is always there; none is ever removed or used for something else.
type report struct {
	verb.Format
	AgentEnv  program                 `json:"agent_env"`
	Config    configuration           `json:"config"`
	Loaded    bool                    `json:"loaded"`
	Groups    map[string]dist.Trouble `json:"group_errors"`
	Discovery map[string]dist.Trouble `json:"discovery_errors"`
	Plugins   []installed             `json:"plugins"`
}

type program struct {
	Version     string `json:"version"`
	Environment string `json:"environment"`
	Location    string `json:"location"`
}

type configuration struct {
	Path  *string       `json:"path"`
	Error *dist.Trouble `json:"error"`
}

type installed struct {
	Name          string         `json:"name"`
	Version       string         `json:"version"`
	Contributions []contribution `json:"contributions"`
}

type contribution struct {
	Group      string      `json:"group"`
	Name       string      `json:"name"`
	Value      string      `json:"value"`
	Status     dist.Status `json:"status"`
	Code       *string     `json:"code"`
	Reason     *string     `json:"reason"`
	ReplacedBy *replaced   `json:"replaced_by"`
	Conflicts  []claim     `json:"conflicts_with"`
}

type replaced struct {
	File  string `json:"file"`
	Table string `json:"table"`
	Impl  string `json:"impl"`
}

type claim struct {
	Package string `json:"package"`
	Version string `json:"version"`
	Value   string `json:"value"`
}

// kind is what the plugin environment is, in the words that readers of the contract know.
const kind = "virtualenv"

// look makes the report. It needs no configuration that can be read: what is wrong with it is part of the report.
func look(ctx context.Context, p *verb.Program, cmd *cobra.Command, load bool) (*app.App, dist.Report, error) {
	a, err := p.App()
	if err != nil {
		return nil, dist.Report{}, err
	}
	r, err := a.PluginReport(ctx, load, Taken(cmd.Root()))
	return a, r, err
}

func encode(a *app.App, r dist.Report) report {
	out := report{
		Format: verb.V1(), AgentEnv: program{app.Version, kind, location(a)}, Config: configuration{text(a.Config().Path()), a.ConfigTrouble()},
		Loaded: r.Loaded, Groups: r.Groups, Discovery: r.Discovery, Plugins: []installed{},
	}
	if out.Config.Error != nil && out.Config.Error.Code == dist.CodeConfigMissing {
		out.Config.Path = nil
	}
	for _, pl := range r.Plugins {
		out.Plugins = append(out.Plugins, encodePlugin(pl))
	}
	return out
}

func encodePlugin(pl dist.Plugin) installed {
	out := installed{pl.Name, pl.Version, []contribution{}}
	for _, c := range pl.Contributions {
		out.Contributions = append(out.Contributions, encodeContribution(c))
	}
	return out
}

func encodeContribution(c dist.Contribution) contribution {
	out := contribution{Group: c.Group, Name: c.Name, Value: c.Value, Status: c.Status, Code: text(c.Code), Reason: text(c.Reason), Conflicts: []claim{}}
	if r := c.ReplacedBy; r != nil {
		out.ReplacedBy = &replaced{r.File, r.Table, r.Impl}
	}
	for _, o := range c.Conflicts {
		out.Conflicts = append(out.Conflicts, claim{o.Package, o.Version, o.Value})
	}
	return out
}

// text is a text as JSON shows it: null for none.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func location(a *app.App) string { return filepath.Join(a.Config().StateRoot(), "plugins") }

// header prints what stands above a list.
func header(s *term.Streams, a *app.App) {
	s.Printf("agent-env %s · %s at %s\n", app.Version, kind, location(a))
	where := a.Config().Path()
	if where == "" {
		where = "(none)"
	}
	s.Printf("config: %s\n", term.Clean(where))
	if t := a.ConfigTrouble(); t != nil {
		s.Problem("Warning: the configuration can't be used, so nothing was loaded: %s", t.Reason)
	}
}

// troubles tells what could not be read.
func troubles(s *term.Streams, r dist.Report) {
	for _, name := range sortedKeys(r.Discovery) {
		s.Problem("Warning: %s: %s [%s]", term.Clean(name), term.Clean(r.Discovery[name].Reason), r.Discovery[name].Code)
	}
}

// provides is what a plugin has: up to three things by name, else how many of each kind.
func provides(pl dist.Plugin) string {
	var out []string
	if len(pl.Contributions) <= 3 {
		for _, c := range pl.Contributions {
			out = append(out, dist.GroupWord(c.Group)+" "+c.Name)
		}
		return strings.Join(out, ", ")
	}
	for i := 0; i < len(pl.Contributions); {
		group, n := pl.Contributions[i].Group, 0
		for ; i < len(pl.Contributions) && pl.Contributions[i].Group == group; i++ {
			n++
		}
		out = append(out, diag.Count(n, dist.GroupWord(group)))
	}
	return strings.Join(out, ", ")
}

// status is a plugin's in one word, or how many of its contributions are not in effect.
func status(pl dist.Plugin, r dist.Report) string {
	counts := map[dist.Status]int{}
	waiting := 0
	for _, c := range pl.Contributions {
		if c.Status == dist.Unloaded && c.Code == dist.CodeNotLoaded && !r.Loaded {
			waiting++
		} else {
			counts[c.Status]++
		}
	}
	var out []string
	for _, s := range []dist.Status{dist.Conflict, dist.Blocked, dist.Failed, dist.Skipped, dist.Replaced, dist.Unloaded} {
		if counts[s] > 0 {
			out = append(out, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	switch {
	case len(out) > 0:
		return strings.Join(out, ", ")
	case r.Discovery[pl.Name].Code != "":
		return "unreadable"
	case waiting > 0:
		return "not loaded"
	default:
		return "ok"
	}
}

// state spells what became of a contribution: "failed: reason [code]".
func state(c dist.Contribution) string {
	out := string(c.Status)
	if c.Reason != "" {
		out += ": " + c.Reason
	}
	if c.Code != "" {
		out += " [" + c.Code + "]"
	}
	return term.Clean(out)
}

func all(s []string) []string { return append([]string{}, s...) }
