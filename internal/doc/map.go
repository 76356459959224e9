package doc

import "strconv"

// Map is the value with each of its members and elements as f answers for it: the same, another one in its place, or, with false, none. path leads
// from n to the value: "a.b[0]", places counted as they were. What is inside a value is asked for after it, unless f put another one in its place.
// The root itself is not asked for. Subtrees without a change are shared with n.
func (n Node) Map(f func(path string, v Node) (Node, bool)) Node {
	if n.n == nil {
		return n
	}
	return Node{n.t, mapped(n.t, n.n, "", f)}
}

func mapped(t *Tree, n *node, path string, f func(string, Node) (Node, bool)) *node {
	if n.kind != Object && n.kind != Array {
		return n
	}
	out := &node{kind: n.kind, form: n.form, off: n.off, end: n.end, keyOff: n.keyOff}
	changed := false
	for i, kid := range n.kids {
		at := path + "[" + strconv.Itoa(i) + "]"
		if n.kind == Object {
			at = n.names[i]
			if path != "" {
				at = path + "." + at
			}
		}
		v, keep := f(at, Node{t, kid})
		if !keep {
			changed = true
			continue
		}
		now := v.n
		switch {
		case now == kid:
			now = mapped(t, kid, at, f)
		case v.t != t:
			now = build(v, t)
		}
		changed = changed || now != kid
		if n.kind == Object {
			out.add(n.names[i], now)
		} else {
			out.kids = append(out.kids, now)
		}
	}
	if !changed {
		return n
	}
	return out
}
