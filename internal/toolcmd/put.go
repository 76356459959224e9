package toolcmd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// putTries bounds how often a write is planned again, each time because another one of the same id got in between.
const putTries = 20

// Put stores a command as the next version of a cli artifact, made from a version of an environment. A latest version that says the same is left as it is,
// unless again is set; new tells which it was.
func Put(ctx context.Context, s store.Store, id string, env artifact.Pin, c Command, again bool) (p artifact.Pin, fresh bool, err error) {
	if err := ref.CheckID(id); err != nil {
		return p, false, err
	}
	file, err := c.File()
	if err != nil {
		return p, false, err
	}
	for range putTries {
		p, fresh, err = put(ctx, s, id, env, c, file, again)
		if !errors.Is(err, store.ErrConflict) {
			return p, fresh, err
		}
	}
	return p, false, fmt.Errorf("others write %s all the time; try again", diag.Repr(id))
}

func put(ctx context.Context, s store.Store, id string, env artifact.Pin, c Command, file []byte, again bool) (p artifact.Pin, fresh bool, err error) {
	stage, err := s.Begin(ctx)
	if err != nil {
		return p, false, err
	}
	defer func() { _ = stage.Discard() }() // what was put is dropped by the store's own sweep at the latest
	digest, size, err := stage.Put(bytes.NewReader(file))
	if err != nil {
		return p, false, err
	}
	files := []artifact.Bytes{{Path: c.Entrypoint(), Digest: digest, Size: size, Mode: 0o755}}
	latest, err := s.Latest(ctx, store.Artifact, append(artifact.Children(artifact.CLI, id, []string{files[0].Path}), id))
	if err != nil {
		return p, false, err
	}
	was, known := latest[id]
	switch {
	case known && was.Type != artifact.CLI:
		return p, false, fmt.Errorf("%s is of type %s in the store; choose another id for the command", diag.Repr(id), was.Type)
	case known && !again:
		same, err := says(ctx, s, was, env, c, digest)
		if err != nil || same {
			return artifact.Pin{ID: id, Version: was.Version}, false, err
		}
	}
	next := func(id string) artifact.Pin { return artifact.Pin{ID: id, Version: latest[id].Version + 1} }
	created := time.Now().UTC().Truncate(time.Microsecond)
	docs := artifact.NewCLI(next(id), c.Name, c.Entrypoint(), files, next)
	docs[0].Fields["env_id"], docs[0].Fields["env_version"] = env.ID, env.Version
	for _, d := range docs {
		stage.Doc(store.Doc{
			Kind: store.Artifact, ID: d.ID, Version: d.Version, Type: d.Type, Body: d.Body(created), Objects: d.Objects, Created: created,
		}, store.LatestIs(latest[d.ID].Version))
	}
	return next(id), true, stage.Commit(ctx)
}

// says tells whether a stored cli is this command.
func says(ctx context.Context, s store.Store, d store.Doc, env artifact.Pin, c Command, digest ref.Digest) (bool, error) {
	d, err := s.Get(ctx, store.Artifact, d.ID, d.Version)
	if err != nil {
		return false, err
	}
	var body struct {
		Name    string `json:"command_name"`
		Env     string `json:"env_id"`
		Version int    `json:"env_version"`
	}
	if json.Unmarshal(d.Body, &body) != nil || body.Name != c.Name || body.Env != env.ID || body.Version != env.Version {
		return false, nil
	}
	files, err := envstore.Files(ctx, s, d)
	return err == nil && len(files) == 1 && files[0].Digest == digest, nil
}
