package host

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// PluginError is the type of a step's failure that is the plugin's defect, or the end of its process.
const PluginError = "PluginError"

// Step executes steps of one type of a plugin.
type Step struct{ served }

// NewStep makes an executor of the type that entry declares; whose is the plugin in messages.
func NewStep(p *Plugin, entry plugin.Entry, whose string) *Step {
	return &Step{served{p, entry, whose}}
}

// Run does the step in the plugin. A defect of the plugin, or its end, is a fault of the machinery.
func (s *Step) Run(ctx context.Context, c *step.Call) error {
	whole, err := c.State.Document()
	if err != nil {
		return fmt.Errorf("read the context: %w", err)
	}
	d, err := json.Marshal(c.Doc.Any())
	if err != nil {
		return fmt.Errorf("read the step: %w", err)
	}
	by := &Caller{Run: c.Run, Step: c.Step, Log: c.Log, Spend: func(v plugin.Spend) {
		c.Spent(step.Cost{USD: v.USD, InputTokens: v.InputTokens, OutputTokens: v.OutputTokens})
	}}
	var out plugin.Diffs
	err = s.p.Call(ctx, plugin.MethodExecute, by, func(call string) any {
		return plugin.Execute{
			Call: call, Entry: s.entry, Run: c.Run, Attempt: c.Attempt, Trial: c.Trial, Step: d, Context: whole, Seed: c.Seed, Models: c.Models, Agent: c.Agent,
		}
	}, &out)
	if err == nil {
		return s.commit(c, out.Diff)
	}
	f, err := s.told(ctx, err)
	if f.Keep {
		if bad := s.commit(c, f.Diff); bad != nil {
			return bad
		}
		err = step.Keep(err)
	}
	return err
}

// commit makes a step's diff of what the plugin answered.
func (s *Step) commit(c *step.Call, ops []plugin.Op) error {
	if err := apply(c, ops); err != nil {
		return s.defectOf("its diff can't be used", err)
	}
	return nil
}

// spread are the tables of the context document whose members belong to different steps: a plugin that sets one whole means its members.
var spread = []string{"metadata", step.VerificationsPath}

func apply(c *step.Call, ops []plugin.Op) error {
	out := c.Out
	if len(ops) > plugin.MaxOps {
		return fmt.Errorf("it has %d changes; %d is the most", len(ops), plugin.MaxOps)
	}
	first := map[string]int{} // change of a path
	for i, op := range slices.Backward(ops) {
		first[op.Path] = i
	}
	for i, op := range ops {
		if op.Path == "" || strings.HasPrefix(op.Path, "/") || strings.HasSuffix(op.Path, "/") || strings.Contains(op.Path, "//") {
			return fmt.Errorf("change %d: %s is no path", i+1, diag.Repr(op.Path))
		}
		if op.Op != plugin.OpUnset && len(op.Value) == 0 {
			return fmt.Errorf("change %d: it lacks a value", i+1)
		}
		var err error
		switch op.Op {
		case plugin.OpSet:
			err = set(c, op.Path, op.Value, first[op.Path] == i)
		case plugin.OpAppend:
			err = out.Append(op.Path, op.Value)
		case plugin.OpUnset:
			out.Unset(op.Path)
		default:
			return fmt.Errorf("change %d: there is no change called %s", i+1, diag.Repr(op.Op))
		}
		if err != nil {
			return fmt.Errorf("change %d: %w", i+1, err)
		}
	}
	return nil
}

// set sets what is at path. Of a list that was there, only the elements change that changed, so that what other steps do to it stays; untouched tells that the
// diff has nothing on the path before.
func set(c *step.Call, path string, v json.RawMessage, untouched bool) error {
	out := c.Out
	for _, s := range spread {
		if s != path {
			continue
		}
		var m map[string]json.RawMessage
		if err := json.Unmarshal(v, &m); err != nil {
			return fmt.Errorf("%s must be an object", path)
		}
		for _, name := range slices.Sorted(maps.Keys(m)) {
			if err := set(c, step.Child(path, name), m[name], false); err != nil {
				return err
			}
		}
		return nil
	}
	var now []json.RawMessage
	if was := c.State.List(path); untouched && len(was) > 0 && json.Unmarshal(v, &now) == nil && now != nil {
		return out.SetList(path, was, now)
	}
	return out.Set(path, v)
}

// Preflight asks the plugin what is wrong with the step, and why it can't run here. One that has no such checks finds nothing.
func (s *Step) Preflight(ctx context.Context, d doc.Node, _ step.Plan) diag.List {
	b, err := json.Marshal(d.Any())
	if err != nil {
		return diag.List{{Pos: d.Pos(), Code: "plugin.check", Summary: "can't be handed to the plugin: " + err.Error()}}
	}
	var l diag.List
	for _, method := range []string{plugin.MethodCheck, plugin.MethodPreflight} {
		var out plugin.Problems
		err := s.p.Call(ctx, method, &Caller{}, func(string) any { return plugin.Check{Entry: s.entry, Step: b} }, &out)
		switch {
		case rpc.CodeOf(err) == rpc.CodeNoMethod:
			continue
		case err != nil:
			return append(l, diag.Problem{Pos: d.Pos(), Code: "plugin.check", Summary: s.text(err)})
		}
		l = append(l, found(out.Problems, d)...)
		if l.HasErrors() {
			return l
		}
	}
	return l
}

// found are a plugin's problems as the program tells problems.
func found(in []plugin.Problem, d doc.Node) diag.List {
	var l diag.List
	for _, p := range in[:min(len(in), 100)] {
		out := diag.Problem{Pos: d.Pos(), Where: diag.Clean(p.Where), Code: "plugin.check", Summary: diag.Clean(p.Summary), Fix: diag.Clean(p.Fix)}
		if n := d.Get(p.Where); p.Where != "" && n.Exists() {
			out.Pos = n.Pos()
		}
		if p.Severity == "warning" {
			out.Severity = diag.Warning
		}
		l.Add(out)
	}
	return l
}
