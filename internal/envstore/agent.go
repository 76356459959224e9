package envstore

import (
	"context"
	"encoding/json"
	"fmt"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// Agent is a version of a stored agent.
type Agent struct {
	Pin
	Vars  map[string]string // that every deployment gets
	Model string            // where neither run nor configuration names one; ""
	// DiskGB is the least disk; 0 for none. Bare agents get no model credentials.
	DiskGB float64
	Bare   bool
	Part   Part // its image; named as the agent
}

// ReadAgent is a version of an agent; version 0 is the latest. store.ErrNotFound; a diag.Refusal when its process.toml can't be used.
func ReadAgent(ctx context.Context, s Reader, id string, version int) (Agent, error) {
	d, err := s.Get(ctx, store.Agent, id, version)
	if err != nil {
		return Agent{}, fmt.Errorf("agent %s: %w", diag.Repr(id), err)
	}
	var x struct {
		Image    *Pin              `json:"docker_image_artifact"`
		Vars     map[string]string `json:"default_env_vars"`
		Metadata struct {
			Model       string  `json:"default_model"`
			Disk        float64 `json:"min_disk_size_gb"`
			Credentials *bool   `json:"takes_credentials"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(d.Body, &x); err != nil || x.Image == nil {
		return Agent{}, fmt.Errorf("agent %s version %d can't be read: %w", diag.Repr(id), d.Version, store.ErrCorrupt)
	}
	a := Agent{Pin: Pin{d.ID, d.Version, d.Type}, Vars: x.Vars, Model: x.Metadata.Model, DiskGB: x.Metadata.Disk}
	a.Bare = x.Metadata.Credentials != nil && !*x.Metadata.Credentials
	a.Part = Part{Env: a.Pin, Name: ref.Last(d.ID), Key: "image", Image: *x.Image}
	r := reading{store: s}
	if a.Part.Source, err = r.source(ctx, *x.Image, "image"); err != nil {
		return a, err
	}
	return a, r.faults.Err()
}
