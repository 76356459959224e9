package envstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// attempts bounds how often a put is planned again: each time another writer has got through.
const attempts = 100

// Put is an environment of type mcp_server, or an agent, that an image in the store serves.
type Put struct {
	Kind store.Kind // store.Env or store.Agent
	ID   string     // local or bare
	// Image is the artifact that it is made of; version 0 pins the latest.
	Image Pin
	// Fields are what its env.toml or agent.toml would say beside type, id and image.
	Fields      map[string]any
	Description string
	// Metadata is kept with an environment, whose file has none.
	Metadata map[string]any
}

// PutServed stores the next version of an environment or agent, as the file of a bundle would that names a stored image. One that would be the same as
// the latest isn't written again. Everything that is wrong with it is in one error, for people.
func PutServed(ctx context.Context, s store.Store, p Put) (Pin, error) {
	fields, err := p.check()
	if err != nil {
		return Pin{}, err
	}
	for range attempts {
		out, err := p.attempt(ctx, s, fields)
		if !errors.Is(err, store.ErrConflict) {
			return out, err
		}
	}
	return Pin{}, fmt.Errorf("putting %s, tried %d times: %w", diag.Clean(p.ID), attempts, store.ErrConflict)
}

func (p Put) typ() string {
	if p.Kind == store.Agent {
		return agent.A2A
	}
	return env.MCPServer
}

// check tells what is wrong with what is put, and answers its own fields.
func (p Put) check() (map[string]any, error) {
	var l diag.List
	if err := ref.CheckID(p.ID); err != nil {
		l.Add(diag.Problem{Code: "put.id", Summary: err.Error()})
	} else if ref.IsDerived(p.ID) {
		l.Add(diag.Problem{Code: "put.id", Summary: fmt.Sprintf("%s: %q is kept for the ids of what belongs to others", diag.Repr(p.ID), ref.DerivedMark)})
	}
	if p.Image.ID == "" {
		l.Add(diag.Problem{Code: "put.image", Summary: "it names no image: give an artifact of type " + artifact.DockerImage})
	}
	n := doc.Build(p.Fields)
	schema := agent.Schema()
	if p.Kind == store.Env {
		schema, _ = env.Schema(env.MCPServer)
	}
	schema.Check(n, "", &l)
	for _, key := range []string{"type", "id", agent.ImageKey} { // the put says them itself
		if n.Get(key).Exists() {
			l.Add(diag.Problem{Where: key, Code: "put.field", Summary: "can't be a field of what is put"})
		}
	}
	if p.Kind == store.Env {
		env.Check(env.MCPServer, n, []string{env.ProviderGateway, env.ProviderServer}, &l)
	}
	out := map[string]any{}
	maps.Copy(out, p.Fields)
	if p.Description != "" {
		out["description"] = p.Description
	}
	if p.Kind == store.Env {
		name := n.Get("environment_name").Text()
		if name == "" {
			l.Add(diag.Problem{Where: "environment_name", Code: "env.name", Summary: "is missing: what is its server called?"})
		}
		out["service_name"], out["metadata"] = name, map[string]any{}
		if p.Metadata != nil {
			out["metadata"] = p.Metadata
		}
	}
	return out, l.Err()
}

func (p Put) attempt(ctx context.Context, s store.Store, fields map[string]any) (Pin, error) {
	image, err := s.Get(ctx, store.Artifact, p.Image.ID, p.Image.Version)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return Pin{}, diag.List{{Code: "put.image", Summary: "there is no image " + diag.Repr(p.Image.ID), Fix: "put the image first"}}.Err()
	case err != nil:
		return Pin{}, err
	case image.Type != artifact.DockerImage:
		return Pin{}, diag.List{{Code: "put.image", Summary: fmt.Sprintf("%s is of type %s, and an image is one of type %s", diag.Repr(image.ID), image.Type, artifact.DockerImage)}}.Err()
	}
	found, err := s.Latest(ctx, p.Kind, []string{p.ID})
	if err != nil {
		return Pin{}, err
	}
	latest, had := found[p.ID]
	if had && latest.Type != p.typ() {
		return Pin{}, diag.List{{Code: "put.type", Summary: fmt.Sprintf("the store has %s as %s, version %d", diag.Repr(p.ID), latest.Type, latest.Version), Fix: "use another id"}}.Err()
	}
	fields["docker_image_artifact"] = map[string]any{"id": image.ID, "version": image.Version, "type": image.Type}
	d := artifact.Document{Pin: artifact.Pin{ID: p.ID, Version: latest.Version}, Type: p.typ(), Fields: fields}
	if had && string(d.Body(latest.Created)) == string(latest.Body) {
		return Pin{latest.ID, latest.Version, latest.Type}, nil
	}
	d.Version++
	st, err := s.Begin(ctx)
	if err != nil {
		return Pin{}, err
	}
	defer func() { _ = st.Discard() }() // does nothing after Commit
	created := time.Now().UTC().Truncate(time.Microsecond)
	st.Doc(store.Doc{Kind: p.Kind, ID: d.ID, Version: d.Version, Type: d.Type, Body: d.Body(created), Created: created}, store.LatestIs(latest.Version))
	st.Require(func(ctx context.Context, docs store.Docs) error {
		_, err := docs.Get(ctx, store.Artifact, image.ID, image.Version)
		if errors.Is(err, store.ErrNotFound) {
			return fmt.Errorf("%s was removed: %w", diag.Clean(image.ID), store.ErrConflict)
		}
		return err
	})
	return Pin{d.ID, d.Version, d.Type}, st.Commit(ctx)
}
