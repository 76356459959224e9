package a2a

import (
	"encoding/json"
	"errors"
	"testing"

	"agentenv.internal/agentenv/sdk/wire"
)

// FuzzReadSent: what an agent answers to a message is a task of a known form or told to be malformed.
func FuzzReadSent(f *testing.F) {
	f.Add([]byte(`{"kind":"message","messageId":"m","role":"agent","parts":[{"kind":"text","text":"x"}]}`))
	f.Add([]byte(`{"kind":"task","id":"t","contextId":"c","status":{"state":"working","message":{"parts":[]}}}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readSent(b)
		switch {
		case err != nil && !errors.Is(err, ErrMalformed):
			t.Fatalf("%q: %v", b, err)
		case err == nil && (!json.Valid(b) || got.Status.State == "" || got.ID == "" && got.Status.State != wire.TaskCompleted):
			t.Fatalf("%q is read as %+v", b, got)
		}
	})
}
