package workspace

import (
	"context"
	"errors"
	"fmt"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// bundle installs a plugin bundle into the folder and seeds what it says, in one change of the folder.
func (m *Maker) bundle(ctx context.Context, o Order, f folder.Folder, out *Created) (_ func() error, err error) {
	s := m.Store(f)
	p, hold, err := m.bring(ctx, s, o)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, hold())
		}
	}()
	plan, err := s.Plan(ctx, p.Members, false)
	if err != nil {
		return nil, err
	}
	a, err := o.Answer(ctx, p, p.Disclose(plan))
	if err != nil {
		return nil, err
	}
	_, err = s.Apply(ctx, plan, func(tx *folder.Tx, l *git.Lock) error {
		out.Seeded, err = Install(tx, l, Seeding{Pack: p.Manifest, Sections: Sections(p), Known: p.Known(m.Builtins), Answers: a, Env: m.Env})
		if err != nil {
			return err
		}
		l.PutBundle(p.Row("workspace", git.Stamp(m.Now()), out.Seeded.Rows))
		return m.tell(tx, o, p, out)
	})
	if err != nil {
		return nil, err
	}
	for _, i := range p.Members {
		if i.Superseded == "" {
			out.Plugins = append(out.Plugins, i.ID())
		}
	}
	out.Warnings = append(out.Warnings, p.Warnings...)
	for _, w := range out.Seeded.Warnings.Of(diag.Warning) {
		out.Warnings = append(out.Warnings, w.String())
	}
	return hold, nil
}

// bring fetches a bundle and its members, within the limit. hold lets go of them.
func (m *Maker) bring(ctx context.Context, s *git.Store, o Order) (_ *pack.Pack, hold func() error, err error) {
	limit := m.Limit
	if limit == 0 {
		limit = FetchLimit
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, &Late{o.Bundle, limit})
	defer cancel()
	found, err := s.Fetch(ctx, []git.Want{{URL: o.Bundle, Ref: o.Ref, By: "workspace"}})
	if err != nil {
		return nil, nil, err
	}
	if found[0].Kind == git.Bundle && o.Permit != nil {
		if err := o.Permit(ctx, found[0]); err != nil {
			return nil, nil, errors.Join(err, found.Close())
		}
	}
	p, err := pack.Fetch(ctx, s, found[0], m.Builtins)
	if err != nil {
		return nil, nil, errors.Join(err, found.Close())
	}
	return p, func() error { return errors.Join(p.Close(), found.Close()) }, nil
}

// Install seeds inside of a change of a workspace: what is seeded, what is turned on and the lock are committed together or not at all.
func Install(tx *folder.Tx, l *git.Lock, s Seeding) (*Seeded, error) {
	var files Files
	var err error
	if files.Config, err = tx.Read(folder.Config); err != nil {
		return nil, err
	}
	if files.Secrets, err = tx.Read(folder.Secrets); err != nil {
		return nil, err
	}
	if b := l.Bundle(s.Pack.ID); b != nil {
		s.Earlier = b.Seeded
	}
	out, err := s.Apply(files)
	if err != nil {
		return nil, err
	}
	if s.Check != nil {
		if err := s.Check(out.Files); err != nil {
			return nil, err
		}
	}
	if err := tx.Write(folder.Config, 0o644, out.Config); err != nil {
		return nil, err
	}
	if len(out.Secrets) == 0 {
		return out, nil
	}
	return out, tx.Write(folder.Secrets, 0o600, out.Secrets)
}

// tell writes what the workspace says of itself, and its soul.
func (m *Maker) tell(tx *folder.Tx, o Order, p *pack.Pack, out *Created) error {
	out.Bundle, out.RequiresTools = p.Manifest.ID, union(p.Manifest.Archetype.RequiresTools, o.RequiresTools)
	b, err := out.Workspace.bytes()
	if err != nil {
		return err
	}
	if err := tx.Write(About, 0o644, b); err != nil {
		return err
	}
	a := p.Manifest.Archetype
	switch {
	case o.Soul != "":
	case a.Soul != "":
		return tx.Write(folder.Soul, 0o644, []byte(a.Soul))
	case a.SoulPreset != "":
		out.Warnings = append(out.Warnings, fmt.Sprintf("the soul %s doesn't come with this program; the workspace has the usual one: edit %s/%s", diag.Repr(a.SoulPreset), folder.Dir, folder.Soul))
	}
	return nil
}

// Sections are the sections of a pack's installed members, by id and by the name that each has chosen for its own.
func Sections(p *pack.Pack) map[string]Section {
	out := map[string]Section{}
	for _, i := range p.Members {
		if i.Manifest == nil {
			out[i.Superseded] = Section{ID: i.Superseded}
			continue
		}
		out[i.ID()] = Section{ID: i.ID(), Secrets: i.Manifest.Secrets}
	}
	for _, i := range p.Members {
		if i.Manifest == nil {
			continue
		}
		if _, taken := out[i.Manifest.ConfigSection]; !taken {
			out[i.Manifest.ConfigSection] = Section{ID: i.ID(), Secrets: i.Manifest.Secrets}
		}
	}
	return out
}
