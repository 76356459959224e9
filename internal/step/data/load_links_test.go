package data

import (
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/store"
)

// Links and empty folders of a universe are loaded as they are. Two universes may have one folder.
func TestLoadLinksAndFolders(t *testing.T) {
	r := steptest.New(t, fake.Options{})
	r.PutUniverse("@local/b/plain", steptest.File{Path: "sub/a.txt", Text: "a"})
	d := artifact.NewFileUniverse(artifact.Pin{ID: "@local/b/links", Version: 1}, []artifact.Bytes{
		{Path: "l", Link: "sub/a.txt"}, {Path: "sub", Folder: true}, {Path: "none/at all", Folder: true},
	}, nil)[0]
	s, err := r.Store.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s.Doc(store.Doc{Kind: store.Artifact, ID: d.ID, Version: 1, Type: d.Type, Body: d.Body(time.Now())}, store.Absent)
	if err := s.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.Box()
	r.Must(NewLoadArtifact(r.Store, r.Deploy, nil, nil, NewDownloads(false)), load(`"artifacts": [{"id": "@local/b/links"}, {"id": "@local/b/plain"}]`))
	files := r.Fake.Machines()[0].Files
	if b, err := files.ReadFile("/loaded/l"); err != nil || string(b) != "a" {
		t.Errorf("through the link: %q, %v", b, err)
	}
	if fi, err := files.Stat("/loaded/none/at all"); err != nil || !fi.IsDir() {
		t.Errorf("folder: %v, %v", fi, err)
	}
}
