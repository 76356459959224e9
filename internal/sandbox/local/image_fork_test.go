package local_test

import (
	"io"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// TestForkOfAnImage: a box of an image is kept as what it changed of the image, and begins others with it.
func TestForkOfAnImage(t *testing.T) {
	t.Parallel()
	p := openImages(t)
	ref := layoutOf(t, v1.Config{WorkingDir: "/app"}, programs(t, "sh", "cat", "rm", "mkdir", "ls"))
	begin := func(s sandbox.Spec) (sandbox.Info, func(script string) string) {
		s.Tied = true
		info, err := p.Create(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		box, err := p.Connect(t.Context(), info.ID)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { box.Close() })
		return info, func(script string) string {
			t.Helper()
			r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"/bin/sh", "-c", script}}, guest.Limits{})
			if err != nil || !r.Exit.OK() {
				t.Fatalf("%s: %+v, %v: %s", script, r.Exit, err, r.Stderr.String())
			}
			return r.Stdout.String()
		}
	}
	parent, run := begin(sandbox.Spec{Image: ref})
	run("echo mine >/app/mine; rm /bin/ls; mkdir /data; echo x >/data/x")
	r, err := p.Diff(t.Context(), parent.ID, true)
	if err != nil {
		t.Fatal(err)
	}
	changes, err := sandbox.ReadChanges(r)
	if _, cerr := io.Copy(io.Discard, r); err != nil || cerr != nil || r.Close() != nil {
		t.Fatal(err, cerr)
	}
	var got []string
	for _, c := range changes {
		got = append(got, c.Kind+" "+c.Path)
	}
	for _, want := range []string{"A /app/mine", "D /bin/ls", "A /data", "A /data/x"} {
		if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
			t.Errorf("the changes lack %s: %q", want, got)
		}
	}
	snap, err := p.Snapshot(t.Context(), parent.ID, sandbox.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if snap.Image == "" || snap.Needs.System != "" || snap.Bytes > 1000 {
		t.Errorf("the snapshot of an image's box: %+v", snap)
	}
	info, run := begin(sandbox.Spec{From: snap.ID})
	if out := run("cat /app/mine /data/x; [ -e /bin/ls ] || echo gone; echo y >/data/y"); out != "mine\nx\ngone\n" || info.Image != parent.Image {
		t.Errorf("a box from it, of %q: %q", info.Image, out)
	}
	if err := p.RemoveSnapshot(t.Context(), snap.ID); err != nil {
		t.Error(err)
	}
}
