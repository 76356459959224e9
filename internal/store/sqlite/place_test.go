//go:build linux

package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/sqlite"
	"agentenv.internal/agentenv/internal/store/storetest"
)

// shut gives a child a user and a mount namespace of its own.
func shut(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	return cmd
}

// readonly ROOT: reads a store that lies on a read-only mount, and fails to write it.
func partReadOnly(ctx context.Context, args []string) error {
	root := args[0]
	if err := errors.Join(unix.Mount(root, root, "", unix.MS_BIND, ""), unix.Mount("", root, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")); err != nil {
		return err
	}
	for _, sub := range args[1:] {
		s, err := sqlite.Open(filepath.Join(root, sub), sqlite.Options{})
		if err != nil {
			return err
		}
		d, err := s.Get(ctx, store.Artifact, "one", 0)
		fmt.Printf("%s: version %d, found %v\n", sub, d.Version, err == nil)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
		for _, o := range d.Objects {
			if err := s.Verify(ctx, o); err != nil {
				return err
			}
		}
		if p, err := s.Runs().List(ctx, runlog.Query{}); err != nil {
			return err
		} else {
			fmt.Println("runs", len(p.Runs))
		}
		fmt.Println("write:", writeStage(ctx, s, os.TempDir(), d.Version+1))
		if err := s.Close(); err != nil {
			return err
		}
	}
	return nil
}

// full ROOT MIB: a store on a small disk.
func partFull(ctx context.Context, args []string) error {
	root := args[0]
	size, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, fmt.Sprintf("size=%dm", size)); err != nil {
		return err
	}
	return fillDisk(ctx, root, size<<20)
}

func TestReadOnlyFolder(t *testing.T) {
	dir := t.TempDir()
	closed, inUse := filepath.Join(dir, "closed"), filepath.Join(dir, "in use")
	for _, root := range []string{closed, inUse} {
		s := open(t, root)
		if err := writeStage(t.Context(), s, t.TempDir(), 1); err != nil {
			t.Fatal(err)
		}
		makeRun(t, s, "r")
		if root == closed {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	got := run(t, shut(command(t, nil, "readonly", dir, "closed", "in use", "missing")))
	for _, want := range []string{"closed: version 1, found true\nruns 1\n", "in use: version 1, found true\nruns 1\n", "missing: version 0, found false\nruns 0\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("the child says\n%swant %q", got, want)
		}
	}
	if n := strings.Count(got, "read-only file system"); n != 3 {
		t.Errorf("%d of 3 writes failed with the reason:\n%s", n, got)
	}
	if n := strings.Count(got, "its folder can't be used as needed; check its owner and mode, and whether its disk may be written: "); n != 3 {
		t.Errorf("%d of 3 writes tell what to do, once each:\n%s", n, got)
	}
}

// fillDisk plays the part "full".
func fillDisk(ctx context.Context, root string, size int) error {
	s, err := sqlite.Open(filepath.Join(root, "store"), sqlite.Options{})
	if err != nil {
		return err
	}
	defer s.Close()
	if err := writeStage(ctx, s, os.TempDir(), 1); err != nil {
		return err
	}
	fails := func(what string, write func(store.Stage) error) error {
		g, err := s.Begin(ctx)
		if err != nil {
			return err
		}
		if err = write(g); err == nil {
			g.Doc(store.Doc{Kind: store.Artifact, ID: what, Version: 1, Body: []byte("{}")}, store.Absent)
			err = g.Commit(ctx)
		}
		if !errors.Is(err, syscall.ENOSPC) {
			return fmt.Errorf("%s: %v", what, err)
		}
		fmt.Printf("%s: %v\n", what, err)
		if _, err := s.Get(ctx, store.Artifact, what, 0); !errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%s: half of it is there: %v", what, err)
		}
		if err := g.Discard(); err != nil {
			return err
		}
		left, err := os.ReadDir(filepath.Join(root, "store", "tmp"))
		if err != nil || len(left) > 0 {
			return fmt.Errorf("%s: left in tmp: %v, %v", what, left, err)
		}
		return nil
	}
	put := func(r func() io.Reader) func(store.Stage) error {
		return func(g store.Stage) error { _, _, err := g.Put(r()); return err }
	}
	source := filepath.Join(os.TempDir(), fmt.Sprintf("source-%d-full", os.Getpid()))
	if err := os.WriteFile(source, storetest.Bytes(size, 1), 0o600); err != nil {
		return err
	}
	defer os.Remove(source)
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := errors.Join(
		fails("stream", put(func() io.Reader { return io.LimitReader(zeros{}, int64(size)) })),
		fails("file", put(func() io.Reader { return f })),
		fails("small", func(g store.Stage) error {
			for i := range size / store.MaxInline {
				if _, _, err := g.Put(strings.NewReader(strings.Repeat("x", store.MaxInline-i))); err != nil {
					return err
				}
			}
			return nil
		}),
		fails("documents", func(g store.Stage) error {
			for i := range 64 {
				g.Doc(store.Doc{Kind: store.Task, ID: fmt.Sprint(i), Version: 1, Body: make([]byte, size/32)}, store.Absent)
			}
			return nil
		}),
	); err != nil {
		return err
	}
	// Space comes back, and everything works.
	if err := writeStage(ctx, s, os.TempDir(), 2); err != nil {
		return fmt.Errorf("the write after: %w", err)
	}
	d, err := s.Get(ctx, store.Artifact, "two", 0)
	if err != nil || d.Version != 2 {
		return fmt.Errorf("after: %+v, %w", d, err)
	}
	for _, o := range d.Objects {
		if err := s.Verify(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestFullDisk(t *testing.T) {
	got := run(t, shut(command(t, nil, "full", t.TempDir(), "6")))
	if n := strings.Count(got, "no space left on device"); n != 4 {
		t.Errorf("%d of 4 writes failed with the reason:\n%s", n, got)
	}
}

// partNearlyFull ROOT: first writes to stores on disks that end anywhere in the making of one, each written to again once there is room.
func partNearlyFull(ctx context.Context, args []string) error {
	made, refused := 0, 0
	for kib := 4; kib <= 512; kib += 4 {
		disk := filepath.Join(args[0], strconv.Itoa(kib))
		if err := os.Mkdir(disk, 0o700); err != nil {
			return err
		}
		if err := unix.Mount("tmpfs", disk, "tmpfs", 0, fmt.Sprintf("size=%dk", kib)); err != nil {
			return err
		}
		first := func() error {
			s, err := sqlite.Open(filepath.Join(disk, "store"), sqlite.Options{})
			if err != nil {
				return err
			}
			err = s.Runs().Create(ctx, runlog.Meta{ID: "r"})
			return errors.Join(err, s.Close())
		}
		err := first()
		if err == nil {
			made++
			continue
		}
		refused++
		if err := unix.Mount("tmpfs", disk, "tmpfs", unix.MS_REMOUNT, "size=8m"); err != nil {
			return err
		}
		if again := first(); again != nil {
			fmt.Printf("%d KiB: %v; with room: %v\n", kib, err, again)
		}
	}
	fmt.Printf("made %t, refused %t\n", made > 0, refused > 0)
	return nil
}

// A store is made whole or not at all, wherever the disk's room ends: with more room the next write works.
func TestFirstWriteOnANearlyFullDisk(t *testing.T) {
	if got := run(t, shut(command(t, nil, "nearlyfull", t.TempDir()))); got != "made true, refused true\n" {
		t.Error(got)
	}
}
