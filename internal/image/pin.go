package image

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
)

// PinLimit is how long a registry has to say which image a reference names.
const PinLimit = 10 * time.Second

// errLate is the cause of a context that ended with a look-up's own limit.
var errLate = errors.New("the registry did not answer in time")

// Pin asks a registry which image a reference names now, and answers its digest ("sha256:…"): the index's where there are images for several platforms, so
// that it means the same on every machine. One of them must be for this one. Nothing is kept, no layer is fetched, and a reference with a digest is not
// asked for. ErrNotFound and ErrPlatform are as of Pull.
func (s *Store) Pin(ctx context.Context, text string) (string, error) {
	src, err := Parse(text)
	if err != nil {
		return "", err
	}
	if src.kind != fromRegistry {
		return "", fmt.Errorf("%s is no image of a registry", text)
	}
	if d, ok := src.ref.(name.Digest); ok {
		return d.DigestStr(), nil
	}
	limit := s.pinLimit
	within, cancel := context.WithTimeoutCause(ctx, limit, errLate)
	defer cancel()
	desc, o, err := s.look(within, src.ref)
	if err == nil {
		err = check(o)
	}
	switch {
	case err == nil:
		return desc.Digest.String(), nil
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case errors.Is(context.Cause(within), errLate):
		return "", fmt.Errorf("%s did not answer within %s", src.ref.Context().RegistryStr(), limit)
	default:
		return "", err
	}
}
