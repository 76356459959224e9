package deploy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// skillLimit is how long a server has to hand over its skill, and those of its children.
const skillLimit = 30 * time.Second

// skillFile is the file that every skill begins with.
const skillFile = wire.SkillFile

// Skills are those that the environment's servers serve, and the children on their cards: in the order of the servers, a server's own before its
// children's. Servers without one are left out. An error is what a server did wrong, or ctx's.
func (v *Env) Skills(ctx context.Context) ([]Skill, error) {
	var out []Skill
	for _, name := range v.Names() {
		found, err := v.server(name).skills(ctx)
		if err != nil {
			return nil, fmt.Errorf("the skill of %s: %w", diag.Repr(name), err)
		}
		out = append(out, found...)
	}
	return out, nil
}

func (s *Server) skills(ctx context.Context) ([]Skill, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, skillLimit, fmt.Errorf("it was not answered within %s", skillLimit))
	defer cancel()
	t := s.transport()
	defer t.CloseIdleConnections()
	card, err := s.card(ctx, t)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	var out []Skill
	for _, c := range append([]wire.Card{card}, card.Children...) {
		call, err := operationOf(&c, wire.URNSkill, "get")
		if errors.Is(err, ErrNotAdvertised) && c.Extension(wire.URNSkill) == nil {
			continue
		}
		if err != nil {
			return nil, err
		}
		at := s.at(call)
		b, err := exchange(ctx, t, call.Verb, at.String(), nil)
		if err != nil {
			return nil, cmp.Or(context.Cause(ctx), err)
		}
		served, err := wire.ParseEnvSkill(b)
		if err != nil {
			return nil, err
		}
		k := Skill{Name: served.Name, Description: served.Description}
		for _, f := range served.Files {
			k.Files = append(k.Files, guest.PutBytes(f.Path, 0o644, f.Bytes))
		}
		out = append(out, k)
	}
	return out, nil
}

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
			r, _, err := store.OpenVerified(context.WithoutCancel(ctx), s, f.Digest) // whoever holds the skill reads it when the step that gave it has ended
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
