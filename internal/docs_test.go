package internal_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// papers are the texts whose named paths and links must exist.
func papers(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("../docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatal("no docs found", err)
	}
	all := []string{"README.md", "CONTRIBUTING.md", "AGENTS.md"}
	for _, name := range docs {
		all = append(all, "docs/"+filepath.Base(name))
	}
	return all
}

var (
	inline = regexp.MustCompile("`([^`\n]+)`")
	link   = regexp.MustCompile(`\]\(([^)#\s]+)(#[^)]*)?\)`)
	// aPath is what looks like a path of this repository: it begins with one of its folders.
	aPath = regexp.MustCompile(`^(cmd|internal|examples|docs|test|bench|tools|changelog|sdk|\.ci)(/[A-Za-z0-9_.*-]+)*/?$`)
)

// TestNamedPaths: a text that names a path of the repository is right about it.
func TestNamedPaths(t *testing.T) {
	for _, paper := range papers(t) {
		b, err := os.ReadFile(filepath.Join("..", paper))
		if err != nil {
			t.Error(err)
			continue
		}
		text, found := withoutFences(string(b)), 0
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			name := strings.TrimPrefix(m[1], "./")
			if !aPath.MatchString(name) {
				continue
			}
			found++
			if hits, err := filepath.Glob(filepath.Join("..", name)); err != nil || len(hits) == 0 {
				t.Errorf("%s names %s, which doesn't exist", paper, m[1])
			}
		}
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			found++
			if _, err := os.Stat(filepath.Join("..", filepath.Dir(paper), m[1])); err != nil {
				t.Errorf("%s links to %s, which doesn't exist", paper, m[1])
			}
		}
		if found == 0 && (paper == "AGENTS.md" || paper == "docs/layout.md" || paper == "README.md") {
			t.Errorf("%s names no path: is the pattern still right?", paper)
		}
	}
}

// withoutFences drops code blocks: they show sessions, not paths.
func withoutFences(s string) string {
	var out []string
	fenced := false
	for line := range strings.Lines(s) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
			continue
		}
		if !fenced {
			out = append(out, line)
		}
	}
	return strings.Join(out, "")
}

// TestLayersAreDocumented: the table of levels in the texts is the one that the layer test enforces.
func TestLayersAreDocumented(t *testing.T) {
	b, err := os.ReadFile(filepath.Join("..", "docs", "layout.md"))
	if err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() || path == "." || strings.Contains(path, "testdata") {
			return err
		}
		if files, _ := filepath.Glob(filepath.Join(path, "*.go")); len(files) == 0 {
			return nil
		}
		name := filepath.ToSlash(path)
		if strings.Contains(string(b), "`internal/"+name+"`") || strings.Contains(string(b), "`internal/"+filepath.ToSlash(filepath.Dir(path))+"/*`") {
			return nil
		}
		t.Errorf("docs/layout.md doesn't tell what internal/%s is", name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestPackagesAreDocumented: every package says what it is before a reader has to guess.
func TestPackagesAreDocumented(t *testing.T) {
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		if name := d.Name(); name == ".git" || name == "testdata" || name == "bin" || name == "tools" {
			return fs.SkipDir
		}
		files, err := filepath.Glob(filepath.Join(path, "*.go"))
		if err != nil || len(files) == 0 {
			return err
		}
		for _, f := range files {
			src, err := os.ReadFile(f)
			if err != nil {
				return err
			}
			head, _, ok := strings.Cut("\n"+string(src), "\npackage ")
			if ok && strings.HasPrefix(lastLine(head), "//") && !strings.HasPrefix(lastLine(head), "//go:") {
				return nil
			}
		}
		t.Errorf("%s has no package comment", path)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\r")
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// TestNothingBuiltIsKept: the repository holds sources. A program that go build left in a checkout is 25 MB in every clone for ever.
func TestNothingBuiltIsKept(t *testing.T) {
	const limit = 256 << 10
	out, err := exec.CommandContext(t.Context(), "git", "-C", "..", "ls-files", "-z").Output()
	if err != nil {
		t.Skip("no checkout of git: ", err)
	}
	names := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	for _, name := range names {
		info, err := os.Lstat(filepath.Join("..", name))
		if errors.Is(err, fs.ErrNotExist) { // removed and not yet committed
			continue
		}
		if err != nil {
			t.Error(err)
			continue
		}
		if info.Size() > limit {
			t.Errorf("%s has %d bytes, more than %d: is it built? (git rm --cached %[1]s)", name, info.Size(), limit)
		}
	}
	if len(names) < 100 {
		t.Errorf("git knows %d files only", len(names))
	}
}
