package dist_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/dist"
	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
)

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func install(t testing.TB, site string, wheels ...wheeltest.Wheel) {
	t.Helper()
	for _, w := range wheels {
		if err := w.Install(site, filepath.Join(site, "bin")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestScan finds what is installed, first folder first, and lets nothing that is broken hide the rest.
func TestScan(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	acme := wheeltest.Acme("1.2.0")
	acme.Requires = []string{"httpx>=0.27", "pillow>=10; extra == 'img'"}
	install(t, first, acme, wheeltest.NotPlugin())
	install(t, second, wheeltest.Acme("9.0"), wheeltest.Bundled())
	write(t, filepath.Join(first, "no_name-1.dist-info", "METADATA"), "Metadata-Version: 2.1\n\n")
	write(t, filepath.Join(first, "hostile-1.dist-info", "METADATA"), "Name: evil\x1b[2K\nVersion: 1\n\n")
	if err := os.Mkdir(filepath.Join(first, "half-1.dist-info"), 0o755); err != nil { // an installer was killed here
		t.Fatal(err)
	}
	write(t, filepath.Join(first, "points-1.dist-info", "METADATA"), "Name: points\nVersion: 1\n\n")
	write(t, filepath.Join(first, "points-1.dist-info", "entry_points.txt"), "name = before:section\n")
	write(t, filepath.Join(first, "old.egg-info", "PKG-INFO"), "Metadata-Version: 1.1\nName: Old.Thing\nVersion: 2\n")
	write(t, filepath.Join(first, "old.egg-info", "requires.txt"), "a>1\n\n[img]\nb\n\n[img:os_name == 'nt']\nc\n\n[:os_name == 'nt']\nd\n")
	write(t, filepath.Join(first, "single.egg-info"), "Name: single\nVersion: 3\n")

	all, bad := dist.Scan([]string{first, filepath.Join(first, "missing"), second})
	var got []string
	for _, d := range all {
		got = append(got, d.Name+" "+d.Version)
	}
	want := []string{"agentenv-e2e-acme 1.2.0", "agentenv-e2e-bundled 1.0.0", "not-plugin 1.0", "Old.Thing 2", "points 1", "single 3"}
	if !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	if e := all[0].Entries; len(e) != 1 || e[0] != (dist.EntryPoint{Group: wheeltest.Steps, Name: "acme_check", Value: "agentenv_e2e_acme:AcmeCheck"}) {
		t.Errorf("entry points %v", e)
	}
	if !slices.Equal(all[0].Requires, acme.Requires) {
		t.Errorf("requires %q", all[0].Requires)
	}
	if r := all[3].Requires; !slices.Equal(r, []string{"a>1", `b ; extra == "img"`, `c ; (os_name == 'nt') and extra == "img"`, "d ; os_name == 'nt'"}) {
		t.Errorf("requires.txt reads as %q", r)
	}
	var told []string
	for _, p := range bad {
		told = append(told, p.Package+": "+p.Code)
	}
	slices.Sort(told)
	wantBad := []string{
		"(unreadable metadata: half-1.dist-info): metadata-unreadable", "(unreadable metadata: hostile-1.dist-info): metadata-unreadable",
		"(unreadable metadata: no_name-1.dist-info): metadata-unreadable", "points: entry-points-unreadable",
	}
	if !slices.Equal(told, wantBad) {
		t.Errorf("problems %q, want %q", told, wantBad)
	}
}

// TestScanCost holds the budget of a command that uses no plugin: 200 installed distributions.
func TestScanCost(t *testing.T) {
	site := many(t, 200)
	best := time.Hour
	for range 10 {
		start := time.Now()
		all, bad := dist.Scan([]string{site})
		best = min(best, time.Since(start))
		if len(all) != 200 || len(bad) != 0 {
			t.Fatalf("%d found, %v", len(all), bad)
		}
	}
	t.Logf("200 distributions in %v", best)
	if best > 20*time.Millisecond { // the budget is 5 ms on a quiet machine (BenchmarkScan)
		t.Errorf("200 distributions take %v", best)
	}
}

func many(t testing.TB, n int) string {
	site := t.TempDir()
	for i := range n {
		w := wheeltest.Acme("1.2.0")
		w.Name = fmt.Sprintf("agentenv-many-%03d", i)
		w.Requires = slices.Repeat([]string{"httpx>=0.27; python_version >= '3.9' and extra == 'img'"}, 20)
		install(t, site, w)
		meta := filepath.Join(site, w.DistInfo(), "METADATA")
		b, err := os.ReadFile(meta)
		if err != nil {
			t.Fatal(err)
		}
		write(t, meta, string(b)+strings.Repeat("A long description that nobody here reads.\n", 500))
	}
	return site
}

func BenchmarkScan(b *testing.B) {
	site := many(b, 200)
	for b.Loop() {
		dist.Scan([]string{site})
	}
}
