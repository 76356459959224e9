package ledger

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

// deleting deletes something of its store before its first commit.
type deleting struct {
	store.Store
	id   string
	done bool
}

type deletingStage struct {
	store.Stage
	of *deleting
}

func (d *deleting) Begin(ctx context.Context) (store.Stage, error) {
	g, err := d.Store.Begin(ctx)
	return deletingStage{g, d}, err
}

func (g deletingStage) Commit(ctx context.Context) error {
	if !g.of.done {
		g.of.done = true
		s, err := g.of.Store.Begin(ctx)
		if err != nil {
			return err
		}
		s.Delete(store.Artifact, g.of.id, 0)
		if err := s.Commit(ctx); err != nil {
			return err
		}
	}
	return g.Stage.Commit(ctx)
}

// A write never ends with documents that use what was deleted meanwhile.
func TestDeletedMeanwhile(t *testing.T) {
	const root = "@local/b"
	file := func(st store.Store, id string) {
		put(t, st, store.Doc{Kind: store.Artifact, ID: id, Version: 1, Type: artifact.File, Body: []byte(`{"filename":"x"}`)})
	}
	files := map[string]string{
		"tasks/t.json":              load("e", "@local/x/loaded"),
		"artifacts/f/a.txt":         "hello",
		"artifacts/e/artifact.toml": "type = \"environment\"\nenvironment_name = \"mail\"\nfile = \"f\"\n",
	}
	seed := func() store.Store {
		st := mem.New(mem.Options{})
		file(st, "@local/x/loaded")
		file(st, "@local/x/pinned")
		bring(t, st, memFS(files), root)
		return st
	}
	for _, tc := range []struct {
		name, toml, deleted, want, gone string
	}{
		// f stays as it is and e is written anew over it: f is written again too.
		{"an entity of the bundle", "environment_name = \"crm\"\nfile = \"f\"\n", root + "/f", "artifacts/f: v1 (v1 is no longer in the store)", ""},
		{"what an artifact pins", "environment_name = \"mail\"\nfile = \"@local/x/pinned\"\n", "@local/x/pinned", "", "artifacts/e: @local/x/pinned, which it uses, was deleted"},
		{"what nothing uses", "environment_name = \"crm\"\nfile = \"f\"\n", "@local/x/pinned", "artifacts/f: v1, unchanged", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			st := seed()
			changed := map[string]string{}
			maps.Copy(changed, files)
			changed["artifacts/e/artifact.toml"] = "type = \"environment\"\n" + tc.toml
			p := planFS(t, memFS(changed), root, st)
			r, err := Write(t.Context(), &deleting{Store: st, id: tc.deleted}, p, Options{})
			if tc.gone != "" {
				if err == nil || !strings.Contains(err.Error(), tc.gone) {
					t.Errorf("%v", err)
				}
				if d, err := st.Get(t.Context(), store.Artifact, root+"/e", 0); err != nil || d.Version != 1 {
					t.Errorf("e is version %d, %v", d.Version, err)
				}
				return
			}
			if err != nil || !strings.Contains(lines(r), tc.want) {
				t.Errorf("%s, %v", lines(r), err)
			}
			d, err := st.Get(t.Context(), store.Artifact, root+"/e", 0)
			if err != nil {
				t.Fatal(err)
			}
			needs, err := artifact.Needs(d.Type, d.Body)
			if err != nil || len(needs) != 1 {
				t.Fatal(needs, err)
			}
			if _, err := st.Get(t.Context(), store.Artifact, needs[0].ID, needs[0].Version); err != nil {
				t.Errorf("e pins what is gone: %v", err)
			}
		})
	}

	// A new task that loads what is deleted before it is written is not written.
	st := seed()
	changed := memFS(map[string]string{"tasks/t2.json": load("@local/x/loaded")})
	_, err := Write(t.Context(), &deleting{Store: st, id: "@local/x/loaded"}, planFS(t, changed, root, st), Options{})
	if err == nil || !strings.Contains(err.Error(), "tasks/t2.json: @local/x/loaded, which it uses, was deleted") {
		t.Errorf("%v", err)
	}
	if _, err := st.Get(t.Context(), store.Task, root+"/t2", 0); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("the task is there: %v", err)
	}
}
