package envstore

import (
	"context"
	"encoding/json"
	"fmt"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/store"
)

// Files are the files that a stored artifact names; of a skill or a command they are those of its universe. artifact.ErrNoFiles for other types.
func Files(ctx context.Context, s store.Docs, d store.Doc) ([]artifact.Bytes, error) {
	if d.Type != artifact.Skill && d.Type != artifact.CLI {
		return artifact.Files(d.Type, d.Body)
	}
	needs, err := artifact.Needs(d.Type, d.Body)
	if err != nil {
		return nil, err
	}
	if len(needs) != 1 {
		return nil, fmt.Errorf("the document of %s names no files", diag.Repr(d.ID))
	}
	held, err := s.Get(ctx, store.Artifact, needs[0].ID, needs[0].Version)
	if err != nil {
		return nil, err
	}
	return artifact.Files(held.Type, held.Body)
}

// Command is a stored cli, down to its files.
type Command struct {
	Artifact   Pin
	Name       string // as it is called
	Entrypoint string // of Files
	Env        string // the id of the environment that it was made from; "" where nothing says so
	Files      []artifact.Bytes
}

// ReadCommand is a version of an artifact of type cli; version 0 is the latest. ErrNotFound of internal/store.
func ReadCommand(ctx context.Context, s store.Docs, id string, version int) (Command, error) {
	d, err := s.Get(ctx, store.Artifact, id, version)
	if err != nil {
		return Command{}, err
	}
	c := Command{Artifact: Pin{d.ID, d.Version, d.Type}}
	if d.Type != artifact.CLI {
		return c, fmt.Errorf("%s is of type %s, which is no command", diag.Repr(d.ID), d.Type)
	}
	var body struct {
		Name  string `json:"command_name"`
		Entry string `json:"entrypoint"`
		Env   string `json:"env_id"`
	}
	if err := json.Unmarshal(d.Body, &body); err != nil || body.Name == "" || body.Entry == "" {
		return c, fmt.Errorf("the document of %s can't be read as a command", diag.Repr(d.ID))
	}
	c.Name, c.Entrypoint, c.Env = body.Name, body.Entry, body.Env
	c.Files, err = Files(ctx, s, d)
	return c, err
}
