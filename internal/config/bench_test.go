package config

import (
	"os"
	"path/filepath"
	"testing"
)

// Every command loads the configuration before anything else.
func BenchmarkLoad(b *testing.B) {
	dir := b.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ".agentenv"), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, Name), []byte(hostile), 0o600); err != nil {
		b.Fatal(err)
	}
	o := Options{Dir: dir, Env: func(name string) (string, bool) { return dir, name == "HOME" }}
	b.ReportAllocs()
	for b.Loop() {
		if _, l := Load(o); l.HasErrors() {
			b.Fatal(l)
		}
	}
}
