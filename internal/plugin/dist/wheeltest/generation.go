package wheeltest

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/treestore"
)

// Generation builds a generation with these distributions in a store, under key.
func Generation(ctx context.Context, store *treestore.Store, key string, wheels ...Wheel) error {
	held, err := store.Get(ctx, key, func(_ context.Context, dir string) error {
		site, bin := filepath.Join(dir, "lib", "python3.12", "site-packages"), filepath.Join(dir, "bin")
		errs := []error{os.MkdirAll(site, 0o755), os.MkdirAll(bin, 0o755)}
		// With a record no interpreter has to be asked for markers.
		b, err := json.Marshal(map[string]any{"format_version": 1, "markers": requirement.Newest()})
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, "generation.json"), b, 0o600))
		for _, w := range wheels {
			errs = append(errs, w.Install(site, bin))
		}
		return errors.Join(errs...)
	})
	if err != nil {
		return err
	}
	return held.Release()
}
