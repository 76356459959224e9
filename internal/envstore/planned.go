package envstore

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

// Planned finds what is about to be stored: step.Plan.Written.
type Planned func(k ref.Kind, id string) (step.Written, bool)

// find is an entity that is planned; a version means one that is stored already.
func (p Planned) find(k ref.Kind, id string, version int) (step.Written, bool) {
	if p == nil || version > 0 {
		return step.Written{}, false
	}
	return p(k, id)
}

func (p Planned) doc(k ref.Kind, id string, version int) (store.Doc, bool) {
	w, ok := p.find(k, id, version)
	return store.Doc{Kind: store.Kind(k), ID: id, Type: w.Type, Body: w.Body}, ok
}

// ReadPlanned is Read that sees what is about to be stored too. Of a planned source no digests are known: it says how it would run, and can't be run.
func ReadPlanned(ctx context.Context, s Reader, p Planned, id string, version int) (Env, error) {
	d, ok := p.doc(ref.Env, id, version)
	if !ok {
		return Read(ctx, s, id, version)
	}
	r := reading{store: s, planned: p}
	return r.env(ctx, d)
}

// plannedSource is source of an image that is about to be stored. The reference of a registry's image has no digest yet.
func (r *reading) plannedSource(w step.Written, pin Pin, key string) (Source, error) {
	var x struct {
		Dockerfile string
		Reference  string `json:"image_name"`
	}
	if err := json.Unmarshal(w.Body, &x); err != nil {
		return Source{}, fmt.Errorf("image %s: %w", diag.Repr(pin.ID), err)
	}
	s := Source{Dockerfile: x.Dockerfile, Reference: x.Reference}
	for _, p := range w.Paths {
		s.Files = append(s.Files, artifact.Bytes{Path: p})
	}
	name := env.ProcessFileOf(key)
	if !slices.Contains(w.Paths, name) {
		return s, nil
	}
	in, err := w.Open(name)
	if err != nil {
		return s, fmt.Errorf("read %s: %w", name, err)
	}
	defer in.Close()
	b, err := io.ReadAll(io.LimitReader(in, env.MaxProcess))
	if err != nil {
		return s, fmt.Errorf("read %s: %w", name, err)
	}
	process, l := env.ReadProcess(path.Join(pin.ID, name), b)
	r.faults.Add(l.Of(diag.Error)...)
	s.Process = &process
	return s, nil
}
