package image

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"
)

// engineID is the id of an engine's image: the digest of its config, or of its manifest where the engine keeps images as registries do.
func engineID(ctx context.Context, name string) (string, error) {
	c, err := client.New(client.FromEnv)
	if err != nil {
		return "", fmt.Errorf("reach the container engine: %w", err)
	}
	defer c.Close()
	r, err := c.ImageInspect(ctx, name)
	if err != nil {
		return "", engineError(name, err)
	}
	return r.ID, nil
}

func engineError(name string, err error) error {
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("%w: the container engine has no %s", ErrNotFound, name)
	}
	return fmt.Errorf("ask the container engine for %s: %w", name, err)
}

// openEngine has the engine save an image and reads that.
func (s *Store) openEngine(ctx context.Context, name string) (*opened, error) {
	c, err := client.New(client.FromEnv)
	if err != nil {
		return nil, fmt.Errorf("reach the container engine: %w", err)
	}
	defer c.Close()
	r, err := c.ImageSave(ctx, []string{name})
	if err != nil {
		return nil, engineError(name, err)
	}
	f, err := s.spool(ctx, r)
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, fmt.Errorf("save the engine's image %s: %w", name, err)
	}
	o, err := readArchive(f, "")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read what the engine saved of %s: %w", name, err), f.Close())
	}
	o.close = f.Close
	return o, nil
}
