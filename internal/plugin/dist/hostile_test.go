//go:build unix

package dist_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
)

// TestHostileMetadata: what a package can put beside its METADATA costs no memory and no time, moves no terminal's cursor, and hides no other package.
func TestHostileMetadata(t *testing.T) {
	site := t.TempDir()
	install(t, site, wheeltest.Acme("1.2.0"))
	header := func(name string) string { return "Name: " + name + "\nVersion: 1\n\n" }
	file := func(dir, name, text string) { write(t, filepath.Join(site, dir+"-1.dist-info", name), text) }
	big := func(dir, name string, size int64) {
		path := filepath.Join(site, dir+"-1.dist-info", name)
		write(t, path, "[agent_env.task_steps]\n")
		if err := os.Truncate(path, size); err != nil {
			t.Fatal(err)
		}
	}
	file("points", "METADATA", header("points"))
	big("points", "entry_points.txt", 50<<20)
	big("header", "METADATA", 50<<20)
	file("manifest", "METADATA", header("manifest"))
	file("manifest", "entry_points.txt", "[agent_env.exec]\nx = x\n")
	big("manifest", "agentenv_plugin.json", 50<<20)
	file("escape", "METADATA", header("escape"))
	file("escape", "entry_points.txt", "[agent_env.task_steps]\nx\u202e = m:\x1b[2K\n")
	file("unicode", "METADATA", header("агент"))
	file("version", "METADATA", "Name: version\nVersion: 1\x1b]0;x\x07\n\n")
	file("pipe", "x", "")
	if err := syscall.Mkfifo(filepath.Join(site, "pipe-1.dist-info", "METADATA"), 0o644); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"loop-1.dist-info": "loop-1.dist-info", "away-1.dist-info": "/etc", "device-1.dist-info": "/dev"} {
		if err := os.Symlink(target, filepath.Join(site, link)); err != nil {
			t.Fatal(err)
		}
	}
	file("zero", "x", "")
	if err := os.Symlink("/dev/zero", filepath.Join(site, "zero-1.dist-info", "METADATA")); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	all, bad := dist.Scan([]string{site})
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	told := map[string]string{}
	for _, p := range bad {
		told[p.Package] = p.Code + ": " + p.Reason
		if strings.ContainsAny(p.Package+p.Reason, "\x1b\x07\n\u202e") {
			t.Errorf("%q %q", p.Package, p.Reason)
		}
	}
	for name, want := range map[string]string{
		"points": "entry-points-unreadable: it is larger than 4 MB", "manifest": "manifest-unreadable: it is larger than 1 MB",
		"(unreadable metadata: header-1.dist-info)": "metadata-unreadable: ", "escape": "entry-points-unreadable: line 2 holds a character that can't be printed",
		"(unreadable metadata: unicode-1.dist-info)": "metadata-unreadable: its name ", "(unreadable metadata: version-1.dist-info)": "metadata-unreadable: ",
		"(unreadable metadata: pipe-1.dist-info)": "metadata-unreadable: it is no file", "(unreadable metadata: zero-1.dist-info)": "metadata-unreadable: it is no file",
		"(unreadable metadata: loop-1.dist-info)": "metadata-unreadable: ", "(unreadable metadata: away-1.dist-info)": "metadata-unreadable: ",
	} {
		if !strings.HasPrefix(told[name], want) || told[name] == "" {
			t.Errorf("%s: %q, want %q", name, told[name], want)
		}
	}
	found := false
	for _, d := range all {
		found = found || d.Name == "agentenv-e2e-acme" && len(d.Entries) == 1
	}
	if !found {
		t.Errorf("what is fine is hidden: %v", all)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 32<<20 || took > 5*time.Second {
		t.Errorf("it takes %d MB and %v", grown>>20, took)
	}
}
