package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/treestore"
)

// opaque tells whether an overlay shows nothing below a folder.
func opaque(path string) bool {
	b := make([]byte, 1)
	for _, name := range []string{"user.overlay.opaque", "trusted.overlay.opaque"} {
		if n, err := unix.Getxattr(path, name, b); err == nil && n == 1 {
			return true
		}
	}
	return false
}

func countPrefix(es []treestore.Entry, prefix string) int {
	n := 0
	for _, e := range es {
		if strings.HasPrefix(e.Key, prefix) {
			n++
		}
	}
	return n
}

// old makes an image one that was used that many minutes ago.
func old(t testing.TB, s *Store, key string, minutes int) {
	t.Helper()
	at := time.Now().Add(-time.Duration(minutes) * time.Minute)
	if err := os.Chtimes(filepath.Join(s.o.Dir, "trees", ".locks", key), at, at); err != nil {
		t.Fatal(err)
	}
}
