package doc

import "testing"

// A null reads as absent: its text is none, and not the word that spells it.
func TestTextOfNull(t *testing.T) {
	for name, parse := range map[string]reader{"json": ParseJSON, "yaml": ParseYAML} {
		tree, l := parse("x", []byte(`{"a": null, "b": "null", "c": 3}`))
		if l.HasErrors() {
			t.Fatal(l)
		}
		n := tree.Root()
		if a, b, c := n.Get("a").Text(), n.Get("b").Text(), n.Get("c").Text(); a != "" || b != "null" || c != "3" {
			t.Errorf("%s: %q, %q, %q", name, a, b, c)
		}
		if got := string(JSON(n)); got != `{"a":null,"b":"null","c":3}` {
			t.Errorf("%s: %s", name, got)
		}
	}
}
