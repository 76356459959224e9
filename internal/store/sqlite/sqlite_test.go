package sqlite_test

import (
	"path/filepath"
	"testing"

	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/sqlite"
	"agentenv.internal/agentenv/internal/store/storetest"
)

func open(t testing.TB, root string) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(root, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func(*testing.T) store.Store {
		root := filepath.Join(t.TempDir(), "mein # stäte?%20 dir", "store")
		return func(t *testing.T) store.Store { return open(t, root) }
	})
}
