package access_test

import (
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/access"
)

func TestCheckRole(t *testing.T) {
	for _, role := range []string{"solver", " solver ", "größe 2", "a/b", strings.Repeat("r", 200)} {
		if err := access.CheckRole(role); err != nil {
			t.Errorf("CheckRole(%q) = %v", role, err)
		}
	}
	for _, role := range []string{"", "  ", "*", "a\nb", "\x1b[31m", "a\x00", "\xff", "a\u202eb", strings.Repeat("r", 201)} {
		if access.CheckRole(role) == nil {
			t.Errorf("CheckRole(%q) lets it through", role)
		}
	}
}
