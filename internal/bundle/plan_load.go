package bundle

import (
	"context"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/task"
)

// loadedBy checks the data that a task's load_artifact steps put into envs of the bundle: a universe that the bundle writes, and each environment of
// it, is meant for the env, so one without a server of its name there is a slip. Universes of a store are shared between envs and not checked.
func (p *planner) loadedBy(ctx context.Context, e *Entry) error {
	for i := range e.task.Steps {
		s := &e.task.Steps[i]
		if s.Type != "load_artifact" {
			continue
		}
		where := "step " + diag.Repr(s.ID)
		p.commands(e, s, where)
		var target *Reference
		var data []*Reference
		for _, x := range e.Refs {
			if !strings.HasPrefix(x.Where, where+": ") {
				continue
			}
			switch x.Kind {
			case ref.Env:
				target = x
			case ref.Artifact:
				data = append(data, x)
			default:
			}
		}
		if target == nil {
			continue
		}
		servers, what, err := p.loadable(ctx, target)
		if err != nil {
			return err
		}
		if servers == nil {
			continue
		}
		for _, x := range data {
			for _, d := range p.loads(x) {
				if servers[d.name] || d.name == "" { // one without a name is a problem of its own
					continue
				}
				p.l.Add(diag.Problem{
					Pos: diag.Pos{File: e.Label, Line: x.Pos.Line}, Where: where, Code: "load.server", Prefixed: true,
					Summary: d.label + " holds data for " + diag.Repr(d.name) + ", and " + target.String() + " has no " + what + " of that name; it has " + list(quoted(servers)),
				})
			}
		}
	}
	return nil
}

// loadable are the environment names that an env has data of, and what has them; nil when not all are known.
func (p *planner) loadable(ctx context.Context, x *Reference) (names map[string]bool, what string, err error) {
	typ := p.stored[storedKey{x.Kind, x.ID, x.Version}].Type
	if x.Entry != nil {
		typ = x.Entry.Type
	}
	if env.Desktop(typ) {
		names, err = p.computerNames(ctx, x)
		return names, "app", err
	}
	names, known := p.servers(x)
	if !known {
		return nil, "", nil
	}
	return names, "server", nil
}

// computerNames are the name of a computer and those of its apps; nil when not all are known. An app or a driver alone is a computer of its name.
func (p *planner) computerNames(ctx context.Context, x *Reference) (map[string]bool, error) {
	if e := x.Entry; e != nil {
		out := map[string]bool{e.desktopName(): true}
		for _, app := range e.Refs {
			if app.Type != env.ComputerApp {
				continue
			}
			a, ok := p.composedApp(app)
			if !ok {
				return nil, nil
			}
			out[a.name] = true
		}
		return out, nil
	}
	s := p.stored[storedKey{x.Kind, x.ID, x.Version}]
	if !s.ok {
		return nil, nil
	}
	t, _ := doc.ParseJSON("", s.Body)
	out := map[string]bool{}
	if name := storedName(s.Body); name != "" {
		out[name] = true
	} else {
		out[ref.Last(x.ID)] = true
	}
	for _, app := range t.Root().Get("apps").Items() {
		version, _ := app.Get("version").Int()
		a, err := p.lookup(ctx, storedKey{ref.Env, app.Get("id").Text(), int(version)})
		if err != nil {
			return nil, err
		}
		name := storedName(a.Body)
		if !a.ok || name == "" {
			return nil, nil
		}
		out[name] = true
	}
	return out, nil
}

// commands checks that a step that loads a CLI says where it is installed and which environment it talks to.
func (p *planner) commands(e *Entry, s *task.Step, where string) {
	var lacks []string
	for _, field := range []string{"agent_name", "env_id"} {
		if s.Doc.Get(field).IsNull() {
			lacks = append(lacks, field)
		}
	}
	if len(lacks) == 0 {
		return
	}
	for _, x := range e.Refs {
		typ := p.stored[storedKey{x.Kind, x.ID, x.Version}].Type
		if x.Entry != nil {
			typ = x.Entry.Type
		}
		if x.Kind != ref.Artifact || typ != artifact.CLI || !strings.HasPrefix(x.Where, where+": ") {
			continue
		}
		p.l.Add(diag.Problem{
			Pos: diag.Pos{File: e.Label, Line: x.Pos.Line}, Where: where, Code: "load.command", Prefixed: true,
			Summary: x.String() + " is a command: it is installed into an agent and talks to an environment; set " + strings.Join(lacks, " and "),
		})
	}
}

// loads are the environments that data of the bundle holds.
func (p *planner) loads(x *Reference) []child {
	switch {
	case x.Entry == nil:
		return nil
	case x.Entry.Type == artifact.Environment:
		return []child{{name: x.Entry.text("environment_name"), label: x.Entry.Label}}
	case x.Entry.Type == artifact.EnvironmentUniverse:
		out := append([]child(nil), x.Entry.bundle.layoutOf(x.Entry).envs...)
		for _, r := range x.Entry.Refs {
			if name := p.environmentName(r); name != "" {
				out = append(out, child{name: name, label: x.Entry.Label + ": " + r.Where})
			}
		}
		return out
	default:
		return nil
	}
}

// servers are the environment names of an env's servers; false when not all are known.
func (p *planner) servers(x *Reference) (map[string]bool, bool) {
	out := map[string]bool{}
	refs := []*Reference{x}
	typ := p.stored[storedKey{x.Kind, x.ID, x.Version}].Type
	if x.Entry != nil {
		typ = x.Entry.Type
	}
	switch typ {
	case env.MCPServer, env.Website:
	case env.Multi:
		if x.Entry == nil {
			return nil, false
		}
		refs = x.Entry.Refs
	default:
		return nil, false
	}
	for _, r := range refs {
		name := p.serverName(r)
		if name == "" {
			return nil, false
		}
		out[name] = true
	}
	return out, true
}
