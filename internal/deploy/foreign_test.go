package deploy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// heap holds one object.
type heap struct {
	store.Objects
	b []byte
}

type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

func (h heap) Open(context.Context, ref.Digest) (io.ReadSeekCloser, int64, error) {
	return inMemory{bytes.NewReader(h.b)}, int64(len(h.b)), nil
}

// TestLargeDataGoesByFile: a server outside of sandboxes that reads files of this machine is handed data of any size as one, which its user alone may read and
// which goes afterwards; others are handed bytes, and none that are too many.
func TestLargeDataGoesByFile(t *testing.T) {
	big := heap{b: make([]byte, maxInline+1)}
	p := envstore.Payload{File: artifact.Bytes{Path: "words.json", Digest: ref.DigestOf(big.b), Size: int64(len(big.b))}, Media: "application/json"}
	s := &Server{away: &ForeignServer{ReadsFiles: true}}
	part, done, err := s.handed(t.Context(), big, p, "words.json")
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(part.File.URI)
	if err != nil || u.Scheme != "file" || part.File.Name != "words.json" || part.File.MimeType != "application/json" {
		t.Fatalf("%+v, %v", part.File, err)
	}
	if info, err := os.Stat(u.Path); err != nil || info.Size() != p.File.Size || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	done()
	if _, err := os.Stat(filepath.Dir(u.Path)); !os.IsNotExist(err) {
		t.Errorf("its folder stays: %v", err)
	}
	_, done, err = (&Server{away: &ForeignServer{}}).handed(t.Context(), big, p, "words.json")
	done()
	if err == nil || !strings.Contains(err.Error(), "is handed at most 67108864") {
		t.Errorf("inline: %v", err)
	}
	small := heap{b: []byte("{}")}
	p.File.Digest, p.File.Size = ref.DigestOf(small.b), 2
	part, done, err = (&Server{away: &ForeignServer{}}).handed(t.Context(), small, p, "words.json")
	done()
	if b, cerr := part.File.Content(); err != nil || cerr != nil || string(b) != "{}" {
		t.Errorf("%q, %v, %v", b, err, cerr)
	}
	p.File.Digest = ref.DigestOf([]byte("other"))
	if _, _, err := s.handed(t.Context(), small, p, "words.json"); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("damaged bytes: %v", err)
	}
}
