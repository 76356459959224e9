package git

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"agentenv.internal/agentenv/internal/plugin/git/gittest"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// BenchmarkList lists 200 git plugins.
func BenchmarkList(b *testing.B) {
	root := b.TempDir()
	if err := os.Mkdir(filepath.Join(root, folder.Dir), 0o700); err != nil {
		b.Fatal(err)
	}
	r := gittest.Plugin(b, "one")
	s := Open(Options{Dir: filepath.Join(root, "state"), Folder: folder.At(root), Policy: Policy{Files: true}, Fetch: FetchOptions{Env: os.LookupEnv, Home: root}})
	if _, err := install(b.Context(), s, false, Want{URL: r.URL()}); err != nil {
		b.Fatal(err)
	}
	err := s.Change(b.Context(), func(_ *folder.Tx, l *Lock) error {
		one := *l.Plugin("one")
		for i := range 200 {
			one.ID = fmt.Sprintf("p%03d", i)
			l.Put(one)
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := s.List(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
