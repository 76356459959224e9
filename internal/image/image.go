// Package image keeps the roots of container images: any OCI reference becomes a stack of read-only folders that sandboxes mount.
//
// An image is layers and a config. Each layer is unpacked once, into a tree of the treestore whose key is the digest of the layer and of all
// below it, so that images share what they have in common; nothing compressed is kept. A layer's bytes are checked against its digests
// before its tree is put in place. An image is a small tree too, which holds the record that names its layers: who holds an image keeps its
// layers. References are files that name images.
//
// Owners of files: the machine's root keeps the image's ids on disk; a user with a range of ids (newuidmap) keeps them shifted, by a worker
// process in a user namespace; everybody else has one id, and what was lost is counted. Trees of these kinds are kept apart.
//
// The package starts no sandboxes and pushes nothing.
package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/subid"
	"agentenv.internal/agentenv/internal/treestore"
)

// Errors that callers branch on.
var (
	// ErrSpace: the disk has less room than the floor, or would have.
	ErrSpace = errors.New("not enough room on the disk")
	// ErrNotFound: the source has no such image, or the store knows no such reference.
	ErrNotFound = errors.New("no such image")
	// ErrPlatform: the image is for other machines.
	ErrPlatform = errors.New("the image is for another platform")
	// ErrInUse: a sandbox runs on the image.
	ErrInUse = errors.New("the image is in use")
)

// Defaults of Options.
const (
	DefaultCap   = 50 << 30
	DefaultFloor = 1 << 30
)

// Options are where and how images are kept.
type Options struct {
	Dir string // of the store; it is made when the first image is
	// Cap is how many unpacked bytes the store keeps; the images that were used longest ago go first. 0 is DefaultCap.
	Cap int64
	// Floor is how many bytes of the disk stay free; what would go below it is refused. 0 is DefaultFloor, below 0 none.
	Floor int64
	// Keychain knows how to sign in to registries; nil is the configuration and the credential helpers of Docker and Podman.
	Keychain authn.Keychain
	// Transport reaches registries; nil is the host's network.
	Transport http.RoundTripper
	// Worker is a program whose main calls Dispatch, run in a user namespace to keep owners that the caller may not give. "" keeps one id.
	Worker string
}

// Store keeps images. Its methods may be called from several goroutines and processes.
type Store struct {
	o      Options
	trees  *treestore.Store
	owners owners
	// pinLimit is how long a registry has to answer Pin.
	pinLimit time.Duration
}

// Config is what an image says about its processes.
type Config struct {
	User       string   `json:"user,omitempty"` // "", "name", "uid", "name:group", "uid:gid"
	Env        []string `json:"env,omitempty"`  // "NAME=value"
	WorkingDir string   `json:"working_dir,omitempty"`
	Entrypoint []string `json:"entrypoint,omitempty"`
	Cmd        []string `json:"cmd,omitempty"`
}

// Owners of a root's files.
const (
	OwnersAll = "all" // the image's ids are those on disk
	OwnersSub = "sub" // they are shifted into the caller's range of ids, root is the caller
	OwnersOne = "one" // every file is the caller's
)

// Root is an image that is ready to be mounted.
type Root struct {
	// Layers are folders, topmost first, to be the lower folders of an overlay mounted with userxattr: whiteouts are devices 0,0, opaque
	// folders carry user.overlay.opaque. They must not be written to.
	Layers []string
	Config Config
	// Digest is the manifest's, or, of images that an engine saved, the config's.
	Digest string
	Ref    string // the reference with the digest
	Owners string // OwnersAll, OwnersSub or OwnersOne
	Range  subid.Range
	// Unowned is how many files have another owner, or fewer capabilities, than the image says; 0 unless Owners is OwnersOne.
	Unowned int
	held    *treestore.Held
}

// Held is the tree that keeps the image's layers while it is held. It stays the Root's.
func (r *Root) Held() *treestore.Held { return r.held }

// Progress is told how many bytes of an image have come in, of how many; the total is 0 while it is not known. Calls come one at a time.
type Progress func(done, total int64)

// Open answers the store in o.Dir.
func Open(o Options) *Store {
	o.Cap = cmp.Or(o.Cap, DefaultCap)
	o.Floor = cmp.Or(o.Floor, DefaultFloor)
	if o.Keychain == nil {
		o.Keychain = authn.DefaultKeychain
	}
	s := &Store{o: o, owners: findOwners(o.Worker), pinLimit: PinLimit}
	s.trees = treestore.Open(filepath.Join(o.Dir, "trees"), treestore.Options{Remove: s.owners.removeAll})
	return s
}

// platform is what images must be for.
func platform() v1.Platform { return v1.Platform{OS: "linux", Architecture: runtime.GOARCH} }

// Root answers the image of a reference and holds it until release. What is here already needs no network; a reference of a registry is not
// asked for again (see Pull), files and engines are looked at each time. The references are those of Parse.
func (s *Store) Root(ctx context.Context, text string, p Progress) (*Root, func(), error) {
	src, err := Parse(text)
	if err != nil {
		return nil, nil, err
	}
	if err := s.room(0); err != nil {
		return nil, nil, fmt.Errorf("start from the image %s: %w", text, err)
	}
	// A reference with its digest, as Root.Ref has it, is one image for ever: it may have come by another name, and what is here needs no source.
	pinned := text
	if src.pinned() {
		pinned = src.key()
	}
	if strings.Contains(pinned, "@sha256:") {
		root, err := s.held(ctx, s.imageKey(pinned))
		if err == nil {
			return root, root.release, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return nil, nil, err
		}
	}
	if r, ok, err := s.readRef(src.key()); err != nil {
		return nil, nil, err
	} else if ok {
		stamp, err := src.stamp(ctx)
		if err != nil {
			return nil, nil, fmt.Errorf("image %s: %w", text, err)
		}
		if r.Stamp == stamp {
			root, err := s.held(ctx, r.Image)
			if err == nil {
				return root, root.release, nil
			}
			if !errors.Is(err, ErrNotFound) {
				return nil, nil, err
			}
		}
	}
	root, err := s.pull(ctx, src, p)
	if err != nil {
		return nil, nil, fmt.Errorf("image %s: %w", text, err)
	}
	return root, root.release, nil
}

// Pull gets the image of a reference as it is now, and holds it until release.
func (s *Store) Pull(ctx context.Context, text string, p Progress) (*Root, func(), error) {
	src, err := Parse(text)
	if err != nil {
		return nil, nil, err
	}
	if err := s.room(0); err != nil {
		return nil, nil, fmt.Errorf("pull the image %s: %w", text, err)
	}
	root, err := s.pull(ctx, src, p)
	if err != nil {
		return nil, nil, fmt.Errorf("image %s: %w", text, err)
	}
	return root, root.release, nil
}

func (r *Root) release() { _ = r.held.Release() } // it fails only for a lock that is gone already

// held answers an image that is in the store; ErrNotFound when it isn't.
func (s *Store) held(ctx context.Context, key string) (*Root, error) {
	h, err := s.trees.Get(ctx, key, func(context.Context, string) error { return ErrNotFound })
	if err != nil {
		return nil, err
	}
	r, err := readRecord(h.Path())
	if err != nil || !s.complete(r) {
		return nil, errors.Join(ErrNotFound, h.Release())
	}
	return s.root(r, h), nil
}

// complete tells whether the layers of a held image are all there, as they are unless somebody removed them by hand.
func (s *Store) complete(r *record) bool {
	for _, l := range r.Layers {
		if !s.trees.Has(l.Key) {
			return false
		}
	}
	return true
}

func (s *Store) root(r *record, h *treestore.Held) *Root {
	root := &Root{Config: r.Config, Digest: r.Digest, Ref: r.Ref, Owners: s.owners.kind, Range: s.owners.ids, held: h}
	for i := len(r.Layers) - 1; i >= 0; i-- {
		root.Layers = append(root.Layers, filepath.Join(s.trees.PathOf(r.Layers[i].Key), layerDir))
		root.Unowned += r.Layers[i].Unowned
	}
	return root
}

// gate is the lock between those that add images and those that remove layers: an image is added whole before its layers are judged unused.
func (s *Store) gate(ctx context.Context, shared bool) (*atomicfile.Lock, error) {
	if err := atomicfile.MkdirAll(s.o.Dir); err != nil {
		return nil, fmt.Errorf("make the store of images: %w", err)
	}
	path := filepath.Join(s.o.Dir, "gate.lock")
	if shared {
		return atomicfile.NewSharedLock(ctx, path)
	}
	return atomicfile.NewLock(ctx, path)
}

// configOf takes what counts of an image's config.
func configOf(c *v1.ConfigFile) Config {
	out := Config{User: c.Config.User, WorkingDir: c.Config.WorkingDir, Entrypoint: c.Config.Entrypoint, Cmd: c.Config.Cmd}
	for _, kv := range c.Config.Env {
		if name, _, ok := strings.Cut(kv, "="); ok && name != "" && !strings.ContainsRune(kv, 0) {
			out.Env = append(out.Env, kv)
		}
	}
	return out
}

func now() time.Time { return time.Now().UTC().Truncate(time.Second) }
