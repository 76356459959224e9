package folder

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func workspace(t *testing.T) Folder {
	t.Helper()
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	return At(root)
}

func content(t *testing.T, f Folder, name string) string {
	t.Helper()
	b, err := f.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestFind(t *testing.T) {
	f := workspace(t)
	deep := filepath.Join(f.Root(), "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(deep, Dir), nil, 0o600); err != nil { // a file of that name is no workspace
		t.Fatal(err)
	}
	got, err := Find(deep)
	if err != nil || got.Root() != f.Root() {
		t.Errorf("found %q, %v; want %q", got.Root(), err, f.Root())
	}
	if _, err := Find("/"); !errors.Is(err, ErrNone) {
		t.Errorf("at the root: %v, want ErrNone", err)
	}
}

func TestChangeCommitsAllOrNothing(t *testing.T) {
	f := workspace(t)
	ctx := t.Context()
	err := f.Change(ctx, func(tx *Tx) error {
		if err := tx.Write(Config, 0o600, []byte("a = 1\n")); err != nil {
			return err
		}
		if b, err := tx.Read(Config); err != nil || string(b) != "a = 1\n" {
			t.Errorf("a change reads %q, %v of itself", b, err)
		}
		return tx.Write(Secrets, 0o600, []byte("k = 'v'\n"))
	})
	if err != nil {
		t.Fatal(err)
	}
	boom := errors.New("boom")
	err = f.Change(ctx, func(tx *Tx) error {
		return errors.Join(tx.Write(Config, 0o600, []byte("a = 2\n")), tx.Remove(Secrets), boom)
	})
	if !errors.Is(err, boom) {
		t.Errorf("a change that fails: %v", err)
	}
	if got := content(t, f, Config) + content(t, f, Secrets); got != "a = 1\nk = 'v'\n" {
		t.Errorf("after a change that failed: %q", got)
	}
	if err := f.Change(ctx, func(tx *Tx) error { return tx.Write("../x", 0o600, nil) }); err == nil {
		t.Error("a change may write outside of the folder")
	}
	if _, err := os.Stat(f.Path(journalFile)); err == nil {
		t.Error("the journal is still there")
	}
}

// TestSettle: a journal is finished; what a person edited meanwhile is kept beside.
func TestSettle(t *testing.T) {
	f := workspace(t)
	if err := os.WriteFile(f.Path(Config), []byte("edited\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal([]write{
		{Name: Config, Mode: 0o600, Data: "bmV3Cg==", Before: digest([]byte("old\n"))},
		{Name: Lock, Mode: 0o600, Data: "e30K"},
		{Name: Soul, Gone: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.Path(journalFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.Settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := content(t, f, Config) + content(t, f, Lock); got != "new\n{}\n" {
		t.Errorf("after settling: %q", got)
	}
	kept, err := filepath.Glob(f.Path(Config + ".edited-*"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept beside: %v, %v", kept, err)
	}
	if b, err := os.ReadFile(kept[0]); err != nil || string(b) != "edited\n" {
		t.Errorf("kept beside: %q, %v", b, err)
	}
	if err := f.Settle(t.Context()); err != nil || content(t, f, Config) != "new\n" {
		t.Errorf("settling twice: %v", err)
	}
}

func TestChangesAreSerial(t *testing.T) {
	f := workspace(t)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			err := f.Change(context.WithoutCancel(t.Context()), func(tx *Tx) error {
				b, err := tx.Read(Config)
				return errors.Join(err, tx.Write(Config, 0o600, append(b, 'x')), tx.Write(Lock, 0o600, append(b, 'y')))
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := content(t, f, Config); got != strings.Repeat("x", 20) {
		t.Errorf("twenty changes: %q", got)
	}
}

// Secrets are the owner's alone whatever the file was; other files keep who may read them.
func TestModes(t *testing.T) {
	f := workspace(t)
	for name, was := range map[string]os.FileMode{Secrets: 0o644, Config: 0o600, Lock: 0o640} {
		if err := os.WriteFile(f.Path(name), []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(f.Path(name), was); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Change(t.Context(), func(tx *Tx) error {
		return errors.Join(tx.Write(Secrets, 0o600, []byte("new")), tx.Write(Config, 0o644, []byte("new")), tx.Write(Lock, 0o644, []byte("new")))
	}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{Secrets: 0o600, Config: 0o600, Lock: 0o640} {
		fi, err := os.Stat(f.Path(name))
		if err != nil || fi.Mode().Perm() != want || content(t, f, name) != "new" {
			t.Errorf("%s: %v, %v", name, fi.Mode(), err)
		}
	}
}

// What is kept elsewhere, as people keep their settings, isn't cut off from its place.
func TestLinksStay(t *testing.T) {
	for _, there := range []bool{true, false} {
		f := workspace(t)
		far := filepath.Join(t.TempDir(), "config.toml")
		if there {
			if err := os.WriteFile(far, []byte("mine"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(far, f.Path(Config)); err != nil {
			t.Fatal(err)
		}
		err := f.Change(t.Context(), func(tx *Tx) error {
			return errors.Join(tx.Write(Lock, 0o644, []byte("{}")), tx.Write(Config, 0o644, []byte("new")))
		})
		if err == nil || !strings.Contains(err.Error(), "config.toml is a symbolic link") {
			t.Errorf("%v", err)
		}
		if got, err := os.Readlink(f.Path(Config)); got != far || err != nil || content(t, f, Lock) != "" {
			t.Errorf("%q, %v", got, err)
		}
	}
}
