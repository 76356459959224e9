package sqlite_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/sqlite"
	"agentenv.internal/agentenv/internal/store/storetest"
)

// childVar makes the test binary play a process that another test kills, stops or shuts in: its value is the part to play,
// its arguments follow in the command line.
const childVar = "STORE_TEST_CHILD"

func TestMain(m *testing.M) {
	if part := os.Getenv(childVar); part != "" {
		if err := parts[part](context.Background(), os.Args[1:]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var parts = map[string]func(context.Context, []string) error{
	"write": partWrite, "loop": partLoop, "race": partRace, "own": partOwn, "readonly": partReadOnly, "full": partFull, "nearlyfull": partNearlyFull,
}

// child is a process playing a part. Its output lines come through lines; kill and wait are safe to call at any time.
type child struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	out   bytes.Buffer
}

func command(t *testing.T, wrap []string, part string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	argv := append(append(append([]string{}, wrap...), exe), args...)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), childVar+"="+part, "GOMAXPROCS=2", "GOTRACEBACK=single")
	return cmd
}

func start(t *testing.T, cmd *exec.Cmd) *child {
	t.Helper()
	c := &child{cmd: cmd, lines: make(chan string, 1000)}
	var err error
	if c.in, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = &c.out
	if err := cmd.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSPC) {
			t.Skipf("needs user namespaces: %v", err)
		}
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		for range c.lines {
		}
		<-done
	})
	return c
}

func (c *child) line(t *testing.T) string {
	t.Helper()
	select {
	case l, ok := <-c.lines:
		if !ok {
			t.Fatalf("the child has ended: %s", c.out.String())
		}
		return l
	case <-time.After(20 * time.Second):
		t.Fatal("the child says nothing")
		return ""
	}
}

func (c *child) wantLine(t *testing.T, want string) {
	t.Helper()
	if got := c.line(t); got != want {
		t.Fatalf("the child says %q, want %q", got, want)
	}
}

// run plays a part to its end and fails the test when it fails.
func run(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	b, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.ENOSPC) {
		t.Skipf("needs user namespaces: %v", err)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return string(b)
}

// The stage that children write: version n of two documents and a ledger row, which name three objects of their own, one that
// all share, and one that is read from a file.
func objectsOf(n int) [][]byte {
	return [][]byte{
		fmt.Appendf(nil, "small %d", n), storetest.Bytes(200_000, uint64(n)), storetest.Bytes(70_000+n, uint64(n)),
		[]byte("shared"), storetest.Bytes(300_000, 1<<32+uint64(n)),
	}
}

func writeStage(ctx context.Context, s store.Store, dir string, n int) error {
	g, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer g.Discard()
	var ds []ref.Digest
	objects := objectsOf(n)
	for i, b := range objects {
		var r io.Reader = bytes.NewReader(b)
		if i == len(objects)-1 {
			path := filepath.Join(dir, fmt.Sprintf("source-%d", os.Getpid()))
			if err := os.WriteFile(path, b, 0o600); err != nil {
				return err
			}
			f, err := os.Open(path)
			if err != nil {
				return err
			}
			defer os.Remove(path)
			defer f.Close()
			r = f
		}
		d, _, err := g.Put(r)
		if err != nil {
			return err
		}
		ds = append(ds, d)
	}
	body := fmt.Appendf(nil, `{"n":%d}`, n)
	g.Doc(store.Doc{Kind: store.Artifact, ID: "one", Version: n, Body: body, Objects: ds[:2]}, store.LatestIs(n-1))
	g.Doc(store.Doc{Kind: store.Artifact, ID: "two", Version: n, Body: body, Objects: ds[2:]}, store.LatestIs(n-1))
	g.Doc(store.Doc{Kind: store.Ledger, ID: "artifact one", Version: n, Body: body}, store.LatestIs(n-1))
	return g.Commit(ctx)
}

// latestStage checks that every stage is there whole or not at all, and answers the last one.
func latestStage(t *testing.T, s *sqlite.Store) int {
	t.Helper()
	ctx := t.Context()
	last := -1
	for _, k := range []struct {
		kind store.Kind
		id   string
	}{{store.Artifact, "one"}, {store.Artifact, "two"}, {store.Ledger, "artifact one"}} {
		d, err := s.Get(ctx, k.kind, k.id, 0)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Fatal(err)
		}
		if last >= 0 && d.Version != last {
			t.Fatalf("%s %s is at %d, another document of the same stages at %d", k.kind, k.id, d.Version, last)
		}
		last = d.Version
	}
	for n := max(1, last-1); n <= last+1; n++ {
		for _, b := range objectsOf(n) {
			err := s.Verify(ctx, ref.DigestOf(b))
			if n <= last && err != nil {
				t.Fatalf("stage %d: %v", n, err)
			}
			if n > last && !errors.Is(err, store.ErrNotFound) && string(b) != "shared" {
				t.Fatalf("stage %d isn't there, but one of its objects: %v", n, err)
			}
		}
	}
	return last
}

// checkWhole looks at the files of a store after a kill: intact, nothing left over, and the next write works.
func checkWhole(t *testing.T, root, sources string) int {
	t.Helper()
	s := open(t, root)
	n := latestStage(t, s)
	g, err := s.Begin(t.Context()) // sweeps
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Discard(); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, root, n)
	if err := writeStage(t.Context(), s, sources, n+1); err != nil {
		t.Fatal(err)
	}
	if got := latestStage(t, s); got != n+1 {
		t.Fatalf("the last stage is %d, want %d", got, n+1)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantFiles(t, root, n+1)
	return n + 1
}

// wantFiles finds the large objects of so many stages, and nothing on its way.
func wantFiles(t *testing.T, root string, stages int) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(root, "tmp"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	if len(left) > 0 {
		t.Fatalf("left in tmp: %v", left)
	}
	files, err := filepath.Glob(filepath.Join(root, "objects", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	if want := 3 * stages; len(files) != want {
		t.Fatalf("%d object files for %d stages, want %d", len(files), stages, want)
	}
}

// write ROOT SOURCES: one stage after the last.
func partWrite(ctx context.Context, args []string) error {
	s, err := sqlite.Open(args[0], sqlite.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	d, err := s.Get(ctx, store.Artifact, "one", 0)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}
	if err := writeStage(ctx, s, args[1], d.Version+1); err != nil {
		return err
	}
	fmt.Println("committed", d.Version+1)
	return s.Close()
}

// loop ROOT SOURCES: stages until it is killed.
func partLoop(ctx context.Context, args []string) error {
	for {
		if err := partWrite(ctx, args); err != nil {
			return err
		}
	}
}

// race ROOT: writes one new id, or finds it written.
func partRace(ctx context.Context, args []string) error {
	s, err := sqlite.Open(args[0], sqlite.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	for {
		_, err := s.Get(ctx, store.Artifact, "one", 0)
		if err == nil {
			fmt.Println("unchanged")
			return nil
		}
		if !errors.Is(err, store.ErrNotFound) {
			return err
		}
		if err := writeStage(ctx, s, args[1], 1); err == nil {
			fmt.Println("wrote")
			return nil
		} else if !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}

// own ROOT RUN: claims a run, then does what its input says.
func partOwn(ctx context.Context, args []string) error {
	s, err := sqlite.Open(args[0], sqlite.Options{})
	if err != nil {
		return err
	}
	o, err := s.Runs().Claim(ctx, args[1])
	if err != nil {
		return err
	}
	fmt.Println("epoch", o.Epoch())
	go func() {
		for q := range o.Requests() {
			fmt.Println("asked", q.Kind)
		}
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		switch verb, text, _ := strings.Cut(in.Text(), " "); verb {
		case "append":
			err = o.Append(ctx, runlog.Event{Kind: text})
		case "end":
			err = o.Append(ctx, runlog.Event{Kind: runlog.RunEnded, Data: []byte(`{"status":"passed"}`)})
		case "renew":
			err = o.Renew(ctx)
		}
		switch {
		case errors.Is(err, runlog.ErrFenced):
			fmt.Println("fenced")
		case err != nil:
			return err
		default:
			fmt.Println("done")
		}
	}
	return nil
}
