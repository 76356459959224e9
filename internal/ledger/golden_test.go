package ledger

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

// goldenFolder copies the bundle of the goldens directly under a new home folder, with the modes that its digests know.
func goldenFolder(t *testing.T) (dir, home string) {
	t.Helper()
	home = t.TempDir()
	dir = filepath.Join(home, "b")
	if err := os.CopyFS(dir, os.DirFS("testdata/b")); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		mode := fs.FileMode(0o644)
		if d.IsDir() || rel == "artifacts/c/run.sh" || rel == "envs/mail/server" {
			mode = 0o755
		}
		return os.Chmod(path, mode)
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, home
}

// planOf runs the stages before a write; problems fail the test.
func planOf(t *testing.T, dir, home string, st store.Docs, sel bundle.Selection) *bundle.Plan {
	t.Helper()
	src, err := bundle.OpenFolder(dir, home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = src.Close() })
	b, l := bundle.Parse(src, bundle.Options{Kinds: step.Kinds()})
	if err := l.Err(); err != nil {
		t.Fatalf("parse: %v", err)
	}
	if err := b.Resolve().Err(); err != nil {
		t.Fatalf("resolve: %v", err)
	}
	p, l, err := b.Plan(t.Context(), View(st), sel)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Err(); err != nil {
		t.Fatalf("plan: %v", err)
	}
	return p
}

type golden struct {
	Digest  ref.Digest `json:"digest"`
	ID      string     `json:"id"`
	Inputs  inputs     `json:"inputs"`
	Store   string     `json:"store"`
	Version int        `json:"version"`
}

func TestGoldens(t *testing.T) {
	var goldens []golden
	b, err := os.ReadFile("testdata/goldens.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &goldens); err != nil {
		t.Fatal(err)
	}
	dir, home := goldenFolder(t)
	st := mem.New(mem.Options{})
	p := planOf(t, dir, home, st, bundle.Selection{})
	if _, err := Write(t.Context(), st, p, Options{}); err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, g := range goldens {
		name := g.Store + " " + g.ID
		order = append(order, name)
		d, err := st.Get(t.Context(), store.Ledger, name, 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var r row
		if err := json.Unmarshal(d.Body, &r); err != nil {
			t.Fatal(err)
		}
		if r.Digest != g.Digest || r.Version != g.Version || d.Version != g.Version {
			t.Errorf("%s: digest %s of %+v,\nwant %s of %+v", name, r.Digest, r.Inputs, g.Digest, g.Inputs)
		}
	}
	var got []string
	for _, w := range p.Writes {
		got = append(got, string(w.Kind)+" "+w.ID)
	}
	if strings.Join(got, "\n") != strings.Join(order, "\n") {
		t.Errorf("write order\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(order, "\n"))
	}
}
