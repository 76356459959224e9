package sandboxtest

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// swap makes /race/here a folder and a link to /outside in turns, as fast as it can, until the file /race/stop is there.
const swap = `mkdir -p /outside/sub /race/real/sub; echo secret >/outside/secret; echo secret >/outside/sub/secret; echo keep >/outside/keep; cd /race
cat >swap.sh <<'X'
while [ ! -e stop ]; do mv real here 2>/dev/null; mv here real 2>/dev/null; ln -s /outside here; rm -f here; done
X
sh swap.sh >/dev/null 2>&1 & echo started`

// uploadRace: what is unpacked while a folder on its way becomes a link never lands where the link leads.
func uploadRace(t *testing.T, s *suite) {
	box := s.box(t)
	run(t, box, swap)
	var entries []any
	for i := range 40 {
		for _, name := range []string{"here/f%d", "here/sub/f%d", "here/secret", "here/sub/secret"} {
			if strings.Contains(name, "%") {
				name = fmt.Sprintf(name, i)
			}
			entries = append(entries, &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 4, Mode: 0o644}, "mine")
		}
		entries = append(entries, &tar.Header{Typeflag: tar.TypeDir, Name: "here/sub/", Mode: 0o700})
	}
	archive := pack(t, entries...).Bytes()
	refused, whole := 0, 0
	for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
		if err := box.Extract(t.Context(), "/race", strings.NewReader(string(archive))); err != nil {
			refused++
		} else {
			whole++
		}
	}
	got := run(t, box, "touch /race/stop; cd /outside; find . | sort; cat secret sub/secret; stat -c %a sub")
	if want := ".\n./keep\n./secret\n./sub\n./sub/secret\nsecret\nsecret\n755\n"; got != want {
		t.Errorf("the folder that the link led to: %q (%d refused, %d whole)", got, refused, whole)
	}
	if refused == 0 && whole == 0 {
		t.Error("nothing was tried")
	}
}

// downloadRace: what is packed while a folder becomes a link never holds what the link leads to.
func downloadRace(t *testing.T, s *suite) {
	box := s.box(t)
	run(t, box, swap)
	trees := 0
	for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); {
		r, err := box.Tree(t.Context(), "/race")
		if err != nil {
			continue
		}
		trees++
		for tr := tar.NewReader(r); ; {
			h, err := tr.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) && errors.Is(err, guest.ErrGone) {
					t.Fatal(err)
				}
				break // the end, or a fault of the box about what has gone
			}
			if strings.HasSuffix(h.Name, "secret") {
				t.Fatalf("the tree holds %s, which is outside it", h.Name)
			}
		}
		r.Close()
	}
	run(t, box, "touch /race/stop")
	if trees == 0 {
		t.Error("no tree was packed")
	}
}
