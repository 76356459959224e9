package front

import (
	"sync"
)

// listing is what a role is told of tools.
type listing struct {
	rules, set uint64
	mcp, step  []byte // results of tools/list and of /step's list_tools
}

// listCache holds the last listing of a few roles.
type listCache struct {
	mu    sync.Mutex
	roles map[string]*listing
}

// maxRoles bounds the cache: a role is any text.
const maxRoles = 256

// list is the listing of a role, made anew when rules or tools have changed.
func (g *Gateway) list(role string) *listing {
	rules, gen := g.rules.Generation(), g.setGen.Load()
	g.lists.mu.Lock()
	defer g.lists.mu.Unlock()
	if l := g.lists.roles[role]; l != nil && l.rules == rules && l.set == gen {
		return l
	}
	l := &listing{rules: rules, set: gen, mcp: []byte(`{"tools":[`), step: []byte(`{"tools":[`)}
	add := func(name string, hidden bool, entry, step []byte) {
		if !g.rules.Allowed(role, name, hidden) {
			return
		}
		if l.mcp[len(l.mcp)-1] != '[' {
			l.mcp, l.step = append(l.mcp, ','), append(l.step, ',')
		}
		l.mcp, l.step = append(l.mcp, entry...), append(l.step, step...)
	}
	for _, t := range g.set.Load().Tools {
		add(t.Name, t.Hidden, t.Entry, t.Step)
	}
	for _, t := range g.own.Load().tools {
		add(t.name, false, t.entry, t.step)
	}
	l.mcp, l.step = append(l.mcp, "]}"...), append(l.step, "]}"...)
	if g.lists.roles == nil || len(g.lists.roles) >= maxRoles {
		g.lists.roles = map[string]*listing{}
	}
	g.lists.roles[role] = l
	return l
}
