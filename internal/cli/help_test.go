package cli

import "testing"

// TestFit: paragraphs are set anew, descriptions go on below themselves, and what is to be typed stays whole.
func TestFit(t *testing.T) {
	text := "One two three\nfour five.\n\nSix.\n\n  agent-env run hello --json --quiet\n  -n, --name N   the name of a thing that has one\n      --x        short\n\nUsage:\n  agent-env\n"
	want := "One two three four five.\n\nSix.\n\n  agent-env run hello --json --quiet\n  -n, --name N   the name of a\n                 thing that has\n                 one\n      --x        short\n\nUsage:\n  agent-env\n"
	if got := fit(text, 34); got != want {
		t.Errorf("it is set as\n%s\nnot\n%s", got, want)
	}
	if got := fit("One two three\nfour five.\n", 18); got != "One two three four\nfive.\n" {
		t.Errorf("a paragraph is set as %q", got)
	}
	if got := fit("unbreakablewordoflength 1\n", 10); got != "unbreakablewordoflength\n1\n" {
		t.Errorf("a long word is set as %q", got)
	}
}
