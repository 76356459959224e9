package step

import (
	"maps"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// controlKinds change how deployed environments and agents behave.
func controlKinds() []*Kind {
	return []*Kind{
		peerAgents(), modifyToolAccess(), applyServerConfig(), syncClock(), registerEnvTriggers(), registerAgentTriggers(),
	}
}

func peerAgents() *Kind {
	return &Kind{
		Name: "peer_agents", Doc: "tells agents of each other",
		Fields: doc.Schema{Fields: []doc.Field{
			must("peerings", some(list(table(
				must("source_agent_name", name(), "agent that is told"),
				must("peer_agent_names", list(name()), "agents that it is told of"),
			))), "who is told of whom"),
		}},
		Check: func(n doc.Node, l *diag.List) {
			for i, p := range n.Get("peerings").Items() {
				own := p.Get("source_agent_name").Text()
				for j, peer := range p.Get("peer_agent_names").Items() {
					if peer.Text() == own {
						fault(l, peer, at(at("peerings", i)+".peer_agent_names", j), "step.peers.self", "is the agent itself")
					}
				}
			}
		},
	}
}

func modifyToolAccess() *Kind {
	return &Kind{
		Name: "modify_env_tool_access", Doc: "shows tools to a role, or hides them",
		Fields: doc.Schema{Fields: []doc.Field{
			must("env_id", name(), "deployed environment"),
			must("action", oneOf("enable", "disable"), "what to do"),
			must("role", name(), "role; * is every role"),
			must("tools", list(name()), "tools; * is every tool"),
		}},
		Refs: []Ref{env("env_id", "")},
	}
}

func applyServerConfig() *Kind {
	return &Kind{
		Name: "apply_server_config", Doc: "calls set_ extensions of an environment's servers",
		Fields: doc.Schema{Fields: []doc.Field{
			must("env_id", name(), "deployed environment"),
			must("directives", some(list(table(
				may("service", name(), nil, "server; * is every server"),
				may("environment", name(), nil, "other name of service"),
				must("uri", name(), "extension"),
				may("args", anyTable(), map[string]any{}, "arguments"),
			))), "calls to make"),
			may("timeout_seconds", seconds(), 30, "limit of each call"),
			may("tolerate_unadvertised", flag(), false, "true: a server without the extension is skipped"),
		}},
		Refs: []Ref{env("env_id", "")},
		Check: func(n doc.Node, l *diag.List) {
			for i, d := range n.Get("directives").Items() {
				switch len(setAmong(d, "service", "environment")) {
				case 0:
					fault(l, d, at("directives", i), "step.config.service", "needs service")
				case 2:
					fault(l, d.Get("environment"), at("directives", i)+".environment", "step.conflict", "is another name of service; keep one")
				}
			}
		},
	}
}

func syncClock() *Kind {
	return &Kind{
		Name: "sync_env_clock", Doc: "sets an environment's virtual clock",
		Fields: doc.Schema{Fields: []doc.Field{
			must("env_id", name(), "deployed environment"),
			must("virtual_time", doc.Type{Kinds: []doc.Kind{doc.String}, Check: isTime}, "RFC 3339 time"),
			may("virtual_seconds_per_real_second", doc.Type{Kinds: []doc.Kind{doc.Float}, Min: new(0.0), Max: new(86400.0)}, 1.0, "0: the clock stands"),
			may("tolerate_missing_sync_time", flag(), true, "true: a server without a clock is skipped"),
			may("timeout_seconds", seconds(), 30, "limit of each call"),
		}},
		Refs: []Ref{env("env_id", "")},
	}
}

func isTime(n doc.Node, l *diag.List) {
	s, _ := n.Str()
	if _, err := time.Parse(time.RFC3339, s); err != nil && !templated(s) {
		fault(l, n, "", "step.clock.time", "%s is no RFC 3339 time such as 2026-01-31T09:00:00Z", diag.Repr(s))
	}
}

func registerEnvTriggers() *Kind {
	return &Kind{
		Name: "register_env_triggers", Doc: "registers scripted events of an environment",
		Fields: doc.Schema{Fields: []doc.Field{
			must("env_id", name(), "deployed environment"),
			must("triggers", list(openTable(
				may("id", name(), nil, "name of the trigger"),
				must("when", openTable(must("type", oneOf("action", "state", "time", "website"), "what it waits for")), "condition"),
				may("actions", list(openTable(must("type", oneOf("tool", "permission", "nl"), "what it does"))), nil, "what happens"),
			)), "triggers"),
			may("watch_roles", list(name()), nil, "roles whose calls count"),
			may("executor_agent_name", name(), nil, "agent that carries out instructions in words"),
			may("executor_timeout_seconds", seconds(), 120, "limit of one instruction"),
			may("executor_hours", tableOf(anyTable()), nil, "working hours by executor"),
			may("await_fired", list(name()), nil, "triggers whose firing the step waits for"),
			may("await_timeout_seconds", seconds(), 120, "limit of that wait"),
		}},
		Refs: []Ref{env("env_id", "")},
		Check: func(n doc.Node, l *diag.List) {
			ids := triggerIDs(n, l)
			for i, a := range n.Get("await_fired").Items() {
				if !ids[a.Text()] {
					fault(l, a, at("await_fired", i), "step.trigger.await", "%s is no trigger of this step%s", diag.Repr(a.Text()), meant(a.Text(), ids))
				}
			}
			executorHours(n, l)
		},
	}
}

// executorHours refuses the hours of an agent that carries out nothing here.
func executorHours(n doc.Node, l *diag.List) {
	used := map[string]bool{n.Get("executor_agent_name").Text(): true}
	for _, t := range n.Get("triggers").Items() {
		for _, a := range t.Get("actions").Items() {
			if a.Get("type").Text() == "nl" {
				used[a.Get("executor").Text()] = true
			}
		}
	}
	delete(used, "")
	for name, h := range n.Get("executor_hours").Members() {
		if !used[name] {
			fault(l, h, "executor_hours."+name, "step.trigger.hours", "no nl action and no executor_agent_name names this agent%s", meant(name, used))
		}
	}
}

func registerAgentTriggers() *Kind {
	return &Kind{
		Name: "register_agent_triggers", Doc: "registers scripted replies of an agent that plays the user",
		Fields: doc.Schema{Fields: []doc.Field{
			must("agent_name", name(), "deployed agent"),
			must("triggers", list(openTable(
				may("id", name(), nil, "name of the trigger"),
				may("once", flag(), true, "true: it fires once"),
				must("when", openTable(), "condition"),
				may("actions", list(openTable(must("type", oneOf("say", "end"), "what it does"))), nil, "what happens"),
			)), "triggers"),
		}},
		Refs: []Ref{env("triggers[].when.of[]*.env_id", "")},
		Check: func(n doc.Node, l *diag.List) {
			triggerIDs(n, l)
			for i, t := range n.Get("triggers").Items() {
				checkWhen(t.Get("when"), at("triggers", i)+".when", l)
			}
		},
	}
}

// checkWhen walks a condition of an agent's trigger. Readers bound how deep it goes.
func checkWhen(w doc.Node, where string, l *diag.List) {
	known := []string{"step", "env_trigger", "conversational", "all", "any"}
	typ, ok := w.Get("type").Str()
	switch {
	case w.Kind() != doc.Object:
		fault(l, w, where, "step.trigger.when", "must be a table")
	case !ok || !slices.Contains(known, typ):
		fault(l, w, where, "step.trigger.when", "needs a type among %s", words(known))
	case typ == "env_trigger":
		for _, f := range []string{"env_id", "trigger_id"} {
			if s, ok := w.Get(f).Str(); !ok || s == "" {
				fault(l, w, where, "step.trigger.when", "needs %s", f)
			}
		}
	case typ == "all" || typ == "any":
		of := w.Get("of")
		if of.Kind() != doc.Array {
			fault(l, w, where, "step.trigger.when", "needs of, a list of conditions")
		}
		for i, sub := range of.Items() {
			checkWhen(sub, at(where+".of", i), l)
		}
	}
}

// triggerIDs are the ids of a step's triggers; two of one id are refused.
func triggerIDs(n doc.Node, l *diag.List) map[string]bool {
	ids := map[string]bool{}
	for i, t := range n.Get("triggers").Items() {
		id, ok := t.Get("id").Str()
		if !ok {
			continue
		}
		if ids[id] {
			fault(l, t.Get("id"), at("triggers", i)+".id", "step.trigger.id", "%s is used twice", diag.Repr(id))
		}
		ids[id] = true
	}
	return ids
}

// meant ends a message with the name that was probably meant.
func meant(got string, names map[string]bool) string {
	const most = 200 // so that a long list stays cheap to check
	if len(names) > most {
		return ""
	}
	if near := diag.Nearest(got, slices.Sorted(maps.Keys(names))); near != "" {
		return "; did you mean " + diag.Repr(near) + "?"
	}
	return ""
}
