package app

import (
	"context"
	"path/filepath"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/image"
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
