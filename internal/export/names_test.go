package export

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/ref"
)

func TestCleanName(t *testing.T) {
	for _, tc := range []struct {
		group      bundle.Group
		text, want string
	}{
		{bundle.Tasks, "hello", "hello"},
		{bundle.Tasks, "a:b/c", "a-b-c"},
		{bundle.Tasks, "a__b", "a__b"},
		{bundle.Artifacts, "a__b", "a-b"},
		{bundle.Artifacts, "a____b", "a--b"},
		{bundle.Skills, "a___b", "a-_b"},
		{bundle.Envs, "__pycache__", "pycache"},
		{bundle.Tasks, "  .x ", "x"},
		{bundle.Tasks, "...", "task"},
		{bundle.Evals, "", "eval"},
		{bundle.Artifacts, "???", "artifact"},
		{bundle.Agents, "@bot", "bot"},
		{bundle.Tasks, "e\u0301", "é"},
		{bundle.Tasks, "a\u200bb\x00c\xff", "a-b-c-"},
		{bundle.Tasks, strings.Repeat("é", 150), strings.Repeat("é", 100)},
		{bundle.Tasks, strings.Repeat("x", 199) + " yy", strings.Repeat("x", 199)},
		{bundle.Tasks, "-\u0301x", "task"},
	} {
		got := cleanName(tc.group, tc.text)
		if got != tc.want || ref.CheckSegment(got) != nil {
			t.Errorf("%s %q: %q, want %q", tc.group, tc.text, got, tc.want)
		}
	}
}

func FuzzCleanName(f *testing.F) {
	for _, s := range []string{"hello", "a:b", "__", "\xff", "e\u0301", ".", "\u3164", "__pycache__", strings.Repeat("界", 90)} {
		f.Add(s, uint8(2))
	}
	f.Fuzz(func(t *testing.T, text string, g uint8) {
		group := bundle.Group(g % 6)
		name := cleanName(group, text)
		if err := ref.CheckSegment(name); err != nil || len(name) > maxName || !ref.IsNFC(name) || strings.HasPrefix(name, ".") || name == "__pycache__" {
			t.Errorf("%q: %q, %v", text, name, err)
		}
		if group.Kind() == ref.Artifact && strings.Contains(name, ref.DerivedMark) {
			t.Errorf("%q: %q", text, name)
		}
		if again := cleanName(group, name); again != name {
			t.Errorf("%q: %q, then %q", text, name, again)
		}
	})
}
