package deploy

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// images keeps deployments that begin together from having one image made twice.
type images struct {
	mu     sync.Mutex
	making map[string]*sync.Mutex // one at a time of each
	self   func() (string, error) // digest of this program
}

func newImages() images {
	return images{making: map[string]*sync.Mutex{}, self: sync.OnceValues(selfDigest)}
}

func selfDigest() (string, error) {
	f, err := os.Open(selfFile)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// selfFile is this program, also when its file was replaced since it began.
const selfFile = "/proc/self/exe"

// alone waits until nobody else makes the same image, so that deployments that begin together build it once. The caller calls done.
func (i *images) alone(key string) (done func()) {
	i.mu.Lock()
	l := i.making[key]
	if l == nil {
		l = &sync.Mutex{}
		i.making[key] = l
	}
	i.mu.Unlock()
	l.Lock()
	return l.Unlock
}

// byReference is how an engine runs an image that a registry or a file holds.
func (w *way) byReference(engine sandbox.Builder, p envstore.Part) error {
	src, err := image.Parse(p.Source.Reference)
	if err != nil {
		return fmt.Errorf("%s: %w", label(p), err)
	}
	switch {
	case !src.Local():
	case src.Tarball() != "":
		w.engine = engine
	case src.EngineName() != "":
		w.spec.Image = src.EngineName()
	default:
		return unsupported("%s is made of the layout %s, which no engine reads: pack it (docker-archive:FILE), or use a local sandbox", label(p), p.Source.Reference)
	}
	return nil
}

// image has an engine make the image of a part, or load it from its tarball, and answers the engine's name for it.
func (m *maker) image(ctx context.Context, engine sandbox.Builder, p envstore.Part) (string, error) {
	if p.Source.Reference != "" {
		return m.load(ctx, engine, p.Source.Reference)
	}
	self, err := m.copiesSelf(ctx, p)
	if err != nil {
		return "", err
	}
	key := keyOf("image", string(p.Source.Digest), self)
	defer m.images.alone(key)()
	id, unread, err := build(ctx, engine, sandbox.Build{Dockerfile: p.Source.Dockerfile, Sources: key}, func(ctx context.Context, to io.Writer) error {
		return m.writeContext(ctx, to, p.Source.Files, self != "")
	})
	if unread != nil {
		return "", step.Infra(fmt.Errorf("read what its image is built of: %w", unread))
	}
	return id, err
}

// build has an engine make an image of the folder that write writes as a tar; its pipe breaks once the engine wants no more. unread is why the folder
// could not be read, err what the engine said.
func build(ctx context.Context, engine sandbox.Builder, b sandbox.Build, write func(ctx context.Context, to io.Writer) error) (id string, unread, err error) {
	var built sandbox.Built
	unread, err = piped(func(w io.Writer) error { return write(ctx, w) }, func(r io.Reader) (err error) {
		b.Context = r
		built, err = engine.Build(ctx, b)
		return err
	})
	if errors.Is(unread, io.ErrClosedPipe) { // a context that nobody read to its end
		unread = nil
	}
	if unread != nil || err != nil {
		return "", unread, err
	}
	return built.ID, nil, nil
}

// load reads a tarball into an engine, which skips the layers that it has. A tar of a root, which engines don't load, is the one layer of an image that is
// built, once for a reference with its digest.
func (m *maker) load(ctx context.Context, engine sandbox.Builder, reference string) (string, error) {
	defer m.images.alone(reference)()
	src, err := image.Parse(reference)
	if err != nil {
		return "", err
	}
	root, err := image.IsRoot(src.Tarball())
	if err != nil {
		return "", fmt.Errorf("read its image: %w", err)
	}
	f, err := os.Open(src.Tarball())
	if err != nil {
		return "", fmt.Errorf("read its image: %w", err)
	}
	defer f.Close()
	if root {
		id, unread, err := build(ctx, engine, sandbox.Build{Sources: keyOf("root", reference)}, func(_ context.Context, to io.Writer) error {
			return rootContext(to, f)
		})
		if unread != nil {
			return "", step.Infra(fmt.Errorf("read its image: %w", unread))
		}
		return id, err
	}
	refs, err := engine.Load(ctx, f)
	if err != nil {
		return "", err
	}
	if len(refs) > 1 {
		return "", fmt.Errorf("%s holds %d images; keep the one that is meant in a file of its own", reference, len(refs))
	}
	return refs[0], nil
}

// rootContext writes a folder as a tar that an engine builds an image of a root from, given the root as a tar.
func rootContext(to io.Writer, root *os.File) error {
	const dockerfile, name = "FROM scratch\nADD root.tar /\n", "root.tar"
	info, err := root.Stat()
	if err != nil {
		return err
	}
	w := tar.NewWriter(to)
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "Dockerfile", Mode: 0o644, Size: int64(len(dockerfile))}); err != nil {
		return err
	}
	if _, err := io.WriteString(w, dockerfile); err != nil {
		return err
	}
	if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: info.Size()}); err != nil {
		return err
	}
	if _, err := io.CopyN(w, root, info.Size()); err != nil {
		return err
	}
	return w.Close()
}

// copiesSelf is the digest of this program where a part's Dockerfile copies it from a folder that doesn't hold it; "" where it doesn't.
func (m *maker) copiesSelf(ctx context.Context, p envstore.Part) (string, error) {
	if _, err := fileOf(p.Source.Files, env.Self); err == nil {
		return "", nil
	}
	file, err := fileOf(p.Source.Files, p.Source.Dockerfile)
	if err != nil {
		return "", nil //nolint:nilerr // the engine says it in its own words
	}
	in, _, err := store.OpenVerified(ctx, m.store, file.Digest)
	if err != nil {
		return "", step.Infra(fmt.Errorf("read its Dockerfile: %w", err))
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, env.MaxProcess))
	if err != nil {
		return "", step.Infra(fmt.Errorf("read its Dockerfile: %w", err))
	}
	if !env.CopiesSelf(b) {
		return "", nil
	}
	return m.images.self()
}

// writeContext writes the folder of a part as a tar, with this program in it when it is asked for.
func (m *maker) writeContext(ctx context.Context, to io.Writer, files []artifact.Bytes, self bool) error {
	w := tar.NewWriter(to)
	if err := writeFiles(ctx, m.store, w, files); err != nil {
		return err
	}
	if self {
		f, err := os.Open(selfFile)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: env.Self, Mode: 0o755, Size: info.Size()}); err != nil {
			return err
		}
		if _, err := io.Copy(w, f); err != nil {
			return err
		}
	}
	return w.Close()
}

func writeFiles(ctx context.Context, objects store.Objects, w *tar.Writer, files []artifact.Bytes) error {
	for _, f := range files {
		if err := writeFile(ctx, objects, w, f); err != nil {
			return fmt.Errorf("%s: %w", f.Path, err)
		}
	}
	return nil
}

func writeFile(ctx context.Context, objects store.Objects, w *tar.Writer, f artifact.Bytes) error {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: f.Path, Mode: 0o644, Size: f.Size}
	switch {
	case f.Link != "":
		h.Typeflag, h.Linkname, h.Size, h.Mode = tar.TypeSymlink, f.Link, 0, 0o777
	case f.Folder:
		h.Typeflag, h.Name, h.Size, h.Mode = tar.TypeDir, f.Path+"/", 0, 0o755
	case f.Mode&0o100 != 0:
		h.Mode = 0o755
	}
	if err := w.WriteHeader(h); err != nil || h.Typeflag != tar.TypeReg {
		return err
	}
	in, _, err := store.OpenVerified(ctx, objects, f.Digest)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(w, in)
	return err
}

// ensureTmp makes /tmp in a box whose image has none, as images from scratch don't.
func ensureTmp(ctx context.Context, box guest.Box) error {
	if _, err := box.Stat(ctx, "/tmp"); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return guest.Put(ctx, box, "/", []guest.PutFile{{Path: "tmp", Mode: 0o777}})
}
