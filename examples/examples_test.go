package examples_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"agentenv.internal/agentenv/examples"
)

func TestFS(t *testing.T) {
	if err := fstest.TestFS(examples.FS(), "hello/tasks/hello.json", "wordcount/artifacts/texts/poems/rain.txt"); err != nil {
		t.Fatal(err)
	}
}

func TestModes(t *testing.T) {
	want := map[string]fs.FileMode{
		"hello/artifacts/greeting/check.sh":  0o755,
		"hello/artifacts/greeting/hello.txt": 0o644,
	}
	for name, mode := range want {
		i, err := fs.Stat(examples.FS(), name)
		if err != nil {
			t.Fatal(err)
		}
		if i.Mode() != mode {
			t.Errorf("%s: mode %v, want %v", name, i.Mode(), mode)
		}
	}
	err := fs.WalkDir(examples.FS(), "hello", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := d.Info()
		if err == nil && want[path] != 0 && i.Mode() != want[path] {
			t.Errorf("%s: the folder lists mode %v, want %v", path, i.Mode(), want[path])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadme: the first line of a README is the description that lists show.
func TestReadme(t *testing.T) {
	bundles, err := fs.ReadDir(examples.FS(), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range bundles {
		text, err := fs.ReadFile(examples.FS(), b.Name()+"/README.md")
		if err != nil {
			t.Error(err)
			continue
		}
		first, rest, _ := strings.Cut(string(text), "\n")
		if !strings.HasPrefix(first, "# ") || !strings.HasSuffix(first, ".") || !strings.Contains(rest, "agent-env run "+b.Name()) {
			t.Errorf("%s/README.md: wants one sentence on its first line and the command that runs it", b.Name())
		}
	}
}
