package ledger

import (
	"encoding/json"
	"fmt"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

// Sketch is what an entity's document will say, as JSON, before it is written: without its files, and with version 0 in references to what is written
// with it.
func Sketch(x *bundle.Write) ([]byte, error) {
	fields := x.Fields
	if x.Kind == ref.Env {
		w := writer{of: map[*bundle.Write]*write{}}
		for _, p := range x.Pins {
			if p.Write != nil {
				w.of[p.Write] = &write{Write: p.Write}
			}
		}
		fields = w.env(&write{Write: x})
	}
	b, err := json.Marshal(fields)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", diag.Clean(x.Label), err)
	}
	return b, nil
}
