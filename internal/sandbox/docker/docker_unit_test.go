//go:build linux

package docker

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
)

func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name string
		s    sandbox.Spec
		want string
	}{
		{"snapshot", sandbox.Spec{From: "s1"}, "the snapshot s1"},
		{"isolation", sandbox.Spec{Isolation: "vm"}, "not vm"},
		{"no image", sandbox.Spec{}, "set [sandbox.docker] image"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := New(Options{StateRoot: t.TempDir(), Socket: "/no/such/socket"})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			if err := p.Check(t.Context(), c.s); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("check: %v", err)
			}
			if _, err := p.Create(t.Context(), c.s); !errors.Is(err, sandbox.ErrUnsupported) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("create: %v", err)
			}
		})
	}
	p, err := New(Options{StateRoot: t.TempDir(), Socket: "/no/such/socket", Image: "there"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	wrong := sandbox.Spec{Network: sandbox.NetAllow, Egress: sandbox.Egress{Hosts: []string{"10.0.0.1"}}, Publish: []sandbox.Port{{Box: 0}}}
	if err := p.Check(t.Context(), wrong); err == nil || !strings.Contains(err.Error(), "allow it as a CIDR") || !strings.Contains(err.Error(), "port 0") {
		t.Errorf("a wrong network: %v", err)
	}
	if _, err := New(Options{StateRoot: "rel", Socket: "tcp://x"}); err == nil || !strings.Contains(err.Error(), "rel") || !strings.Contains(err.Error(), "sandbox.docker.socket") {
		t.Errorf("options: %v", err)
	}
}

func TestCandidates(t *testing.T) {
	home := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sum := sha256.Sum256([]byte("rootless"))
	write(".docker/config.json", `{"currentContext":"rootless"}`)
	write(".docker/contexts/meta/"+hex.EncodeToString(sum[:])+"/meta.json", `{"Name":"rootless","Endpoints":{"docker":{"Host":"unix:///run/user/7/docker.sock"}}}`)
	write("plain/config.json", `{"currentContext":"default"}`)
	write("bad/config.json", `{`)
	usual := []string{"/var/run/docker.sock", "/run/user/7/docker.sock", "/run/user/7/podman/podman.sock", "/run/podman/podman.sock"}
	for _, c := range []struct {
		name, configured string
		env              map[string]string
		want             []string
		named            string
	}{
		{"configured", "/a/b.sock", map[string]string{"DOCKER_HOST": "unix:///c"}, []string{"/a/b.sock"}, "sandbox.docker.socket"},
		{"configured address", "unix:///a/../b.sock", nil, []string{"/b.sock"}, "sandbox.docker.socket"},
		{"DOCKER_HOST", "", map[string]string{"DOCKER_HOST": "unix:///c", "HOME": home}, []string{"/c"}, "DOCKER_HOST"},
		{"context", "", map[string]string{"HOME": home}, []string{"/run/user/7/docker.sock"}, "the Docker context rootless"},
		{"default context", "", map[string]string{"DOCKER_CONFIG": filepath.Join(home, "plain")}, usual, ""},
		{"context by name", "", map[string]string{"HOME": home, "DOCKER_CONTEXT": "default"}, usual, ""},
		{"broken settings", "", map[string]string{"DOCKER_CONFIG": filepath.Join(home, "bad")}, usual, ""},
		{"runtime folder", "", map[string]string{"XDG_RUNTIME_DIR": "/x"}, []string{"/var/run/docker.sock", "/x/docker.sock", "/x/podman/podman.sock", "/run/podman/podman.sock"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, named, err := candidates(c.configured, func(n string) (string, bool) { v, ok := c.env[n]; return v, ok }, 7)
			if err != nil || !slices.Equal(got, c.want) || named != c.named {
				t.Errorf("%v, %q, %v", got, named, err)
			}
		})
	}
}

// The program that engines bind is what was meant, whoever wrote to the state root meanwhile.
func TestProgramIsVerified(t *testing.T) {
	dir := t.TempDir()
	p := &program{dir: dir, bytes: func() ([]byte, error) { return []byte("the guest"), nil }}
	path, err := p.get()
	if err != nil {
		t.Fatal(err)
	}
	for _, spoil := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return os.WriteFile(path, []byte("another guest"), 0o755) },
		func() error { return errors.Join(os.Remove(path), os.WriteFile(path, []byte("the guesT"), 0o755)) },
		func() error { return os.Chmod(path, 0o777) },
		func() error { return errors.Join(os.Remove(path), os.Symlink("/bin/true", path)) },
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		for _, q := range []*program{p, {dir: dir, bytes: p.bytes}} { // this process's, and a later one's
			got, err := q.get()
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(got)
			info, serr := os.Lstat(got)
			if err != nil || serr != nil || string(b) != "the guest" || info.Mode().Perm()&0o122 != 0o100 || !info.Mode().IsRegular() {
				t.Errorf("%q, %v, %v, %v", b, err, info, serr)
			}
		}
	}
}

func TestTranscript(t *testing.T) {
	for _, c := range []struct{ name, in, log, err string }{
		{"build", `{"stream":"Step 1/2\n"}{"aux":{"ID":"sha256:1"}}{"stream":"done\n"}`, "Step 1/2\ndone\n", ""},
		{"fault", `{"stream":"RUN false\n"}{"errorDetail":{"code":1,"message":"returned a non-zero code: 1"},"error":"x"}`, "RUN false\n", "returned a non-zero code: 1"},
		{"pull", `{"status":"Pulling","id":"l1"}{"status":"Downloading","progressDetail":{"current":1},"id":"l1"}{"status":"done"}`, "l1 Pulling\ndone\n", ""},
		{"cut", `{"stream":"half`, "", "ended early"},
		{"no JSON", "<html>", "", "ended early"},
		{"empty", "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, err := transcript(strings.NewReader(c.in), nil)
			if log != c.log || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%q, %v", log, err)
			}
		})
	}
	long, err := transcript(strings.NewReader(strings.Repeat(`{"stream":"0123456789abcde\n"}`, 40000)), nil)
	if err != nil || len(long) > maxLog+100 || !strings.HasPrefix(long, "[…]\n") {
		t.Errorf("a long log is %d bytes, %v", len(long), err)
	}
}

func TestLoaded(t *testing.T) {
	got := loaded("abc\nLoaded image: a:1\nLoaded image ID: sha256:2\n")
	if !slices.Equal(got, []string{"a:1", "sha256:2"}) {
		t.Errorf("%q", got)
	}
}

func FuzzTranscript(f *testing.F) {
	f.Add(`{"stream":"a"}{"aux":{}}`)
	f.Add(`{"errorDetail":{"message":"m"}}`)
	f.Fuzz(func(t *testing.T, s string) {
		log, _ := transcript(strings.NewReader(s), nil)
		if len(log) > 2*maxLog+len(s) {
			t.Errorf("%d bytes of log", len(log))
		}
		_ = loaded(log)
	})
}

func FuzzSlot(f *testing.F) {
	f.Add([]byte("00000000000000000001\n{\"id\":\"x\"}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, lease, err := parseSlot(b)
		if err == nil && len(lease) > hostside.LeaseSize {
			t.Errorf("%+v %q", r, lease)
		}
	})
}

// A child that is being started has copies of all open files for a moment: a slot that was let go of isn't taken for it.
func TestSlotIsFreeBesideACopy(t *testing.T) {
	t.Parallel()
	boxes := t.TempDir()
	s, err := makeSlot(boxes, "b012345678")
	if err != nil {
		t.Fatal(err)
	}
	child, err := unix.Dup(s.fd())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(child) }()
	other, err := openSlot(boxes, "b012345678")
	if err != nil {
		t.Fatal(err)
	}
	defer other.close()
	if !other.taken() {
		t.Error("a slot that is held is not taken")
	}
	s.close()
	if other.taken() {
		t.Error("a slot that was let go of is taken")
	}
}
