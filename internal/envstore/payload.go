package envstore

import (
	"context"
	"fmt"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/store"
)

// Payload is the data for one environment that an artifact holds.
type Payload struct {
	Environment string // environment_name
	Artifact    Pin    // of type environment
	File        artifact.Bytes
	Media       string // content type; "" when not known
}

// Data is a stored artifact of environment data, taken apart.
type Data struct {
	Artifact Pin
	// Universe: several environments that belong together, of which a deployment takes those that it has servers for.
	Universe bool
	Payloads []Payload // one an environment, in the document's order
}

// HoldsData tells whether artifacts of a type are data of environments.
func HoldsData(typ string) bool {
	return typ == artifact.Environment || typ == artifact.EnvironmentUniverse
}

// ReadData is a version of an artifact of type environment or environment_universe, or a file that stands for one; version 0 is the latest.
// ErrNotFound of internal/store.
func ReadData(ctx context.Context, s store.Docs, id string, version int) (Data, error) {
	d, err := s.Get(ctx, store.Artifact, id, version)
	if err != nil {
		return Data{}, err
	}
	out := Data{Artifact: Pin{d.ID, d.Version, d.Type}, Universe: d.Type == artifact.EnvironmentUniverse}
	if !HoldsData(d.Type) {
		return Data{}, fmt.Errorf("%s is of type %s, which holds no environment's data; load one of type %s or %s",
			diag.Repr(d.ID), d.Type, artifact.Environment, artifact.EnvironmentUniverse)
	}
	docs := []store.Doc{d}
	if out.Universe {
		if docs, err = members(ctx, s, d); err != nil {
			return Data{}, err
		}
	}
	seen := map[string]bool{}
	for _, d := range docs {
		p, err := payload(ctx, s, d)
		if err != nil {
			return Data{}, fmt.Errorf("artifact %s version %d: %w", diag.Repr(d.ID), d.Version, err)
		}
		if seen[p.Environment] {
			return Data{}, fmt.Errorf("artifact %s version %d has two environments called %s", diag.Repr(out.Artifact.ID), out.Artifact.Version, diag.Repr(p.Environment))
		}
		seen[p.Environment] = true
		out.Payloads = append(out.Payloads, p)
	}
	return out, nil
}

// members are the environments of a universe.
func members(ctx context.Context, s store.Docs, d store.Doc) ([]store.Doc, error) {
	needs, err := artifact.Needs(d.Type, d.Body)
	if err != nil {
		return nil, fmt.Errorf("artifact %s version %d: %w", diag.Repr(d.ID), d.Version, err)
	}
	var out []store.Doc
	for _, n := range needs {
		if n.As != "environment" {
			continue
		}
		m, err := s.Get(ctx, store.Artifact, n.ID, n.Version)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

func payload(ctx context.Context, s store.Docs, d store.Doc) (Payload, error) {
	p := Payload{Environment: artifact.EnvironmentName(d.Body), Artifact: Pin{d.ID, d.Version, d.Type}}
	needs, err := artifact.Needs(d.Type, d.Body)
	if err != nil {
		return p, err
	}
	if p.Environment == "" || len(needs) != 1 {
		return p, store.ErrCorrupt
	}
	file, err := s.Get(ctx, store.Artifact, needs[0].ID, needs[0].Version)
	if err != nil {
		return p, err
	}
	files, err := artifact.Files(file.Type, file.Body)
	if err != nil || len(files) != 1 {
		return p, fmt.Errorf("its file %s can't be read: %w", diag.Repr(file.ID), store.ErrCorrupt)
	}
	p.File, p.Media = files[0], artifact.ContentType(files[0].Path)
	return p, nil
}
