package envstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"agentenv.internal/agentenv/internal/store"
)

// ValidatedBoot is what the checks of a deployed computer found last: metadata of the version of the environment that was deployed.
type ValidatedBoot struct {
	Passed bool            `json:"passed"`
	At     time.Time       `json:"at_utc"`
	Rows   json.RawMessage `json:"rows"`
}

// bootType is the type of documents, of kind store.Blob, that hold a ValidatedBoot: one an environment's version.
const bootType = "validated_boot"

func bootID(env string, version int) string {
	return bootType + "/" + env + "/" + strconv.Itoa(version)
}

// KeepBoot keeps what was found, in place of what was found before.
func KeepBoot(ctx context.Context, s store.Store, env string, version int, b ValidatedBoot) error {
	body, err := json.Marshal(b)
	if err != nil {
		return err
	}
	id := bootID(env, version)
	for range attempts {
		if err = keepBoot(ctx, s, id, body); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return fmt.Errorf("keep what the checks found: %w", err)
}

func keepBoot(ctx context.Context, s store.Store, id string, body []byte) error {
	latest, err := s.Latest(ctx, store.Blob, []string{id})
	if err != nil {
		return err
	}
	at := latest[id].Version
	stage, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = stage.Discard() }() // does nothing after Commit
	stage.Doc(store.Doc{Kind: store.Blob, ID: id, Version: at + 1, Type: bootType, Body: body}, store.LatestIs(at))
	if at > 0 {
		stage.Delete(store.Blob, id, at)
	}
	return stage.Commit(ctx)
}

// Boot is what was found last of an environment's version; false when it was never checked.
func Boot(ctx context.Context, s store.Docs, env string, version int) (ValidatedBoot, bool, error) {
	d, err := s.Get(ctx, store.Blob, bootID(env, version), 0)
	if errors.Is(err, store.ErrNotFound) {
		return ValidatedBoot{}, false, nil
	}
	var b ValidatedBoot
	if err == nil && json.Unmarshal(d.Body, &b) != nil {
		err = store.ErrCorrupt
	}
	return b, err == nil, err
}
