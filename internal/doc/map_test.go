package doc

import (
	"strings"
	"testing"
)

func TestMap(t *testing.T) {
	tree, l := ParseJSON("x", []byte(`{"a":{"b":["x","y","z"],"c":1},"d":[[1,2],{"e":null}],"f":"keep"}`))
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
	n := tree.Root()
	var asked []string
	same := n.Map(func(path string, v Node) (Node, bool) {
		asked = append(asked, path)
		return v, true
	})
	if !same.Same(n) {
		t.Error("nothing changed, and another value came")
	}
	if got := strings.Join(asked, " "); got != "a a.b a.b[0] a.b[1] a.b[2] a.c d d[0] d[0][0] d[0][1] d[1] d[1].e f" {
		t.Errorf("asked for %s", got)
	}
	got := n.Map(func(path string, v Node) (Node, bool) {
		switch path {
		case "a.b[1]", "d[1].e":
			return v, false
		case "a.c":
			return Build(map[string]any{"n": "not asked for"}), true
		case "a.c.n":
			t.Error("asked for what was put in")
		case "f":
			return n.Get("a").Get("c"), true
		}
		return v, true
	})
	if have := string(JSON(got)); have != `{"a":{"b":["x","z"],"c":{"n":"not asked for"}},"d":[[1,2],{}],"f":1}` {
		t.Error(have)
	}
	if have := string(JSON(n)); have != `{"a":{"b":["x","y","z"],"c":1},"d":[[1,2],{"e":null}],"f":"keep"}` {
		t.Errorf("the original is now %s", have)
	}
	if !got.Get("d").At(0).Same(n.Get("d").At(0)) {
		t.Error("what has no change isn't shared")
	}
	if (Node{}).Map(nil).Exists() || n.Get("f").Map(nil).Text() != "keep" {
		t.Error("what holds nothing stays as it is")
	}
}
