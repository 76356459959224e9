package local_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/sandbox"
)

// A state root on an overlay, as in a container, can hold neither whiteouts nor mapped ids. Boxes, snapshots and what is imported work in
// it all the same, each in a process of its own, which has to find that out anew.
func TestStateRootOnAnOverlay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root mounts overlays")
	}
	dir := t.TempDir()
	for _, name := range []string{"lower", "upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	root := filepath.Join(dir, "root")
	if err := unix.Mount("overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", dir)); err != nil {
		t.Skip("no overlay can be mounted here: ", err)
	}
	t.Cleanup(func() { unix.Unmount(root, unix.MNT_DETACH) })
	parent, box := create(t, openAt(t, root), sandbox.Spec{Tied: true})
	if got := sh(t, box, "echo x >/root/f; chown 7:8 /root/f; cat /etc/shadow /usr/share/polkit-1/rules.d/* 2>/dev/null; echo y >/usr/share/y; cat /usr/share/y"); got != "y\n" {
		t.Errorf("the parent: %q", got)
	}
	snap, err := openAt(t, root).Snapshot(t.Context(), parent.ID, sandbox.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var moved bytes.Buffer
	if err := openAt(t, root).ExportSnapshot(t.Context(), snap.ID, &moved); err != nil {
		t.Fatal(err)
	}
	imported, err := openAt(t, root).ImportSnapshot(t.Context(), &moved, sandbox.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for name, id := range map[string]string{"taken": snap.ID, "imported": imported.ID} {
		_, box := create(t, openAt(t, root), sandbox.Spec{Tied: true, From: id})
		if got := sh(t, box, "stat -c '%u %g' /root/f; cat /root/f /usr/share/y; echo z >>/usr/share/y"); got != "7 8\nx\ny\n" {
			t.Errorf("a box from the snapshot that was %s: %q", name, got)
		}
	}
}
