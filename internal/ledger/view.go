package ledger

import (
	"context"
	"errors"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// View shows a plan what a store has.
func View(d store.Docs) bundle.View { return view{d} }

type view struct{ docs store.Docs }

// Stored is an entity of the store.
func (v view) Stored(ctx context.Context, k ref.Kind, id string, version int) (bundle.Stored, bool, error) {
	d, err := v.docs.Get(ctx, store.Kind(k), id, version)
	if errors.Is(err, store.ErrNotFound) {
		return bundle.Stored{}, false, nil
	}
	if err != nil {
		return bundle.Stored{}, false, err
	}
	return bundle.Stored{Version: d.Version, Type: d.Type, Body: d.Body}, true, nil
}
