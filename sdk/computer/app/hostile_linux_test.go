package app_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"agentenv.internal/agentenv/sdk/wire"
)

// TestOddFiles: what is no file is left out of an export, and files that can't be said to others are told of by name. A reset takes all of it away.
func TestOddFiles(t *testing.T) {
	t.Parallel()
	r := serve(t, notes(), map[string]string{"Notes/welcome": "hi"})
	dir := filepath.Join(r.home, "Notes")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "socket"), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	defer l.Close()
	if err := syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(r.home, "outside")
	write(t, outside, "outside")
	if err := os.Link(outside, filepath.Join(dir, "hard")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("loop", filepath.Join(dir, "loop")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{" ", "a\nb", "ü", "-rf", strings.Repeat("n", 255)} {
		write(t, filepath.Join(dir, name), "x")
	}
	r.is("the export", r.tree(), "Notes/ =x Notes/-rf=x Notes/a\nb=x Notes/hard=outside Notes/"+strings.Repeat("n", 255)+"=x Notes/welcome=hi Notes/ü=x")
	r.is("a load", r.add(file("Notes/hard", "new")), "{}")
	if b, err := os.ReadFile(outside); err != nil || string(b) != "outside" {
		t.Errorf("a load writes to the other name of a file: %q %v", b, err)
	}
	for name, want := range map[string]string{
		`a\b`:  `-32000 get_failed: "Notes/a\\b": the path holds a backslash or NUL: give the file another name`,
		"\xff": `-32000 get_failed: "Notes/\xff": its name is no UTF-8: give the file another name`,
	} {
		write(t, filepath.Join(dir, name), "x")
		r.is("the export", r.tree(), want)
		r.is("a reset", r.reset(), "{}")
		r.is("the export", r.tree(), "Notes/welcome=hi")
	}
}

// TestSparse: a file that says that it is huge is no reason to run out of memory, or of disk.
func TestSparse(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	write(t, filepath.Join(home, "Notes/big"), "begin")
	big := filepath.Join(home, "Notes/big")
	if err := os.Truncate(big, 10<<30); err != nil {
		t.Skip("needs a file system with holes:", err)
	}
	f, err := os.OpenFile(big, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("middle"), 5<<30); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	r := serveIn(t, home, notes())
	r.is("the export", r.rpc(wire.Get, "{}"), "-32000 get_failed: Notes/big has 10737418240 bytes: with what is before it that is more than the 512 MiB that an answer holds")
	if err := os.Remove(big); err != nil {
		t.Fatal(err)
	}
	r.is("a reset", r.reset(), "{}")
	var st syscall.Stat_t
	if err := syscall.Stat(big, &st); err != nil {
		t.Fatal(err)
	}
	if st.Size != 10<<30 || st.Blocks*512 > 16<<20 {
		t.Errorf("it has %d bytes that take %d", st.Size, st.Blocks*512)
	}
	if f, err = os.Open(big); err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for at, want := range map[int64]string{0: "begin\x00", 5 << 30: "middle", 5<<30 - 3: "\x00\x00\x00mid"} {
		got := make([]byte, 6)
		if _, err := f.ReadAt(got, at); err != nil || string(got) != want {
			t.Errorf("%q at %d, want %q (%v)", got, at, want, err)
		}
	}
}

// TestResetWhileOthersWrite: programs that aren't the app write all the time, and a reset succeeds all the same.
func TestResetWhileOthersWrite(t *testing.T) {
	t.Parallel()
	r := serve(t, notes(), map[string]string{"Notes/welcome": "hi", "Notes/sub/a": "a", ".notesrc": "rc"})
	stop := make(chan struct{})
	var all sync.WaitGroup
	for k := range 2 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				// What the reset takes from under them is theirs to expect.
				_ = os.MkdirAll(filepath.Join(r.home, "Notes/sub"), 0o755)
				_ = os.WriteFile(filepath.Join(r.home, "Notes", fmt.Sprint(k, i%50)), []byte("x"), 0o600)
				_ = os.WriteFile(filepath.Join(r.home, "Notes/sub/a"), []byte("z"), 0o600)
			}
		})
	}
	for range 5 {
		if got := r.reset(); got != "{}" {
			t.Errorf("a reset answers %s", got)
		}
		if got := r.rpc(wire.Get, "{}"); strings.HasPrefix(got, "-") {
			t.Errorf("an export answers %s", got)
		}
	}
	close(stop)
	all.Wait()
	r.is("a reset", r.reset(), "{}")
	r.is("the export", r.tree(), "Notes/sub/a=a Notes/welcome=hi .notesrc=rc")
	if left, err := os.ReadDir(filepath.Join(r.home, ".agentenv/tmp")); err != nil || len(left) != 0 {
		t.Errorf("%v is left (%v)", left, err)
	}
}
