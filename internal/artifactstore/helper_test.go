package artifactstore

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
	"agentenv.internal/agentenv/internal/store/sqlite"
)

// library is a Library on a store in a folder of its own.
func library(t testing.TB) (*Library, string) {
	t.Helper()
	root := filepath.Join(t.TempDir(), "store")
	return reopen(t, root), root
}

func reopen(t testing.TB, root string) *Library {
	t.Helper()
	s, err := sqlite.Open(root, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return New(s)
}

func inMemory() *Library { return New(mem.New(mem.Options{})) }

// write makes files: a name that ends with "/" is a folder, a text that begins with "-> " a link, one with "x " an executable file.
func write(t testing.TB, dir string, files map[string]string) string {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		text := files[name]
		p := filepath.Join(dir, name)
		parent := filepath.Dir(p)
		if strings.HasSuffix(name, "/") {
			parent = p
		}
		if err := os.MkdirAll(parent, 0o755); err != nil {
			t.Fatal(err)
		}
		target, isLink := strings.CutPrefix(text, "-> ")
		var err error
		switch mode := fs.FileMode(0o644); {
		case strings.HasSuffix(name, "/"):
		case isLink:
			err = os.Symlink(target, p)
		default:
			if body, exe := strings.CutPrefix(text, "x "); exe {
				text, mode = body, 0o755
			}
			if err = os.WriteFile(p, []byte(text), mode); err == nil {
				err = os.Chmod(p, mode)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tree is everything below a folder: "755 name" for folders that hold nothing, "644 name=content", "name->target".
func tree(t testing.TB, dir string) []string {
	t.Helper()
	out := []string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fi, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.Type()&fs.ModeSymlink != 0:
			target, err := os.Readlink(p)
			out = append(out, rel+"->"+target)
			return err
		case d.IsDir():
			below, err := os.ReadDir(p)
			if len(below) == 0 {
				out = append(out, fmt.Sprintf("%o %s/", fi.Mode().Perm(), rel))
			}
			return err
		}
		b, err := os.ReadFile(p)
		if len(b) > 100 {
			b = fmt.Appendf(nil, "%d bytes from %x", len(b), b[:8])
		}
		out = append(out, fmt.Sprintf("%o %s=%s", fi.Mode().Perm(), rel, b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", what, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func mustPut(t testing.TB, l *Library, p Put) Stored {
	t.Helper()
	out, err := l.Put(t.Context(), p)
	if err != nil {
		t.Fatalf("put %s %s: %v", p.Type, p.ID, err)
	}
	return out
}

func mustGet(t testing.TB, l *Library, id string, version int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "out")
	if _, err := l.Get(t.Context(), id, version, Target{Dir: dir}); err != nil {
		t.Fatalf("get %s: %v", id, err)
	}
	return dir
}

// all is every artifact document of a store: its body without what differs between two writes, by "id version".
func all(t testing.TB, s store.Docs) map[string]string {
	t.Helper()
	out := map[string]string{}
	q := store.Query{Kind: store.Artifact, AllVersions: true}
	for {
		p, err := s.List(context.Background(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range p.Docs {
			var m map[string]any
			if err := json.Unmarshal(d.Body, &m); err != nil {
				t.Fatal(err)
			}
			delete(m, "created_at_utc")
			b, err := json.Marshal([]any{m, d.Type, d.Objects})
			if err != nil {
				t.Fatal(err)
			}
			out[fmt.Sprintf("%s v%d", d.ID, d.Version)] = string(b)
		}
		if p.Next == "" {
			return out
		}
		q.After = p.Next
	}
}

// problems is an error's text; it must be one for people.
func problems(t testing.TB, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	if _, ok := diag.From(err); !ok {
		t.Errorf("this is no refusal: %v", err)
	}
	return err.Error()
}
