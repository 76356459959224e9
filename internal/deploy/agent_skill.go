package deploy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// skillFile is the file that every skill begins with.
const skillFile = "SKILL.md"

// ErrNoSkill: what is stored under an id is no skill.
var ErrNoSkill = errors.New("is no skill")

// StoredSkill is a skill of the store, version 0 the latest; its files are read when they are needed. store.ErrNotFound, ErrNoSkill; else a fault of the machinery.
func StoredSkill(ctx context.Context, s envstore.Reader, id string, version int) (Skill, error) {
	d, err := s.Get(ctx, store.Artifact, id, version)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Skill{}, err
	case err != nil:
		return Skill{}, step.Infra(err)
	case d.Type != artifact.Skill:
		return Skill{}, fmt.Errorf("%s is of type %s and %w", diag.Repr(id), d.Type, ErrNoSkill)
	}
	files, err := envstore.Files(ctx, s, d)
	if err != nil {
		return Skill{}, step.Infra(fmt.Errorf("artifact %s version %d: %w", d.ID, d.Version, err))
	}
	var out Skill
	for _, f := range files {
		open := func() (io.ReadCloser, error) {
			r, _, err := store.OpenVerified(ctx, s, f.Digest)
			return r, err
		}
		out.Files = append(out.Files, guest.PutFile{Path: f.Path, Mode: fs.FileMode(f.Mode), Size: f.Size, Open: open})
		if f.Path != skillFile || f.Size > maxSkill {
			continue
		}
		r, err := open()
		if err != nil {
			return out, step.Infra(&step.Error{Type: "StoreError", Err: err})
		}
		b, err := io.ReadAll(r)
		r.Close()
		if err != nil {
			return out, step.Infra(&step.Error{Type: "StoreError", Err: err})
		}
		front, _ := artifact.ReadSkill(id, b, "") // one that isn't sound is taken as it is: it was stored
		out.Name, out.Description = front.Name, front.Description
	}
	return out, nil
}
