package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
)

func (s *Store) openRegistry(ctx context.Context, ref name.Reference) (*opened, error) {
	_, o, err := s.look(ctx, ref)
	if err != nil {
		return nil, err
	}
	o.ref = ref.Context().Digest(o.digest).Name()
	return o, nil
}

// look asks a registry for what a reference names, and reads the manifest and config of the image in it that is for this machine.
func (s *Store) look(ctx context.Context, ref name.Reference) (*remote.Descriptor, *opened, error) {
	base := s.o.Transport
	if base == nil {
		base = remote.DefaultTransport
	}
	desc, err := remote.Get(ref, remote.WithContext(ctx), remote.WithAuthFromKeychain(s.o.Keychain), remote.WithPlatform(platform()),
		remote.WithTransport(&resumer{base}), remote.WithUserAgent("agent-env"))
	if err != nil {
		return nil, nil, registryError(ref, err)
	}
	var img v1.Image
	if desc.MediaType.IsIndex() {
		index, err := desc.ImageIndex()
		if err != nil {
			return nil, nil, registryError(ref, err)
		}
		if img, err = choose(index.IndexManifest, index.Image); err != nil {
			return nil, nil, err
		}
	} else if img, err = desc.Image(); err != nil {
		return nil, nil, registryError(ref, err)
	}
	o, err := imageOf(img)
	if err != nil {
		return nil, nil, registryError(ref, err)
	}
	return desc, o, nil
}

// imageOf takes an image of a registry apart. Its manifest and config are checked by their digests.
func imageOf(img v1.Image) (*opened, error) {
	digest, err := img.Digest()
	if err != nil {
		return nil, err
	}
	m, err := img.Manifest()
	if err != nil {
		return nil, err
	}
	if err := checkManifest(m); err != nil {
		return nil, err
	}
	o := &opened{digest: digest.String(), close: func() error { return nil }}
	if o.config, err = img.ConfigFile(); err != nil {
		return nil, err
	}
	layers, err := img.Layers()
	if err != nil {
		return nil, err
	}
	for i, l := range layers {
		d := m.Layers[i]
		o.layers = append(o.layers, blob{digest: d.Digest.String(), size: d.Size, open: l.Compressed})
	}
	return o, nil
}

// checkManifest refuses artifacts that are no images: their layers are no trees.
func checkManifest(m *v1.Manifest) error {
	if !m.Config.MediaType.IsConfig() {
		return fmt.Errorf("it is not an image but an artifact of type %s", m.Config.MediaType)
	}
	for _, l := range m.Layers {
		if !l.MediaType.IsLayer() || !l.MediaType.IsDistributable() {
			return fmt.Errorf("its layer %s is of type %s, which can't be unpacked", l.Digest, l.MediaType)
		}
	}
	return nil
}

// registryError says what a registry's refusal means.
func registryError(ref name.Reference, err error) error {
	var te *transport.Error
	if errors.As(err, &te) {
		switch te.StatusCode {
		case http.StatusNotFound:
			return fmt.Errorf("%w: %s has no %s", ErrNotFound, ref.Context().RegistryStr(), ref.Name())
		case http.StatusUnauthorized, http.StatusForbidden:
			return fmt.Errorf("%s does not let you read %s (or it does not exist); sign in with: docker login %s",
				ref.Context().RegistryStr(), ref.Context().RepositoryStr(), ref.Context().RegistryStr())
		case http.StatusTooManyRequests:
			return fmt.Errorf("%s refuses more requests for now; sign in with docker login, or try later", ref.Context().RegistryStr())
		}
	}
	if ne, ok := errors.AsType[*net.OpError](err); ok { // what was asked for before it is noise
		return fmt.Errorf("%s can't be reached: %w", ref.Context().RegistryStr(), ne)
	}
	return fmt.Errorf("ask %s for %s: %w", ref.Context().RegistryStr(), ref.Name(), err)
}

// choose takes the image of an index that this machine can run.
func choose[T any](manifest func() (*v1.IndexManifest, error), image func(v1.Hash) (T, error)) (T, error) {
	var none T
	m, err := manifest()
	if err != nil {
		return none, fmt.Errorf("read the image's index: %w", err)
	}
	want := platform()
	var have []string
	var only []v1.Hash
	for _, d := range m.Manifests {
		if !d.MediaType.IsImage() || d.Annotations["vnd.docker.reference.type"] != "" { // attestations are no images
			continue
		}
		if d.Platform == nil {
			only = append(only, d.Digest)
			continue
		}
		if d.Platform.OS == want.OS && d.Platform.Architecture == want.Architecture {
			return image(d.Digest)
		}
		have = append(have, d.Platform.String())
	}
	if len(only) == 1 && len(have) == 0 { // its config tells
		return image(only[0])
	}
	if len(have) == 0 {
		return none, fmt.Errorf("%w: the index lists no image that can be told by its platform", ErrNotFound)
	}
	slices.Sort(have)
	return none, fmt.Errorf("%w: this machine runs %s, the image is for %s", ErrPlatform, want, strings.Join(slices.Compact(have), ", "))
}

// resumer goes on with a download that broke off, by ranges of bytes. Callers check what came by digest.
type resumer struct{ base http.RoundTripper }

const resumes = 5 // of one download

func (t *resumer) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(r)
	if err != nil || r.Method != http.MethodGet || resp.StatusCode != http.StatusOK || !strings.Contains(r.URL.Path, "/") ||
		resp.ContentLength <= 0 || resp.Header.Get("Accept-Ranges") == "none" || resp.Uncompressed {
		return resp, err
	}
	resp.Body = &resumedBody{t: t, req: r, body: resp.Body, size: resp.ContentLength, tag: resp.Header.Get("ETag")}
	return resp, nil
}

type resumedBody struct {
	t         *resumer
	req       *http.Request
	body      io.ReadCloser
	at, size  int64
	tag       string
	attempted int
}

func (b *resumedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.at += int64(n)
	if err == nil || errors.Is(err, io.EOF) && b.at >= b.size || b.req.Context().Err() != nil {
		return n, err
	}
	for b.attempted < resumes {
		b.attempted++
		if again := b.again(); again == nil {
			return n, nil
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// again asks for the rest.
func (b *resumedBody) again() error {
	ctx := b.req.Context()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(b.attempted) * 200 * time.Millisecond):
	}
	r := b.req.Clone(ctx)
	r.Header.Set("Range", "bytes="+strconv.FormatInt(b.at, 10)+"-")
	if b.tag != "" {
		r.Header.Set("If-Range", b.tag)
	}
	resp, err := b.t.base.RoundTrip(r)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusPartialContent {
		return errors.Join(fmt.Errorf("the registry gives no part of a file (%s)", resp.Status), resp.Body.Close())
	}
	b.body.Close() // it has failed
	b.body = resp.Body
	return nil
}

func (b *resumedBody) Close() error { return b.body.Close() }
