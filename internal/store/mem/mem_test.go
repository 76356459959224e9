package mem_test

import (
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/runlog/runlogtest"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
	"agentenv.internal/agentenv/internal/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T) func(*testing.T) store.Store {
		s := mem.New(mem.Options{})
		return func(*testing.T) store.Store { return s }
	})
}

func TestRuns(t *testing.T) {
	runlogtest.Run(t, func(_ *testing.T, now func() time.Time) func(*testing.T) runlog.Log {
		s := mem.New(mem.Options{Now: now})
		return func(*testing.T) runlog.Log { return s.Runs() }
	})
}
