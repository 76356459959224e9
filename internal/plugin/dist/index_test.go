package dist

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/plugin/dist/wheeltest"
)

// generation is a folder like a generation's with n plugins of 20 requirements each, and what a scan finds in it.
func generation(t testing.TB, n int) (root string, all []Distribution, bad []Problem) {
	t.Helper()
	root = t.TempDir()
	site := filepath.Join(root, "lib", "python3.12", "site-packages")
	for i := range n {
		w := wheeltest.Acme("1.2.0")
		w.Name = fmt.Sprintf("agentenv-many-%03d", i)
		w.Requires = append(slices.Repeat([]string{"httpx>=0.27; python_version >= '3.9' and extra == 'img'"}, 19), "agentenv-framework>=0.9")
		if err := w.Install(site, filepath.Join(root, "bin")); err != nil {
			t.Fatal(err)
		}
	}
	hostile := filepath.Join(site, "half-1.dist-info")
	if err := os.MkdirAll(hostile, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hostile, "METADATA"), []byte("Name: half\nVersion: 1\nRequires-Dist: a\\\tb; os_name == '\\n'\n\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(hostile, "entry_points.txt"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	all, bad = Scan(sitePackages(root))
	return root, all, bad
}

// TestIndex: an index says what a scan finds, and is no answer any more once somebody changed the packages, or it is not whole.
func TestIndex(t *testing.T) {
	root, all, bad := generation(t, 3)
	if len(all) != 4 || len(bad) != 1 {
		t.Fatalf("%d found, %v", len(all), bad)
	}
	if _, _, ok := readIndex(root); ok {
		t.Error("there is an index before one was written")
	}
	if err := Index(root); err != nil {
		t.Fatal(err)
	}
	gotAll, gotBad, ok := readIndex(root)
	if !ok || !reflect.DeepEqual(gotAll, all) || !reflect.DeepEqual(gotBad, bad) {
		t.Errorf("read %v: %v %v\nwant %v %v", ok, gotAll, gotBad, all, bad)
	}
	path := filepath.Join(root, indexFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := range len(whole) { // whatever is cut off, and wherever a byte is another
		if _, ok := decodeIndex(root, string(whole[:n])); ok {
			t.Errorf("the first %d bytes of %d are taken for a whole index", n, len(whole))
		}
	}
	for _, text := range []string{
		"", "\n", indexFormat + "\n.\t1\n",
		strings.Replace(string(whole), "distributions 1", "distributions 2", 1),
		strings.Replace(string(whole), "lib/python3.12", "../python3.12", 1),
		strings.Replace(string(whole), "agentenv-many-000\t", "agentenv-many-009\t", 1),
		strings.Replace(string(whole), "D\tagentenv-many-000", "Q\tagentenv-many-000", 1),
		string(whole) + "D\tx\t1\ty\n",
	} {
		if _, ok := decodeIndex(root, text); ok {
			t.Errorf("taken for an index: %.80q", text)
		}
	}
	if err := wheeltest.NotPlugin().Install(filepath.Join(root, "lib", "python3.12", "site-packages"), filepath.Join(root, "bin")); err != nil {
		t.Fatal(err)
	}
	if _, _, ok := readIndex(root); ok {
		t.Error("the index still counts after a package was put beside the others")
	}
	e := newEnvironment(Options{})
	e.root = root
	if found, _ := e.Distributions(); len(found) != 5 {
		t.Errorf("%d distributions are found, not 5", len(found))
	}
}

// TestIndexCost holds the budget of commands that look for a plugin among 200 distributions.
func TestIndexCost(t *testing.T) {
	root, _, _ := generation(t, 200)
	least := func() time.Duration {
		best := time.Hour
		for range 10 {
			e := newEnvironment(Options{})
			e.root = root
			start := time.Now()
			all, _ := e.Distributions()
			best = min(best, time.Since(start))
			if len(all) != 201 {
				t.Fatalf("%d distributions", len(all))
			}
		}
		return best
	}
	scanned := least()
	if err := Index(root); err != nil {
		t.Fatal(err)
	}
	read := least()
	t.Logf("200 distributions with 20 requirements each: %v by a scan, %v by the index", scanned, read)
	if read > 5*time.Millisecond {
		t.Errorf("200 distributions take %v", read)
	}
}

func FuzzIndex(f *testing.F) {
	root, all, bad := "/generation", []Distribution{{Name: "A.b", Version: "1", Dir: "/generation/lib/A", Requires: []string{"x\\\t"}, Entries: []EntryPoint{{"g", "n", "v"}}}}, []Problem{{"p", "c", "/generation/x", "r\n"}}
	f.Add(string(encodeIndex(root, []string{"/generation/lib"}, []int64{-1}, all, bad)))
	f.Fuzz(func(t *testing.T, text string) {
		x, ok := decodeIndex(root, text)
		if !ok {
			return
		}
		again, ok := decodeIndex(root, string(encodeIndex(root, x.sites, x.changed, x.all, x.bad)))
		if !ok || !reflect.DeepEqual(again, x) {
			t.Errorf("%q reads as %v and, written, as %v", text, x, again)
		}
	})
}

func BenchmarkIndex(b *testing.B) {
	root, _, _ := generation(b, 200)
	if err := Index(root); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, ok := readIndex(root); !ok {
			b.Fatal("no index")
		}
	}
}
