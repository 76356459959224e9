package deploy

import (
	"context"
	"fmt"
	"io"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/store"
)

// AgentSnapshot says what is kept of an agent.
type AgentSnapshot struct {
	ID           string // of the universe of files
	Conversation string
	Limit        time.Duration // of the agent's export; 0 is two minutes
	// Env, when it is not nil, is an environment whose data goes beside, as services/<environment>.json or whatever else the server answers. Missed is told
	// of those that can't be exported; it may be nil.
	Env    *Env
	Missed func(environment string, err error)
}

// servicesFolder is where a snapshot of an agent has the data of an environment.
const servicesFolder = "services"

// Snapshot stores a conversation and the files that the agent works on as the next version of a universe of files. Nothing is stored when that fails.
// ErrNotServed: the agent can't be saved. services are the files of the environment's data, by its parts' names.
func (a *Agent) Snapshot(ctx context.Context, s store.Store, o AgentSnapshot) (pin envstore.Pin, services map[string]string, err error) {
	if err := a.Saves(); err != nil {
		return envstore.Pin{}, nil, err
	}
	limit := o.Limit
	if limit <= 0 {
		limit = 2 * time.Minute
	}
	pin, err = envstore.PutFiles(ctx, s, o.ID, func(ctx context.Context, put func(envstore.Piece) error) error {
		services = map[string]string{}
		limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("the agent took more than %s", limit))
		defer cancel()
		err := a.Save(limited, o.Conversation, func(name string, r io.Reader) error {
			return put(envstore.Piece{File: name, Reader: r})
		})
		if err != nil {
			return fmt.Errorf("%w: %w", ErrExport, caused(limited, err))
		}
		if o.Env == nil {
			return nil
		}
		for _, name := range o.Env.Names() {
			at, err := o.Env.putService(limited, name, put)
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case err != nil && o.Missed != nil:
				o.Missed(name, err)
			case err == nil:
				services[name] = at
			}
		}
		return nil
	})
	return pin, services, err
}

func (v *Env) putService(ctx context.Context, name string, put func(envstore.Piece) error) (string, error) {
	x, err := v.Get(ctx, name)
	if err != nil {
		return "", err
	}
	defer x.Close()
	file := x.File
	if file == "data.json" {
		file = name + ".json"
	}
	folder := servicesFolder
	if file != name+".json" {
		folder += "/" + name
	}
	return folder + "/" + file, put(envstore.Piece{Folder: folder, File: file, Reader: x})
}

// Restore gives the agent a stored snapshot and answers the conversation in which it goes on; target is the one to load into, "" leaves that to the agent.
// version 0 is the latest.
func (a *Agent) Restore(ctx context.Context, s envstore.Reader, id string, version int, target string) (pin envstore.Pin, conversation string, err error) {
	d, err := s.Get(ctx, store.Artifact, id, version)
	if err != nil {
		return envstore.Pin{}, "", fmt.Errorf("snapshot %s: %w", diag.Repr(id), err)
	}
	pin = envstore.Pin{ID: d.ID, Version: d.Version, Type: d.Type}
	files, err := artifact.Files(d.Type, d.Body)
	if err != nil {
		return pin, "", fmt.Errorf("snapshot %s version %d: %w", diag.Repr(id), d.Version, err)
	}
	byPath := map[string]artifact.Bytes{}
	for _, f := range files {
		byPath[f.Path] = f
	}
	for _, name := range []string{StateTrajectory, StateWorkspace} {
		if byPath[name].Digest == "" {
			return pin, "", fmt.Errorf("%s version %d is no snapshot of an agent: it has no file %s", diag.Repr(id), d.Version, name)
		}
	}
	conversation, err = a.Load(ctx, func(name string) (io.ReadCloser, int64, error) {
		return s.Open(ctx, byPath[name].Digest)
	}, target)
	return pin, conversation, err
}
