package artifact

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/ref"
)

var digest = ref.DigestOf([]byte("x"))

func TestFilesReadsWhatIsWritten(t *testing.T) {
	files := []Bytes{
		{Path: "a/b.sh", Digest: digest, Size: 1, Mode: 0o755},
		{Path: "c d.txt", Digest: digest, Size: 1, Mode: 0o600},
	}
	u := NewFileUniverse(Pin{"@local/u", 1}, files, func(id string) Pin { return Pin{id, 1} })
	got, err := Files(u[0].Type, u[0].Body(time.Now()))
	if err != nil || !reflect.DeepEqual(got, files) {
		t.Errorf("%+v, %v", got, err)
	}
	f := NewFile(Pin{"@local/f", 1}, files[0], "")
	got, err = Files(f.Type, f.Body(time.Now()))
	if err != nil || !reflect.DeepEqual(got, []Bytes{{Path: "b.sh", Digest: digest, Size: 1, Mode: 0o755}}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := Files(Skill, nil); !errors.Is(err, ErrNoFiles) {
		t.Errorf("skill: %v", err)
	}
}

func TestFilesRefusesWhatLeaves(t *testing.T) {
	for _, p := range []string{"", ".", "..", "../x", "/x", "a/../../x", "a//b", "a/"} {
		body := NewFileUniverse(Pin{"@local/u", 1}, []Bytes{{Path: p, Digest: digest}}, func(id string) Pin { return Pin{id, 1} })[0].Body(time.Now())
		if got, err := Files(FileUniverse, body); err == nil {
			t.Errorf("%q: %+v", p, got)
		}
	}
	for _, body := range []string{`{"filename":"a/b","digest":"` + string(digest) + `"}`, `{"filename":"a","digest":"sha256:00"}`, `{`, `{"filename":"a","size":-1}`} {
		if got, err := Files(File, []byte(body)); err == nil {
			t.Errorf("%s: %+v", body, got)
		}
	}
}

// FuzzFiles: whatever a document says, the files that are read from it stay where they are put.
func FuzzFiles(f *testing.F) {
	f.Add(`{"file_artifact_refs":{"a":{"digest":"` + string(digest) + `","size":1,"mode":420}}}`)
	f.Add(`{"filename":"a","digest":"` + string(digest) + `"}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, typ := range []string{File, FileUniverse} {
			got, err := Files(typ, []byte(body))
			if err != nil {
				continue
			}
			for _, b := range got {
				if !localPath(b.Path) || !b.Digest.Valid() || b.Mode&^0o777 != 0 {
					t.Errorf("%+v", b)
				}
			}
		}
	})
}
