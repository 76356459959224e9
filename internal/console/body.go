package console

import (
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// body is the JSON object of a request. Its readers collect what is wrong; done tells all of it.
type body struct {
	root  doc.Node
	asked []string
	wrong []string
}

// parseBody reads a body; nil is an empty object.
func parseBody(src []byte) (*body, error) {
	if src == nil {
		return &body{root: doc.Build(map[string]any{})}, nil
	}
	t, l := doc.ParseJSON("body", src)
	if t == nil || l.HasErrors() {
		return nil, badRequest("the body is no JSON that can be read: %s", l[0].String())
	}
	if t.Root().Kind() != doc.Object {
		return nil, badRequest("the body has to be a JSON object")
	}
	return &body{root: t.Root()}, nil
}

func (b *body) get(name string) doc.Node {
	b.asked = append(b.asked, name)
	return b.root.Get(name)
}

func (b *body) fault(name, why string) { b.wrong = append(b.wrong, name+" "+why) }

// text is a string; "" when it is absent or null.
func (b *body) text(name string) string {
	n := b.get(name)
	s, ok := n.Str()
	if !ok && !n.IsNull() {
		b.fault(name, "has to be a string")
	}
	return s
}

// flag is true or false, and neither a word nor a number; false when it is absent or null.
func (b *body) flag(name string) bool {
	n := b.get(name)
	v, ok := n.Bool()
	if !ok && !n.IsNull() {
		b.fault(name, "has to be true or false")
	}
	return v
}

// required tells that a flag was said at all.
func (b *body) required(name string) {
	if b.root.Get(name).IsNull() {
		b.fault(name, "is missing")
	}
}

// word is a flag that may be a word or a number too, as people's settings are: what isn't clearly true is false.
func (b *body) word(name string) bool {
	n := b.get(name)
	if v, ok := n.Bool(); ok {
		return v
	}
	if v, ok := n.Int(); ok {
		return v == 1
	}
	s, _ := n.Str()
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(strings.TrimSpace(s)))
}

// values are single values by key, as texts; null is not answered.
func (b *body) values(name string) map[string]string {
	n := b.get(name)
	out := map[string]string{}
	if n.IsNull() {
		return out
	}
	if n.Kind() != doc.Object {
		b.fault(name, "has to be an object")
		return out
	}
	for key, v := range n.Members() {
		switch v.Kind() {
		case doc.Null:
		case doc.Object, doc.Array:
			b.fault(name+"."+diag.Clean(key), "has to be a single value")
		default:
			if s, ok := v.Str(); ok {
				out[key] = s
			} else {
				out[key] = string(doc.JSON(v))
			}
		}
	}
	return out
}

// list is a list of strings; none when it is absent or null.
func (b *body) list(name string) []string {
	n := b.get(name)
	var out []string
	if n.IsNull() {
		return out
	}
	if n.Kind() != doc.Array {
		b.fault(name, "has to be a list of strings")
		return out
	}
	for _, v := range n.Items() {
		s, ok := v.Str()
		if !ok {
			b.fault(name, "has to be a list of strings")
			return nil
		}
		out = append(out, s)
	}
	return out
}

// pairs are the values of a list of {key, value}; blank ones are not given.
func (b *body) pairs(name string) map[string]string {
	n := b.get(name)
	out := map[string]string{}
	if n.IsNull() {
		return out
	}
	if n.Kind() != doc.Array {
		b.fault(name, "has to be a list of {key, value}")
		return out
	}
	for _, v := range n.Items() {
		key, ok := v.Get("key").Str()
		value, isText := v.Get("value").Str()
		switch {
		case !ok || key == "":
			b.fault(name, "has an entry without a key")
		case v.Get("value").IsNull():
		case !isText:
			b.fault(name+"."+diag.Clean(key), "has to be a string") // the value is not shown
		case strings.TrimSpace(value) != "":
			out[key] = value
		}
	}
	return out
}

// done is everything that is wrong with the body, keys that nobody asked for included.
func (b *body) done() error {
	for name := range b.root.Members() {
		if slices.Contains(b.asked, name) {
			continue
		}
		why := "is no key of this route"
		if near := diag.Nearest(name, b.asked); near != "" {
			why += "; did you mean " + near + "?"
		}
		b.fault(diag.Repr(name), why)
	}
	if len(b.wrong) == 0 {
		return nil
	}
	slices.Sort(b.wrong)
	return badRequest("%s", strings.Join(b.wrong, "\n"))
}
