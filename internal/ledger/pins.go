package ledger

import (
	"context"
	"errors"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

// Pinner asks a registry for the digest of the image that a reference names now. It bounds the time itself, and may be called from several goroutines.
type Pinner func(ctx context.Context, reference string) (ref.Digest, error)

// CodePin is the code of a reference to an image that could not be pinned.
const CodePin = "image.pin"

// asking is how many references registries are asked for at one time.
const asking = 16

// pins are what registries said in this write, by reference: what is planned again asks for nothing twice.
type pins map[string]ref.Digest

// keepPins finds what needs no registry: references with a digest, and those that the version in the store, by this bundle, was pinned for.
func (w *writer) keepPins() {
	for _, x := range w.writes {
		if x.Registry == nil {
			continue
		}
		if _, _, ok := strings.Cut(x.Registry.Ref, "@"); ok {
			x.pinned = x.Registry.Ref
			continue
		}
		if !w.mayReuse(x) {
			continue
		}
		if img, err := artifact.ReadImage(x.stored); err == nil && len(img.Files) == 0 {
			if name, digest, ok := strings.Cut(img.Name, "@"); ok && name == x.Registry.Ref && ref.Digest(digest).Valid() {
				x.pinned = img.Name
			}
		}
	}
}

// pinAll asks registries for the digests that are still needed, all at once, before anything is written. What they refuse is one problem each.
func (w *writer) pinAll(ctx context.Context) error {
	var needed []*write
	var refs []string
	said := map[string]error{}
	for _, x := range w.writes {
		if x.same || x.Registry == nil || x.pinned != "" {
			continue
		}
		needed = append(needed, x)
		text := x.Registry.Ref
		if _, asked := said[text]; !asked && w.pins[text] == "" {
			said[text] = nil
			refs = append(refs, text)
		}
	}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(asking)
	for _, text := range refs {
		g.Go(func() error {
			digest, err := w.ask(ctx, text)
			mu.Lock()
			defer mu.Unlock()
			if said[text] = err; err == nil {
				w.pins[text] = digest
			}
			return nil
		})
	}
	_ = g.Wait() // no call fails: what was said is in said
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var l diag.List
	for _, x := range needed {
		r := x.Registry
		if err := said[r.Ref]; err != nil {
			l.Add(diag.Problem{
				Pos: r.Pos, Where: r.Where, Code: CodePin, Prefixed: true, Summary: diag.Repr(r.Ref) + " can't be pinned: " + diag.Clean(err.Error()),
			})
			continue
		}
		x.pinned = r.Ref + "@" + string(w.pins[r.Ref])
	}
	return l.Err()
}

func (w *writer) ask(ctx context.Context, reference string) (ref.Digest, error) {
	if w.options.Pin == nil {
		return "", errors.New("registries can't be asked here; write its digest behind it")
	}
	digest, err := w.options.Pin(ctx, reference)
	if err == nil && !digest.Valid() {
		err = errors.New("the registry answered no sha256 digest")
	}
	return digest, err
}

// registryImage is the document of an image that a registry has.
func (x *write) registryImage(p artifact.Pin) artifact.Document {
	name, digest, _ := strings.Cut(x.pinned, "@")
	return artifact.NewImageOf(p, name, ref.Digest(digest), x.field("description"))
}

// image is the image of a registry that a write is, with its digest once that is known; "" for everything else.
func (x *write) image() string {
	if x.Registry == nil || x.pinned != "" {
		return x.pinned
	}
	return x.Registry.Ref
}
