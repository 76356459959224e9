package sqlite_test

import (
	"path/filepath"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/runlog/runlogtest"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/sqlite"
	"agentenv.internal/agentenv/internal/store/storetest"
)

func open(t testing.TB, root string) *sqlite.Store { return openWith(t, root, sqlite.Options{}) }

func openWith(t testing.TB, root string, o sqlite.Options) *sqlite.Store {
	t.Helper()
	s, err := sqlite.Open(root, o)
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

func TestRuns(t *testing.T) {
	runlogtest.Run(t, func(t *testing.T, now func() time.Time) func(*testing.T) runlog.Log {
		root := filepath.Join(t.TempDir(), "store")
		return func(t *testing.T) runlog.Log {
			return openWith(t, root, sqlite.Options{Now: now, Poll: 10 * time.Millisecond}).Runs()
		}
	})
}
