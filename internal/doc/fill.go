package doc

import "slices"

// Fill is n with the defaults of absent members added, at every depth that n reaches, and with Plain scalars turned into strings.
// A null stays null. Positions stay; what is unchanged is shared with n. n is expected to have passed Check; what doesn't fit stays as it is.
func (s *Schema) Fill(n Node) Node {
	if n.Kind() != Object {
		return n
	}
	return Node{n.t, fillObject(n.n, s)}
}

func fillObject(n *node, s *Schema) *node {
	out := mapKids(n, func(i int) *node {
		if f := s.field(n.names[i]); f != nil {
			return fillValue(n.kids[i], &f.Type)
		}
		return n.kids[i]
	})
	for i := range s.Fields {
		f := &s.Fields[i]
		if f.Default == nil || n.get(f.Name) != nil {
			continue
		}
		if out == n {
			out = n.clone()
		}
		out.add(f.Name, build(f.Default, nil))
	}
	return out
}

func fillValue(n *node, t *Type) *node {
	switch {
	case n.kind == Object && t.Fields != nil:
		return fillObject(n, t.Fields)
	case (n.kind == Object || n.kind == Array) && t.Elem != nil:
		return mapKids(n, func(i int) *node { return fillValue(n.kids[i], t.Elem) })
	case !slices.Contains(t.Kinds, n.kind) && t.plain(Node{n: n}):
		c := *n
		c.kind = String
		return &c
	default:
		return n
	}
}

// mapKids is n with every kid replaced; n itself when none changed.
func mapKids(n *node, f func(i int) *node) *node {
	out := n
	for i, k := range n.kids {
		m := f(i)
		if m == k {
			continue
		}
		if out == n {
			out = n.clone()
		}
		out.kids[i] = m
	}
	return out
}

// clone copies n so that members may be added and replaced; kids are shared.
func (n *node) clone() *node {
	c := *n
	c.kids = slices.Clone(n.kids)
	c.names = slices.Clip(n.names)
	c.index = nil
	if len(c.names) > manyMembers {
		c.reindex()
	}
	return &c
}
