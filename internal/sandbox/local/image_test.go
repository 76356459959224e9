package local_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/image"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/local"
)

// member is one entry of a layer; a name that ends in a slash is a folder.
type member struct {
	name, body, link string
	mode             int64
	uid, gid         int
}

func layerOf(t testing.TB, ms ...member) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, m := range ms {
		h := &tar.Header{Name: m.name, Mode: m.mode, Uid: m.uid, Gid: m.gid, Size: int64(len(m.body)), Typeflag: tar.TypeReg, Linkname: m.link}
		switch {
		case strings.HasSuffix(m.name, "/"):
			h.Typeflag = tar.TypeDir
		case m.link != "":
			h.Typeflag = tar.TypeSymlink
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(m.body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return static.NewLayer(b.Bytes(), types.OCIUncompressedLayer)
}

// layoutOf writes an image as a layout and answers its reference.
func layoutOf(t testing.TB, config v1.Config, layers ...v1.Layer) string {
	t.Helper()
	img, err := mutate.ConfigFile(mutate.MediaType(empty.Image, types.OCIManifestSchema1), &v1.ConfigFile{OS: "linux", Architecture: runtime.GOARCH, Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if img, err = mutate.AppendLayers(img, layers...); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = p.AppendImage(img)
	}
	if err != nil {
		t.Fatal(err)
	}
	return "oci:" + dir
}

var libraries = regexp.MustCompile(`(/\S+) \(0x`)

// programs is a layer of the host's programs with what they need, so that tests have an image without a network.
func programs(t testing.TB, names ...string) v1.Layer {
	t.Helper()
	ms := []member{{name: "./", mode: 0o755}, {name: "bin/"}, {name: "etc/"}, {name: "tmp/", mode: 0o1777}, {name: "dev/"}, {name: "proc/"}}
	taken := map[string]bool{}
	add := func(from, to string) {
		if taken[to] {
			return
		}
		taken[to] = true
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, member{name: to, body: string(b)})
	}
	for _, name := range names {
		full, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		add(full, "bin/"+name)
		out, err := exec.CommandContext(t.Context(), "ldd", full).Output()
		if err != nil {
			t.Skip("ldd: ", err)
		}
		for _, m := range libraries.FindAllStringSubmatch(string(out), -1) {
			add(m[1], strings.TrimPrefix(m[1], "/"))
		}
	}
	return layerOf(t, ms...)
}

func openImages(t testing.TB) *local.Provider {
	t.Helper()
	root := stateRoot(t)
	p, err := local.New(local.Options{StateRoot: root, Images: image.Open(image.Options{Dir: filepath.Join(root, "images"), Worker: "/proc/self/exe", Floor: -1})})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// An image takes the place of the host: its files, its owners, its config; and nothing of the host.
func TestImage(t *testing.T) {
	p := openImages(t)
	const passwd = "root:x:0:0::/root:/bin/sh\napp:x:33:42::/home/app:/bin/sh\n"
	ref := layoutOf(t,
		v1.Config{User: "app", Env: []string{"PATH=/bin:/opt/bin", "COLOUR=blue", "SIZE=1"}, WorkingDir: "/srv/app", Entrypoint: []string{"/bin/sh"}, Cmd: []string{"-c", "true"}},
		programs(t, "sh", "id", "stat", "cat", "ls", "chown", "chmod", "rm"),
		layerOf(t, member{name: "etc/passwd", body: passwd, mode: 0o644}, member{name: "etc/group", body: "app:x:42:\nmore:x:7:app\n", mode: 0o644},
			member{name: "etc/shadow", body: "secret", mode: 0o640, gid: 42}, member{name: "root/", mode: 0o700}, member{name: "home/app/", uid: 33, gid: 42},
			member{name: "old", body: "1"}, member{name: "opt/bin/tool", body: "#!/bin/sh\necho tool $1", mode: 0o4755, uid: 33}),
		layerOf(t, member{name: ".wh.old"}, member{name: "new", body: "2", uid: 33}))
	info, box := create(t, p, sandbox.Spec{Tied: true, Image: ref, Env: []string{"SIZE=2"}})
	if !strings.HasPrefix(info.Image, ref+"@sha256:") || info.Entry == nil || !slices.Equal(info.Entry.Argv(), []string{"/bin/sh", "-c", "true"}) {
		t.Errorf("image %q, entry %+v", info.Image, info.Entry)
	}
	if info.Isolation.Level != sandbox.LevelNamespaces {
		t.Errorf("%+v", info.Isolation)
	}
	oneID := slices.ContainsFunc(info.Isolation.Probes, func(p sandbox.Probe) bool { return strings.Contains(p.Detail, "has one user id") })
	if oneID && os.Geteuid() == 0 {
		t.Error("root's boxes have one id")
	}
	user := guest.Command{User: "root"}
	if !oneID {
		user = guest.Command{}
	}
	run := func(script string) string {
		t.Helper()
		c := user
		c.Argv = []string{"sh", "-c", script}
		r, err := guest.Output(t.Context(), box, c, guest.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Stdout.String() + r.Stderr.String()
	}
	root := func(script string) string {
		t.Helper()
		r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", script}, User: "root"}, guest.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		return r.Stdout.String() + r.Stderr.String()
	}
	wants := []struct{ script, want string }{
		{"pwd; echo $COLOUR $SIZE; tool x", "/srv/app\nblue 2\ntool x\n"},
		{"ls /; ls /new", "bin\ndev\netc\nhome\nlib\nlib64\nnew\nopt\nproc\nroot\nrun\nsrv\ntmp\nvar\n/new\n"},
		{"cat /etc/hostname", info.ID + "\n"},
		{"ls /usr/bin /home/tester /work 2>/dev/null; echo $?", "2\n"},
	}
	for _, w := range wants {
		if got := run(w.script); got != w.want && !(strings.HasPrefix(w.script, "ls /;") && strings.ReplaceAll(got, "usr\n", "") == w.want) {
			t.Errorf("%s: %q, want %q", w.script, got, w.want)
		}
	}
	if oneID {
		return // see TestImageOneID
	}
	if got := run("id; echo $HOME; cat /etc/shadow"); got != "uid=33(app) gid=42(app) groups=42(app),7(more)\n/home/app\nsecret" {
		t.Errorf("%q", got)
	}
	script := "stat -c '%u:%g %a' /etc/shadow /home/app /opt/bin/tool /new / /root; rm /new; echo x >/etc/shadow; stat -c '%u:%g %a' /etc/shadow; chown 5:6 /etc/passwd; chmod 4711 /bin/ls; stat -c '%u:%g %a' /etc/passwd /bin/ls"
	want := "0:42 640\n33:42 755\n33:0 4755\n33:0 755\n0:0 755\n0:0 700\n0:42 640\n5:6 644\n0:0 4711\n"
	if got := root(script); got != want {
		t.Errorf("%q\nwant\n%q", got, want)
	}
	// The next box begins where the image stands.
	_, second := create(t, p, sandbox.Spec{Tied: true, Image: ref})
	r, err := guest.Output(t.Context(), second, guest.Command{Argv: []string{"stat", "-c", "%u:%g %a", "/new", "/etc/passwd", "/bin/ls"}}, guest.Limits{})
	if err != nil || r.Stdout.String() != "33:0 755\n0:0 644\n0:0 755\n" {
		t.Errorf("%q, %v", r.Stdout.String()+r.Stderr.String(), err)
	}
}

// With one id the box says so, and what the image gives to others is root's.
func TestImageOneID(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root has all ids")
	}
	p := openAt(t, stateRoot(t)) // whose images have no worker
	ref := layoutOf(t, v1.Config{}, programs(t, "sh", "stat", "chown"), layerOf(t, member{name: "f", uid: 33}, member{name: "g", gid: 42}))
	info, box := create(t, p, sandbox.Spec{Tied: true, Image: ref})
	note := slices.ContainsFunc(info.Isolation.Probes, func(p sandbox.Probe) bool {
		return p.Name == "note" && strings.Contains(p.Detail, "2 files of the image lost their owner")
	})
	if !note {
		t.Errorf("nothing of it: %+v", info.Isolation.Probes)
	}
	if got := sh(t, box, "stat -c %u:%g /f /g; chown 1:2 /f && echo done"); got != "0:0\n0:0\ndone\n" {
		t.Errorf("%q", got)
	}
}

// The image's names lead nowhere outside the box, whatever stands where the box needs a folder.
func TestHostileImage(t *testing.T) {
	t.Parallel()
	p := openImages(t)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.MkdirAll(filepath.Join(outside, "bin"), 0o777); err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(t.TempDir(), "tool")
	if err := os.WriteFile(tool, []byte("tool"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i, link := range []string{outside, "/", "../../../..", "/proc/1/root", "/sys/root", "dangling"} {
		ms := []member{{name: "run", link: link}, {name: "usr/local", link: link}}
		shell := programs(t, "sh", "cat", "ls")
		replaced := layerOf(t, member{name: ".wh.dev"}, member{name: "dev", link: link}, member{name: ".wh.proc"}, member{name: "proc", link: link},
			member{name: ".wh.tmp"}, member{name: "tmp", link: link}, member{name: "var", link: link})
		ref := layoutOf(t, v1.Config{WorkingDir: "/var/work"}, shell, layerOf(t, ms...), replaced)
		shown := []sandbox.Shown{{From: tool, At: sandbox.SelfPath}}
		info, err := p.Create(t.Context(), sandbox.Spec{Tied: true, Image: ref, Shown: shown})
		if err != nil {
			t.Errorf("%d: %v", i, err)
			continue
		}
		box, err := p.Connect(t.Context(), info.ID)
		if err != nil {
			t.Fatal(err)
		}
		// Below PID 1's root, which Landlock keeps commands from although it is the box's own, none starts.
		_, err = guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "pwd"}}, guest.Limits{})
		if err != nil && (link != "/proc/1/root" || !errors.Is(err, fs.ErrPermission)) {
			t.Errorf("%d: in a working folder below %s: %v", i, link, err)
		}
		r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "echo x >/dev/null; cat /proc/1/comm >/dev/null; ls -d /usr/local/bin/agent-env; cat /etc/hostname"}, Dir: "/"}, guest.Limits{})
		if got := r.Stdout.String(); err != nil || got != "/usr/local/bin/agent-env\n"+info.ID+"\n" {
			t.Errorf("%d: %q, %v", i, got, err)
		}
		if err := errors.Join(box.Close(), p.Destroy(t.Context(), info.ID)); err != nil {
			t.Error(err)
		}
	}
	var left []string
	filepath.WalkDir(outside, func(path string, _ os.DirEntry, _ error) error { left = append(left, path); return nil })
	if len(left) != 2 {
		t.Errorf("outside: %q", left)
	}
}

// A box holds its image: nothing that prunes takes it away, and nobody holds it after the box's end.
func TestImageIsHeld(t *testing.T) {
	t.Parallel()
	root := stateRoot(t)
	images := image.Open(image.Options{Dir: filepath.Join(root, "images"), Floor: -1})
	p, err := local.New(local.Options{StateRoot: root, Images: images})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ref := layoutOf(t, v1.Config{}, programs(t, "sh"))
	info, err := p.Create(t.Context(), sandbox.Spec{Image: ref})
	if err != nil {
		t.Fatal(err)
	}
	if out, err := images.Prune(t.Context(), 0); err != nil || len(out.Images) != 0 || len(out.Busy) != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if err := p.Destroy(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	// A child that another test is starting at this moment holds copies of all open files.
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		out, err := images.Prune(t.Context(), 0)
		if err == nil && len(out.Images) == 1 {
			break
		}
		if err != nil || len(out.Busy) != 1 || time.Now().After(end) {
			t.Fatalf("%+v, %v", out, err)
		}
	}
}

// As many layers as engines make.
func TestManyLayers(t *testing.T) {
	t.Parallel()
	p := openImages(t)
	layers := []v1.Layer{programs(t, "sh", "cat")}
	for i := range 66 { // more than a message took
		layers = append(layers, layerOf(t, member{name: fmt.Sprintf("d/f%d", i), body: "x"}, member{name: "last", body: fmt.Sprint(i)}))
	}
	_, box := create(t, p, sandbox.Spec{Tied: true, Image: layoutOf(t, v1.Config{}, layers...)})
	if got := sh(t, box, "cat /last; set -- /d/*; echo $#"); got != "6566\n" {
		t.Errorf("%q", got)
	}
}

// Below the floor no box starts from an image, and the reason is said.
func TestImageFloor(t *testing.T) {
	root := stateRoot(t)
	p, err := local.New(local.Options{StateRoot: root, Images: image.Open(image.Options{Dir: filepath.Join(root, "images"), Floor: 1 << 60})})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Create(t.Context(), sandbox.Spec{Image: layoutOf(t, v1.Config{}, programs(t, "sh"))}); !errors.Is(err, image.ErrSpace) {
		t.Error(err)
	}
}
