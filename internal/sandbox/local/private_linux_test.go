package local

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// privateTop is a folder with everything that is and isn't private.
func privateTop(t *testing.T) string {
	t.Helper()
	top := t.TempDir()
	if err := os.Chmod(top, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{
		"plain": 0o644, "key": 0o600, "groups": 0o640, "run-only": 0o711, "deep/a/b/key": 0o400, "closed/inside": 0o644, "passed/plain": 0o644, "passed/key": 0o600,
		"set": 0o4750 | os.ModeSetuid,
	} {
		full := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(full, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"closed": 0o700, "passed": 0o751} {
		if err := os.Chmod(filepath.Join(top, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("key", filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	return top
}

// What only its owner and group may use is found, and nothing else.
func TestFindPrivate(t *testing.T) {
	top := privateTop(t)
	var want []string
	for _, name := range []string{"closed", "deep/a/b/key", "groups", "key", "passed/key", "set"} {
		want = append(want, filepath.Join(top, name))
	}
	if got := findPrivate([]string{top}); !slices.Equal(got, want) {
		t.Errorf("found %q\nwant  %q", got, want)
	}
	if os.Geteuid() != 0 {
		return
	}
	to := t.TempDir()
	if err := whiteOut(privateNames([]string{top}), to); err != nil {
		t.Fatal(err)
	}
	for _, name := range want {
		var st unix.Stat_t
		if err := unix.Lstat(to+name, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR || st.Rdev != 0 {
			t.Errorf("%s: no whiteout: %v, %o", name, err, st.Mode)
		}
	}
	if info, err := os.Stat(to + top + "/passed"); err != nil || info.Mode().Perm() != 0o751 {
		t.Errorf("a folder above a private file: %v, %v", info, err)
	}
	if _, err := os.Lstat(to + top + "/plain"); err == nil {
		t.Error("a public file is in the tree")
	}
}

// A file of the host's /usr that only root may read isn't in a box of root's.
func TestPrivateFilesStayOutside(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without root the kernel keeps them from the box")
	}
	dir, err := os.MkdirTemp("/usr/local/share", ".agentenv-test-") //nolint:usetesting // below /usr is what it is about
	if err != nil {
		t.Skip("/usr/local/share can't be written: ", err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{"key": 0o600, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	p, err := New(Options{StateRoot: quickRoot(t), privateIndex: filepath.Join(t.TempDir(), "index")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	info, err := p.Create(t.Context(), sandbox.Spec{Tied: true})
	if err != nil {
		t.Fatal(err)
	}
	box, err := p.Connect(t.Context(), info.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	r, err := guest.Output(t.Context(), box, guest.Command{Argv: []string{"sh", "-c", "cd " + dir + " && ls && cat key; stat -c %u:%a . plain; echo mine > key && cat key"}}, guest.Limits{})
	if err != nil || r.Stdout.String() != "plain\n0:755\n0:644\nmine\n" {
		t.Errorf("%v: %q %q", err, r.Stdout.String(), r.Stderr.String())
	}
	if b, err := os.ReadFile(filepath.Join(dir, "key")); err != nil || string(b) != "key" {
		t.Errorf("the host's file: %q, %v", b, err)
	}
}
