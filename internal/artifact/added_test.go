package artifact_test

import (
	"errors"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/ref"
)

// TestAdded: what is stored of a plugin's type is read again, and what can't be a file's place is refused.
func TestAdded(t *testing.T) {
	t.Parallel()
	d := artifact.NewAdded(artifact.Pin{ID: "@local/x", Version: 1}, "acme_table", map[string]any{"rows": 2}, []artifact.Bytes{
		{Path: "a/b", Digest: ref.DigestOf([]byte("b")), Size: 1, Mode: 0o755}, {Path: "c", Digest: ref.DigestOf([]byte("b")), Size: 1, Mode: 0o644},
	})
	got, err := artifact.Files(d.Type, d.Body(time.Unix(0, 0)))
	if err != nil || len(got) != 2 || got[0].Path != "a/b" || got[0].Mode != 0o755 || len(d.Objects) != 1 {
		t.Errorf("%v, %v, objects %v", got, err, d.Objects)
	}
	if _, err := artifact.Files("acme_table", []byte(`{"rows": 1}`)); !errors.Is(err, artifact.ErrNoFiles) {
		t.Errorf("a document without files: %v", err)
	}
	for _, bad := range [][]string{{"../x"}, {"/x"}, {""}, {"a", "a"}, {"a", "a/b"}, {"a//b"}} {
		if artifact.CheckAdded(bad) == nil {
			t.Errorf("%q are taken", bad)
		}
	}
}
