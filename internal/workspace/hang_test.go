package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Row 99: a bundle that doesn't arrive in time makes no workspace, and what git had started is gone.
func TestRow99Hanging(t *testing.T) {
	t.Parallel()
	m, dir := maker(t)
	bin, mark := filepath.Join(dir, "bin"), filepath.Join(dir, "pids")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "git"), []byte("#!/bin/sh\n/bin/sleep 300 & echo $$ $! >> "+mark+"; wait\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	m.Limit = 500 * time.Millisecond
	open := m.Store
	m.Store = func(f folder.Folder) *git.Store {
		return git.Open(git.Options{
			Dir: filepath.Join(dir, "state", "git_plugins"), Folder: f, Policy: git.Policy{Files: true},
			Fetch: git.FetchOptions{Home: dir, Env: func(name string) (string, bool) { return bin, name == "PATH" }},
		})
	}
	begin := time.Now()
	_, err := m.Create(t.Context(), Order{Name: "desk", Root: filepath.Join(dir, "desk"), Bundle: "https://example.org/o/set"})
	if err == nil || !strings.Contains(err.Error(), "didn't arrive within 500ms; no workspace was made") || time.Since(begin) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
	if got := left(t, dir); strings.Contains(got, "desk") || strings.Contains(got, stagingPrefix) {
		t.Errorf("left: %s", got)
	}
	b, err := os.ReadFile(mark)
	if err != nil {
		t.Fatal(err)
	}
	for pid := range strings.FieldsSeq(string(b)) {
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z ") {
			t.Errorf("it is there: %s", stat)
		}
	}
	m.Store, m.Limit = open, 0
	if _, err := m.Create(t.Context(), Order{Name: "desk", Root: filepath.Join(dir, "desk")}); err != nil {
		t.Errorf("the name isn't free: %v", err)
	}
}
