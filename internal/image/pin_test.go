package image

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// indexOf is an index of images by architecture.
func indexOf(t testing.TB, images map[string]v1.Image) v1.ImageIndex {
	t.Helper()
	var index v1.ImageIndex = empty.Index
	for arch, img := range images {
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: img, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	return index
}

func (h *hub) pushIndex(t testing.TB, ref string, index v1.ImageIndex) (text, digest string) {
	t.Helper()
	text = h.host + "/" + ref
	if err := remote.WriteIndex(must(name.ParseReference(text)), index); err != nil {
		t.Fatal(err)
	}
	return text, must(index.Digest()).String()
}

// A reference is pinned to what its registry says, and no layer comes.
func TestPin(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newStore(t)
	here := imageOfLayers(t, nil, layerTar(t, entry{name: "a", body: "1"}))
	there := imageOfLayers(t, func(c *v1.ConfigFile) { c.Architecture = "mips" }, layerTar(t, entry{name: "a", body: "2"}))
	plain := h.push(t, "team/app:1", here)
	foreign := h.push(t, "team/app:mips", there)
	both, index := h.pushIndex(t, "team/both", indexOf(t, map[string]v1.Image{platform().Architecture: here, "mips": there}))
	never, _ := h.pushIndex(t, "team/never", indexOf(t, map[string]v1.Image{"mips": there}))
	h.blobs = 0
	for text, want := range map[string]string{plain: must(here.Digest()).String(), both: index} {
		if got, err := s.Pin(t.Context(), text); err != nil || got != want {
			t.Errorf("%s: %s %v, want %s", text, got, err, want)
		}
	}
	if h.blobs != 2 {
		t.Errorf("%d blobs for two configs", h.blobs)
	}
	for text, want := range map[string]error{foreign: ErrPlatform, never: ErrPlatform, h.host + "/team/app:2": ErrNotFound, h.host + "/nobody/app": ErrNotFound} {
		if got, err := s.Pin(t.Context(), text); !errors.Is(err, want) {
			t.Errorf("%s: %s %v", text, got, err)
		}
	}
	for _, text := range []string{"", "UPPER", "oci:/x", "./x", "docker-daemon:x"} {
		if got, err := s.Pin(t.Context(), text); err == nil {
			t.Errorf("%q: %s", text, got)
		}
	}
	// With its digest, nobody is asked; and what is pinned is pulled by it, once.
	h.handler = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusTeapot); return true }
	if got, err := s.Pin(t.Context(), both+":latest@"+index); err != nil || got != index {
		t.Error(got, err)
	}
	if _, err := os.Stat(s.o.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is kept: %v", err)
	}
	h.handler = nil
	root := rootOfRef(t, s, both+":latest@"+index)
	if root.Digest != must(here.Digest()).String() {
		t.Errorf("%s is the root", root.Digest)
	}
	h.handler = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusTeapot); return true }
	rootOfRef(t, s, both+":latest@"+index)
}

// What a registry refuses, and one that isn't there, is told in words that help.
func TestPinRefused(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newStore(t)
	ref := h.push(t, "team/app:1", imageOfLayers(t, nil, layerTar(t, entry{name: "a", body: "1"})))
	for status, want := range map[int]string{
		http.StatusUnauthorized: h.host + " does not let you read team/app (or it does not exist); sign in with: docker login " + h.host,
		http.StatusForbidden:    "sign in with: docker login " + h.host,
		http.StatusNotFound:     h.host + " has no " + ref,
	} {
		h.handler = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(status); return true }
		if got, err := s.Pin(t.Context(), ref); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %s %v", status, got, err)
		}
	}
	gone := "127.0.0.1:1/team/app:1"
	if got, err := s.Pin(t.Context(), gone); err == nil || err.Error() != "127.0.0.1:1 can't be reached: dial tcp 127.0.0.1:1: connect: connection refused" {
		t.Error(got, err)
	}
}

// who signs in everywhere as one.
type who struct{ name, password string }

func (w who) Resolve(authn.Resource) (authn.Authenticator, error) {
	return &authn.Basic{Username: w.name, Password: w.password}, nil
}

// A private registry is signed in to as a pull does.
func TestPinSignedIn(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newStore(t)
	ref := h.push(t, "team/app:1", imageOfLayers(t, nil, layerTar(t, entry{name: "a", body: "1"})))
	h.handler = func(w http.ResponseWriter, r *http.Request) bool {
		if name, password, ok := r.BasicAuth(); ok && name == "me" && password == "hunter2" {
			return false
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
		w.WriteHeader(http.StatusUnauthorized)
		return true
	}
	s.o.Keychain = who{"me", "wrong"}
	if got, err := s.Pin(t.Context(), ref); err == nil || strings.Contains(err.Error(), "wrong") || !strings.Contains(err.Error(), "sign in with") {
		t.Error(got, err)
	}
	s.o.Keychain = who{"me", "hunter2"}
	if got, err := s.Pin(t.Context(), ref); err != nil || !strings.HasPrefix(got, "sha256:") {
		t.Error(got, err)
	}
}

// A registry that says nothing is waited for so long and no longer; whoever is told to stop doesn't wait.
func TestPinInTime(t *testing.T) {
	t.Parallel()
	h, s := newHub(t), newStore(t)
	h.handler = func(_ http.ResponseWriter, r *http.Request) bool { <-r.Context().Done(); return true }
	s.pinLimit = 50 * time.Millisecond
	if got, err := s.Pin(t.Context(), h.host+"/team/app:1"); err == nil || err.Error() != h.host+" did not answer within 50ms" {
		t.Error(got, err)
	}
	s.pinLimit = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if got, err := s.Pin(ctx, h.host+"/team/app:1"); !errors.Is(err, context.Canceled) {
		t.Error(got, err)
	}
}
