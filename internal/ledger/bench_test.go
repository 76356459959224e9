package ledger

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/sqlite"
)

// universeFolder is a bundle whose one artifact is a universe of n folders with a small file each.
func universeFolder(tb testing.TB, typ string, n int) string {
	tb.Helper()
	dir := filepath.Join(tb.TempDir(), "b")
	must := func(err error) {
		if err != nil {
			tb.Fatal(err)
		}
	}
	for i := range n {
		at := filepath.Join(dir, "artifacts/w", fmt.Sprintf("env%04d", i))
		must(os.MkdirAll(at, 0o755))
		must(os.WriteFile(filepath.Join(at, "rows.json"), fmt.Appendf(nil, `{"rows":[%d]}`, i), 0o644))
	}
	must(os.WriteFile(filepath.Join(dir, "artifacts/w/artifact.toml"), []byte("type = \""+typ+"\"\n"), 0o644))
	must(os.MkdirAll(filepath.Join(dir, "tasks"), 0o755))
	must(os.WriteFile(filepath.Join(dir, "tasks/t.json"), []byte(`[{"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm"},
		{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"w"}]`), 0o644))
	return dir
}

// walk is the whole way of a run from a folder to its ledger.
func walk(tb testing.TB, dir string, st store.Store, dry bool) Result {
	tb.Helper()
	src, err := bundle.OpenFolder(dir, filepath.Dir(dir))
	if err != nil {
		tb.Fatal(err)
	}
	defer src.Close()
	b, l := bundle.Parse(src, bundle.Options{Kinds: step.Kinds()})
	if err := l.Err(); err != nil {
		tb.Fatal(err)
	}
	if err := b.Resolve().Err(); err != nil {
		tb.Fatal(err)
	}
	p, l, err := b.Plan(tb.Context(), View(st), bundle.Selection{})
	if err != nil {
		tb.Fatal(err)
	}
	if err := l.Err(); err != nil {
		tb.Fatal(err)
	}
	r, err := Write(tb.Context(), st, p, Options{DryRun: dry})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

func BenchmarkUniverse(b *testing.B) {
	for _, typ := range []string{"environment_universe", "file_artifact_universe"} {
		dir := universeFolder(b, typ, 1500)
		b.Run(typ+"/write", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				st, err := sqlite.Open(b.TempDir(), sqlite.Options{})
				if err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
				if r := walk(b, dir, st, false); r.Written() != 2 {
					b.Fatal(r.Lines)
				}
				b.StopTimer()
				_ = st.Close()
				b.StartTimer()
			}
		})
		st, err := sqlite.Open(b.TempDir(), sqlite.Options{})
		if err != nil {
			b.Fatal(err)
		}
		walk(b, dir, st, false)
		b.Run(typ+"/again", func(b *testing.B) {
			for b.Loop() {
				if r := walk(b, dir, st, true); r.Written() != 0 {
					b.Fatal(r.Lines)
				}
			}
		})
		_ = st.Close()
	}
}
