package bundle

import (
	"context"
	"fmt"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

type storedKey struct {
	kind    ref.Kind
	id      string
	version int
}

type storedAnswer struct {
	Stored
	ok bool
}

// lookup asks the store once for each entity and version.
func (p *planner) lookup(ctx context.Context, k storedKey) (storedAnswer, error) {
	if a, ok := p.stored[k]; ok {
		return a, nil
	}
	s, ok, err := p.view.Stored(ctx, k.kind, k.id, k.version)
	if err != nil {
		return storedAnswer{}, fmt.Errorf("looking up %s %s: %w", k.kind, k.id, err)
	}
	a := storedAnswer{s, ok}
	p.stored[k] = a
	return a, nil
}

// Missing tells, of a bundle that Resolve found errors in, what neither it nor the store has, so that one answer names both. Plan tells it of
// bundles without errors.
func (b *Bundle) Missing(ctx context.Context, v View, sel Selection) (diag.List, error) {
	if v == nil {
		return nil, nil
	}
	p := newPlanner(b, v)
	if err := p.aliases(ctx); err != nil {
		return nil, err
	}
	p.reachSelected(sel)
	for _, e := range b.Entries {
		if p.state[e] != reached {
			continue
		}
		if err := p.storeRefs(ctx, e); err != nil {
			return nil, err
		}
	}
	return p.l, nil
}

// storeRefs checks the references of an entry that only a store can hold.
func (p *planner) storeRefs(ctx context.Context, e *Entry) error {
	if err := p.sameType(ctx, e); err != nil {
		return err
	}
	for _, x := range e.Refs {
		if x.Entry != nil || x.Output != nil || x.builtin {
			continue
		}
		fault := func(code, format string, args ...any) {
			p.l.Add(diag.Problem{Pos: x.Pos, Where: x.Where, Code: code, Summary: fmt.Sprintf(format, args...), Prefixed: true})
		}
		if p.view == nil {
			if x.alias != "" {
				x.ID = x.alias
			} else {
				p.l.Add(diag.Problem{
					Pos: x.Pos, Where: x.Where, Code: "ref.unchecked", Severity: diag.Hint, Prefixed: true,
					Summary: fmt.Sprintf("%s isn't in this bundle; a run looks for it in the store", diag.Repr(x.ID)),
				})
			}
		} else {
			s, err := p.storedRef(ctx, x)
			if err != nil {
				return err
			}
			switch {
			case !s.ok && x.Version > 0:
				fault("ref.missing", "there is no version %d of %s in the store%s", x.Version, x, p.b.elsewhere(x.Kind, x.ID))
				continue
			case !s.ok:
				fault("ref.missing", "there is no %s in this bundle or in the store%s", x, p.b.elsewhere(x.Kind, x.ID))
				continue
			case x.Type != "" && s.Type != x.Type:
				fault("ref.type", "%s is %s in the store, but this field takes %s", diag.Repr(x.ID), article(diag.Clean(s.Type)), x.Type)
				continue
			}
		}
		if e.Group == Evals {
			fault("eval.stored", "%s is a task of the store, and a bundle's eval takes tasks of the bundle alone for now", diag.Repr(x.ID))
		}
	}
	return nil
}

// storedRef is the entity that a reference names; an alias counts where no entity has the name.
func (p *planner) storedRef(ctx context.Context, x *Reference) (storedAnswer, error) {
	s, err := p.lookup(ctx, storedKey{x.Kind, x.ID, x.Version})
	if err != nil || s.ok || x.alias == "" {
		return s, err
	}
	s, err = p.lookup(ctx, storedKey{x.Kind, x.alias, 0})
	if s.ok {
		x.ID = x.alias
	}
	return s, err
}

// sameType refuses an env of another type than the store has under its id: what deploys its versions goes by their type.
func (p *planner) sameType(ctx context.Context, e *Entry) error {
	if e.Group != Envs || p.view == nil {
		return nil
	}
	s, err := p.lookup(ctx, storedKey{kind: ref.Env, id: e.ID})
	if err == nil && s.ok && s.Type != e.Type {
		p.l.Add(e.problem(e.Config.Get("type"), "", "env.type.changed",
			"the store has this env as %s, and here it is %s; rename the folder", article(diag.Clean(s.Type)), article(e.Type)))
	}
	return err
}
