package owner

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"agentenv.internal/agentenv/internal/atomicfile"
)

type record struct{ Head }

func (r *record) Of() string { return r.Instance }

// Who lists and sweeps while a deployment begins neither takes its owner's lock nor its folder.
func TestNobodySweepsWhatBegins(t *testing.T) {
	t.Parallel()
	f := Open[record](t.TempDir(), Words{})
	done := make(chan struct{})
	var others sync.WaitGroup
	for range 4 {
		others.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if swept, err := f.Sweep(t.Context()); err != nil || len(swept) > 0 {
					t.Errorf("swept %q: %v", swept, err)
					return
				}
			}
		})
	}
	for range 200 {
		key, err := f.newKey("@local/desk/words")
		if err != nil {
			t.Fatal(err)
		}
		lock, err := atomicfile.NewHeldLock(f.At(key, lockFile))
		if err != nil {
			t.Fatalf("the owner gets no lock: %v", err)
		}
		if !f.alive(key) {
			t.Fatal("its folder is gone, or nobody holds its lock")
		}
		if err := errors.Join(os.RemoveAll(f.At(key, ".")), lock.Unlock()); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	others.Wait()
}

// What is left of an owner that is gone is swept, and a folder that is just being made is not.
func TestSweep(t *testing.T) {
	t.Parallel()
	f := Open[record](t.TempDir(), Words{})
	gone, err := f.newKey("@local/desk/gone")
	if err != nil {
		t.Fatal(err)
	}
	lock, err := atomicfile.NewHeldLock(f.At(gone, lockFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Unlock(); err != nil {
		t.Fatal(err)
	}
	made, err := f.newKey("@local/desk/made")
	if err != nil {
		t.Fatal(err)
	}
	swept, err := f.Sweep(t.Context())
	if err != nil || len(swept) != 1 || swept[0] != gone {
		t.Errorf("swept %q, %v; want %q", swept, err, gone)
	}
	if _, err := os.Stat(f.At(made, ".")); err != nil {
		t.Error(err)
	}
}

// What an owner wrote is told also when its folder is gone.
func TestLastLog(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                       "it wrote nothing",
		"no such table\n":                        "no such table",
		strings.Repeat("x", 3000) + " the end\n": strings.Repeat("x", 1991) + " the end",
	} {
		path := filepath.Join(t.TempDir(), "log")
		log, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, err = log.WriteString(text)
		if err := errors.Join(err, os.Remove(path)); err != nil {
			t.Fatal(err)
		}
		if got := lastLog(log); got != want {
			t.Errorf("%q: %q", text, got)
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

type deployed struct {
	Head
	ID string `json:"id"`
}

func (r *deployed) Of() string { return r.ID }

// A whole id names what is deployed of it, whatever else begins like it.
func TestFind(t *testing.T) {
	t.Parallel()
	f := Open[deployed](t.TempDir(), Words{"desk", "list", "stop"})
	instances := map[string]string{}
	for _, id := range []string{"@local/by/pc1", "@local/by/pc11", "@local/by/pc12", "@local/by/other"} {
		key, err := f.newKey(id)
		if err != nil {
			t.Fatal(err)
		}
		lock, err := atomicfile.NewHeldLock(f.At(key, lockFile))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := lock.Unlock(); err != nil {
				t.Error(err)
			}
		})
		instances[id] = Instance(id, key)
		if err := f.Write(key, deployed{Head{Instance: instances[id], State: Running}, id}); err != nil {
			t.Fatal(err)
		}
	}
	one := instances["@local/by/pc1"]
	for text, want := range map[string]string{
		"@local/by/pc1": one, "pc1": one, one: one, one[:len(one)-2]: one, "pc12": instances["@local/by/pc12"], "@local/by/o": instances["@local/by/other"],
	} {
		if got, err := f.Find(text); err != nil || got.Instance != want {
			t.Errorf("%s is %q: %v; want %q", text, got.Instance, err, want)
		}
	}
	if _, err := f.Find("@local/by/p"); err == nil || !strings.Contains(err.Error(), "is several deployments") {
		t.Errorf("the beginning of three: %v", err)
	}
	for _, text := range []string{"", "x"} {
		if _, err := f.Find(text); !errors.Is(err, ErrNotFound) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
