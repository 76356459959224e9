package mem_test

import (
	"testing"

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
