package git

import (
	"testing"

	"agentenv.internal/agentenv/internal/requirement"
)

// TestNewest is rows 61 and 92: which release is newer, and which of those is compatible.
func TestNewest(t *testing.T) {
	t.Parallel()
	refs := map[string]string{}
	for _, tag := range []string{"v0.0.3", "v0.0.4", "v0.7.0", "v0.7.9", "v0.8.0", "v1.2.0", "1.9.0", "v1.10.0-rc1", "v2.0.0", "v10.0.0", "nightly", "v3", "v99.0.0.1"} {
		refs["refs/tags/"+tag] = "c"
	}
	refs["refs/heads/v11.0.0"] = "c"
	for _, c := range []struct{ ref, newest, compatible string }{
		{"v0.0.3", "v10.0.0", "v0.0.3"},
		{"v0.7.0", "v10.0.0", "v0.7.9"},
		{"v1.2.0", "v10.0.0", "1.9.0"},
		{"v2.0.0", "v10.0.0", "v2.0.0"},
		{"v10.0.0", "v10.0.0", "v10.0.0"},
		{"v10.0.1", "v10.0.1", "v10.0.1"},
		{"main", "main", "main"},
		{"v1.2", "v1.2", "v1.2"},
	} {
		if got := newest(refs, c.ref, func(requirement.Version) bool { return true }); got != c.newest {
			t.Errorf("newest of %s: %s, want %s", c.ref, got, c.newest)
		}
		if got := newest(refs, c.ref, func(v requirement.Version) bool { return caret(c.ref, v) }); got != c.compatible {
			t.Errorf("compatible with %s: %s, want %s", c.ref, got, c.compatible)
		}
	}
}
