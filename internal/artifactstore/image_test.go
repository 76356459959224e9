package artifactstore

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/store"
)

// The digests are what the peer records for the same folders.
func TestContextDigests(t *testing.T) {
	files := map[string]string{"Dockerfile": "FROM scratch\n", "logs/deep/a.log": "", "nm/x/y": "", "keep/z": "", "keep/b.log": ""}
	for i, tc := range []struct {
		more map[string]string
		want string
	}{
		{map[string]string{".dockerignore": "**/*.log\nnm\n"}, "sha256:bcccd9dd5300995bd650a687a84eddd44abc985dbf7382d4803a915d4f2f88f5"},
		{map[string]string{".dockerignore": "*\n!keep/z\n!Dockerfile"}, "sha256:64296c74cac7c06f446ce21df1cc3db9f15a79ec71aa37cf13f2c20ea572979b"},
		{map[string]string{"only/__pycache__/x": ""}, "sha256:cc0743979479d3ce924c097f55494b3cfa962025e658db5d0f219647c2c32d4a"},
	} {
		dir := write(t, filepath.Join(t.TempDir(), "c"), files)
		write(t, dir, tc.more)
		l := inMemory()
		mustPut(t, l, Put{Type: artifact.DockerImage, ID: "@local/i", Paths: []string{dir}})
		d, err := l.store.Get(t.Context(), store.Artifact, "@local/i", 0)
		if err != nil {
			t.Fatal(err)
		}
		var doc struct {
			Sources string `json:"source_digest"`
			Name    string `json:"image_name"`
		}
		if err := json.Unmarshal(d.Body, &doc); err != nil {
			t.Fatal(err)
		}
		if doc.Sources != tc.want || doc.Name != "local/i-5488a71ef69c:"+tc.want[7:23] {
			t.Errorf("%d: %s, %s; want %s\n%s", i, doc.Sources, doc.Name, tc.want, fmt.Sprint(tree(t, mustGet(t, l, "@local/i", 0))))
		}
	}
}
