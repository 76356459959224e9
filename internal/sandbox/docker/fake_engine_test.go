//go:build linux

package docker

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/moby/moby/api/pkg/authconfig"

	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/docker/enginetest"
)

func newFakeEngine(t *testing.T) (*enginetest.Engine, string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	if len(socket) > 100 { // longer than the address of a socket may be
		t.Fatalf("the folder of the test has a long name: %s", socket)
	}
	f, err := enginetest.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f, socket
}

func fakeProvider(t *testing.T, socket string) *Provider {
	t.Helper()
	p, err := New(Options{StateRoot: t.TempDir(), Socket: socket, Image: "there", Guest: func() ([]byte, error) { return []byte("#!"), nil }, Keychain: keychain{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close the provider: %v", err)
		}
	})
	return p
}

// A start that fails anywhere says what the engine said, and leaves nothing in it or on the host.
func TestFailedStartsLeaveNothing(t *testing.T) {
	for _, c := range []struct {
		name, at string
		fault    http.HandlerFunc
		spec     sandbox.Spec
		want     string
	}{
		{"image", "GET /images/there/json", enginetest.Answering(500, "disk on fire"), sandbox.Spec{}, "look at the image there: the engine says: Error response from daemon: disk on fire"},
		{"no image, no pull", "POST /images/create", enginetest.Answering(404, "no such repository"), sandbox.Spec{Image: "gone"}, "the engine has no image gone and can't pull it"},
		{"pull tells of a fault", "POST /images/create", enginetest.Cut(`{"status":"Pulling"}{"errorDetail":{"message":"toomanyrequests"},"error":"toomanyrequests"}`), sandbox.Spec{Image: "gone"}, "toomanyrequests"},
		{"pull is cut", "POST /images/create", enginetest.Cut(`{"status":"Pulling"}{"stat`), sandbox.Spec{Image: "gone"}, "the engine's answer ended early"},
		{"create", "POST /containers/create", enginetest.Answering(500, "no space left on device"), sandbox.Spec{}, "make the container: the engine says: Error response from daemon: no space left on device"},
		{"create is cut", "POST /containers/create", enginetest.Cut(`{"I`), sandbox.Spec{}, "make the container"},
		{"start", "POST /containers/.*/start", enginetest.Answering(500, "exec format error"), sandbox.Spec{}, "start the container: the engine says: Error response from daemon: exec format error"},
		{
			"no TUN", "POST /containers/.*/start", enginetest.Answering(500, "error gathering device information while adding custom device \"/dev/net/tun\": no such file or directory"),
			sandbox.Spec{Network: sandbox.NetAllowAll},
			"modprobe tun",
		},
		{"ends at once", "POST /nothing", nil, sandbox.Spec{}, "the container ended at its start with code 3: sandbox: what it said last"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f, socket := newFakeEngine(t)
			f.Fail(c.at, c.fault)
			p := fakeProvider(t, socket)
			c.spec.Tied = true
			_, err := p.Create(t.Context(), c.spec)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			if left := f.Left(); len(left) > 0 {
				t.Errorf("the engine has %v", left)
			}
			if infos, err := p.List(t.Context()); err != nil || len(infos) > 0 {
				t.Errorf("listed: %v, %v", infos, err)
			}
		})
	}
}

// A pull signs in with what Docker and Podman know of the registry, and tells how far it is.
func TestPull(t *testing.T) {
	f, socket := newFakeEngine(t)
	var auth atomic.Value
	f.Fail("POST /images/create", func(w http.ResponseWriter, r *http.Request) {
		auth.Store(r.Header.Get("X-Registry-Auth"))
		enginetest.Cut(`{"status":"Pulling fs layer","id":"a"}{"status":"Downloading","progressDetail":{"current":10,"total":100},"id":"a"}
{"status":"Downloading","progressDetail":{"current":5,"total":50},"id":"b"}{"status":"Extracting","progressDetail":{"current":1,"total":9},"id":"a"}
{"status":"Download complete","id":"a"}{"status":"Pull complete","id":"c"}{"errorDetail":{"message":"over"}}`)(w, r)
	})
	p, err := New(Options{StateRoot: t.TempDir(), Socket: socket, Guest: func() ([]byte, error) { return []byte("#!"), nil }, Keychain: keychain{}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var told []string
	spec := sandbox.Spec{Image: "kept.test/a:1", Progress: func(done, total int64) { told = append(told, fmt.Sprintf("%d/%d", done, total)) }}
	if _, err := p.Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "over") || strings.Contains(err.Error(), "hush") {
		t.Errorf("%v", err)
	}
	if want := []string{"10/100", "15/150", "105/150"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	got, err := authconfig.Decode(auth.Load().(string))
	if err != nil || got.Username != "me" || got.Password != "hush" || got.ServerAddress != "kept.test" {
		t.Errorf("signed in as %+v, %v", got, err)
	}
	spec.Image = "open.test/a:1"
	if _, err := p.Create(t.Context(), spec); err == nil || auth.Load() != "" && auth.Load() != "e30=" {
		t.Errorf("%v, signed in with %v", err, auth.Load())
	}
	spec.Image = "broken.test/a:1"
	if _, err := p.Create(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "sign in for the image broken.test/a:1: no helper") {
		t.Errorf("%v", err)
	}
}

// keychain knows one registry, and fails for another.
type keychain struct{}

func (keychain) Resolve(r authn.Resource) (authn.Authenticator, error) {
	switch r.RegistryStr() {
	case "kept.test":
		return &authn.Basic{Username: "me", Password: "hush"}, nil
	case "broken.test":
		return nil, errors.New("no helper")
	}
	return authn.Anonymous, nil
}

// A container of that name that was there before is not the box's, and stays.
func TestForeignContainerStays(t *testing.T) {
	f, socket := newFakeEngine(t)
	f.Fail("POST /containers/create", enginetest.Answering(409, "the name is in use"))
	p := fakeProvider(t, socket)
	if _, err := p.Create(t.Context(), sandbox.Spec{Tied: true}); err == nil || !strings.Contains(err.Error(), "the name is in use") {
		t.Errorf("%v", err)
	}
	if slices.ContainsFunc(f.Calls(), func(c string) bool { return strings.HasPrefix(c, "DELETE /containers/") }) {
		t.Errorf("the engine was asked to remove it: %v", f.Calls())
	}
	if left := f.Left(); len(left) > 0 {
		t.Errorf("the engine has %v", left)
	}
}

// What an engine refuses to remove stays listed as dead until a sweep can remove it.
func TestSweepFinishesWhatUndoCouldNot(t *testing.T) {
	f, socket := newFakeEngine(t)
	f.Fail("POST /containers/.*/start", enginetest.Answering(500, "busy"))
	f.Fail("DELETE /containers/.*", enginetest.Answering(500, "busier"))
	p := fakeProvider(t, socket)
	if _, err := p.Create(t.Context(), sandbox.Spec{Name: "left"}); err == nil || !strings.Contains(err.Error(), "busy") || !strings.Contains(err.Error(), "busier") {
		t.Errorf("%v", err)
	}
	infos, err := p.List(t.Context())
	if err != nil || len(infos) != 1 || infos[0].State != sandbox.StateDead || infos[0].Name != "left" || infos[0].Cause != sandbox.CauseOwner {
		t.Fatalf("listed: %+v, %v", infos, err)
	}
	if swept, err := p.Sweep(t.Context()); err == nil || len(swept) > 0 {
		t.Errorf("swept %v, %v while the engine refuses", swept, err)
	}
	f.Heal()
	if swept, err := p.Sweep(t.Context()); err != nil || !slices.Equal(swept, []string{infos[0].ID}) {
		t.Errorf("swept %v, %v", swept, err)
	}
	if left := f.Left(); len(left) > 0 {
		t.Errorf("the engine has %v", left)
	}
}

// Nothing dials an engine before one is needed, and a machine without one is told what to do.
func TestNoEngine(t *testing.T) {
	env := func(values map[string]string) lookup {
		return func(name string) (string, bool) { v, ok := values[name]; return v, ok }
	}
	nowhere := filepath.Join(t.TempDir(), "s")
	dead, err := net.Listen("unix", nowhere)
	if err != nil {
		t.Fatal(err)
	}
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	dead.Close()
	for _, c := range []struct {
		name string
		o    Options
		want string
	}{
		{"not there", Options{Socket: "/no/such/socket"}, "the engine at /no/such/socket does not answer"},
		{"nobody listens", Options{Socket: nowhere}, "does not answer; start it"},
		{"elsewhere", Options{Env: env(map[string]string{"DOCKER_HOST": "tcp://10.0.0.1:2375"})}, `DOCKER_HOST: "tcp://10.0.0.1:2375" is an engine elsewhere`},
		{"by ssh", Options{Env: env(map[string]string{"DOCKER_HOST": "ssh://me@host"})}, "an engine elsewhere"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.o.StateRoot, c.o.Image = filepath.Join(t.TempDir(), "state"), "there"
			p, err := New(c.o)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if infos, err := p.List(t.Context()); err != nil || len(infos) > 0 {
				t.Errorf("list: %v, %v", infos, err)
			}
			if swept, err := p.Sweep(t.Context()); err != nil || len(swept) > 0 {
				t.Errorf("sweep: %v, %v", swept, err)
			}
			_, err = p.Create(t.Context(), sandbox.Spec{})
			if !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("create: %v, want %q", err, c.want)
			}
			if _, err := os.Stat(c.o.StateRoot); err == nil {
				t.Error("a refusal made the state root")
			}
		})
	}
}
