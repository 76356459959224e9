package app

import (
	"context"
	"path/filepath"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/ledger"
	"agentenv.internal/agentenv/internal/ref"
)

// Images are the images that local sandboxes start from.
func (a *App) Images(ctx context.Context) (*image.Store, error) {
	w, err := a.getWorld(ctx)
	return w.images, err
}

func openImages(state string, set *config.Sandbox) *image.Store {
	o := image.Options{Dir: filepath.Join(state, "images"), Cap: set.ImagesCap, Floor: set.ImagesFloor, Worker: "/proc/self/exe"}
	if o.Floor == 0 {
		o.Floor = -1 // none is asked for
	}
	return image.Open(o)
}

// pinner asks registries for what references name, signed in as a pull is.
func pinner(images *image.Store) ledger.Pinner {
	return func(ctx context.Context, reference string) (ref.Digest, error) {
		digest, err := images.Pin(ctx, reference)
		return ref.Digest(digest), err
	}
}
