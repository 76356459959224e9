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
	more := []Bytes{{Path: "a", Folder: true}, {Path: "b/l", Link: "../c/./d"}, {Path: "c/x", Digest: digest, Size: 1}, {Path: "l", Link: "nowhere"}}
	u = NewFileUniverse(Pin{"@local/u", 1}, more, func(id string) Pin { return Pin{id, 1} })
	if len(u) != 2 || u[1].Type != File {
		t.Errorf("%d documents of one file, two links and a folder", len(u))
	}
	got, err = Files(u[0].Type, u[0].Body(time.Now()))
	if err != nil || !reflect.DeepEqual(got, more) { // a mode of 0 too
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
	for link, target := range map[string]string{"l": "/x", "a/l": "../../x", "m": "", "n": "a/../b", "..": "x", "o": "x\x00", "p": ".."} {
		u := NewFileUniverse(Pin{"@local/u", 1}, nil, nil)
		u[0].Fields["links"] = map[string]any{link: target}
		if got, err := Files(FileUniverse, u[0].Body(time.Now())); err == nil {
			t.Errorf("link %q -> %q: %+v", link, target, got)
		}
	}
	for _, files := range [][]Bytes{
		{{Path: "a", Link: "b"}, {Path: "a/b", Digest: digest}},
		{{Path: "a", Digest: digest}, {Path: "a/b", Digest: digest}},
		{{Path: "a", Folder: true}, {Path: "a/b/c", Link: "x"}},
		{{Path: "a", Folder: true}, {Path: "a", Link: "x"}},
	} {
		body := NewFileUniverse(Pin{"@local/u", 1}, files, func(id string) Pin { return Pin{id, 1} })[0].Body(time.Now())
		if got, err := Files(FileUniverse, body); err == nil {
			t.Errorf("%+v", got)
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
	f.Add(`{"links":{"a":"b","c/d":"../e"},"folders":["f"]}`)
	f.Add(`{"filename":"a","digest":"` + string(digest) + `"}`)
	f.Fuzz(func(t *testing.T, body string) {
		for _, typ := range []string{File, FileUniverse} {
			got, err := Files(typ, []byte(body))
			if err != nil {
				continue
			}
			for _, b := range got {
				if !localPath(b.Path) || b.plain() && !b.Digest.Valid() || b.Mode&^0o777 != 0 || b.Link != "" && !LinkStays(b.Path, b.Link) {
					t.Errorf("%+v", b)
				}
			}
		}
	})
}

func TestNeeds(t *testing.T) {
	pin := func(id string) Pin { return Pin{id, 2} }
	files := []Bytes{{Path: "crm/d", Digest: digest}, {Path: "metadata/k/m", Digest: digest}}
	for _, tc := range []struct {
		d    Document
		want []Need
	}{
		{NewFile(pin("f"), files[0], ""), nil},
		{NewImage(pin("i"), "Dockerfile", "", files), nil},
		{NewEnvironment(pin("e"), "mail", Pin{"f", 3}), []Need{{Pin{"f", 3}, "file"}}},
		{NewUniverse(pin("w"), files, []Pin{{"e", 4}}, pin)[0], []Need{
			{Pin{"w__crm", 2}, "environment"}, {Pin{"e", 4}, "environment"}, {Pin{"w__metadata__k", 2}, "metadata/k"},
		}},
		{NewFileUniverse(pin("u"), files, pin)[0], []Need{
			{Pin{ref.FileID("u", "crm/d"), 2}, "crm/d"}, {Pin{ref.FileID("u", "metadata/k/m"), 2}, "metadata/k/m"},
		}},
		{NewFileUniverseOf(pin("u"), []Member{{files[0], Pin{"f", 5}}}), []Need{{Pin{"f", 5}, "crm/d"}}},
		{NewSkill(pin("s"), SkillFront{}, files, pin)[0], []Need{{Pin{"s__files", 2}, "files"}}},
		{NewCLI(pin("c"), "c", "d", files, pin)[0], []Need{{Pin{"c__files", 2}, "files"}}},
	} {
		got, err := Needs(tc.d.Type, tc.d.Body(time.Now()))
		if err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, %v; want %+v", tc.d.Type, got, err, tc.want)
		}
	}
	if got, err := Needs(EnvironmentUniverse, []byte(`{"service_artifact_refs":[{"id":"e","version":1}]}`)); err != nil || len(got) != 1 || got[0].ID != "e" {
		t.Errorf("%+v, %v", got, err)
	}
	for _, body := range []string{`{"file_artifact_ref":{"id":"f"}}`, `{"file_artifact_ref":{"version":1}}`, `{"file_artifact_ref":3}`, `{`} {
		if got, err := Needs(Environment, []byte(body)); err == nil {
			t.Errorf("%s: %+v", body, got)
		}
	}
	if got, err := Needs("plugin_type", []byte("{")); err != nil || got != nil {
		t.Errorf("%+v, %v", got, err)
	}
	for body, want := range map[string]string{`{"environment_name":"a","service_name":"b"}`: "a", `{"service_name":"b"}`: "b", `{}`: "", `[`: ""} {
		if got := EnvironmentName([]byte(body)); got != want {
			t.Errorf("%s: %q", body, got)
		}
	}
}

func FuzzNeeds(f *testing.F) {
	f.Add(EnvironmentUniverse, `{"environment_artifact_refs":[{"id":"e","version":1}],"metadata_refs":{"k":{"id":"m","version":2}}}`)
	f.Add(Skill, `{"skill_files_ref":{"id":"s__files","version":1}}`)
	f.Fuzz(func(t *testing.T, typ, body string) {
		got, err := Needs(typ, []byte(body))
		for _, n := range got {
			if err == nil && (n.ID == "" || n.Version < 1) {
				t.Errorf("%+v", n)
			}
		}
		_ = EnvironmentName([]byte(body))
		_, _ = ReadImage([]byte(body))
	})
}
