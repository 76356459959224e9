// Package artifactstore lists, fetches and puts artifacts by hand: what the artifact commands do. What it stores equals what a bundle
// would write under the same id, document for document, since both are made by package artifact.
//
// A put is one Stage of the store: everything of it becomes visible together, as the next version of its id, or nothing does. A put that another
// writer got in front of is planned again. A get checks every digest before anything stands at its target. Package removal below deletes and prunes.
//
// An artifact belongs to another one when its id is derived from that one's (ref.IsDerived): the files of a universe, for example. Such artifacts come
// and go with what they belong to.
package artifactstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/store"
)

// Library is the artifacts of one store. Its methods may be called from several goroutines.
type Library struct{ store store.Store }

// New makes a Library.
func New(s store.Store) *Library { return &Library{s} }

// Info is one version of an artifact as lists show it.
type Info struct {
	ID      string    `json:"id"`
	Version int       `json:"version"`
	Type    string    `json:"type"`
	Created time.Time `json:"created"`
	Bundle  string    `json:"bundle,omitempty"` // id root of the bundle that wrote it; empty for one put by hand
	About   string    `json:"about,omitempty"`  // what it is, in a few words
}

// String is "@local/x v2".
func (i Info) String() string { return name(i.ID, i.Version) }

func name(id string, version int) string { return fmt.Sprintf("%s v%d", diag.Clean(id), version) }

func info(d store.Doc) Info {
	return Info{ID: d.ID, Version: d.Version, Type: d.Type, Created: d.Created, Bundle: d.Owner, About: about(d)}
}

// about says what an artifact is, by its document.
func about(d store.Doc) string {
	var b struct {
		Filename    string         `json:"filename"`
		Description string         `json:"description"`
		Command     string         `json:"command_name"`
		Image       string         `json:"image_name"`
		Files       map[string]any `json:"file_artifact_refs"`
		Envs        []any          `json:"environment_artifact_refs"`
	}
	if json.Unmarshal(d.Body, &b) != nil {
		return ""
	}
	switch d.Type {
	case artifact.File:
		if b.Description != "" && b.Description != b.Filename {
			return b.Filename + ": " + b.Description
		}
		return b.Filename
	case artifact.FileUniverse:
		return diag.Count(len(b.Files), "file")
	case artifact.Environment:
		return "for " + artifact.EnvironmentName(d.Body)
	case artifact.EnvironmentUniverse:
		return diag.Count(len(b.Envs), "environment")
	case artifact.CLI:
		return "command " + b.Command
	case artifact.DockerImage:
		return b.Image
	default:
		return b.Description
	}
}

// Find is one version of an artifact's document; 0 is the latest. One that isn't there is a refusal that says what is, and store.ErrNotFound.
func Find(ctx context.Context, docs store.Docs, id string, version int) (store.Doc, error) {
	d, err := docs.Get(ctx, store.Artifact, id, version)
	if !errors.Is(err, store.ErrNotFound) {
		return d, err
	}
	what := fmt.Sprintf("there is no artifact %s in the store", diag.Repr(id))
	fix := "agent-env artifact list shows what is there"
	if version > 0 {
		latest, lerr := docs.Get(ctx, store.Artifact, id, 0)
		switch {
		case lerr == nil:
			what = fmt.Sprintf("there is no version %d of %s in the store", version, diag.Repr(id))
			fix = fmt.Sprintf("the latest is version %d", latest.Version)
		case !errors.Is(lerr, store.ErrNotFound):
			return d, lerr
		}
	}
	return d, missing{refusal("artifact.missing", what, fix)}
}

// missing is a refusal that is store.ErrNotFound too.
type missing struct{ error }

func (missing) Is(target error) bool { return target == store.ErrNotFound }
func (m missing) Unwrap() error      { return m.error }

// refusal is one problem as an error.
func refusal(code, what, fix string) error {
	return diag.List{{Code: code, Summary: what, Fix: fix}}.Err()
}

// TypeOf is the type that people mean by a word: "file-artifact-universe" is file_artifact_universe too.
func TypeOf(word string) (string, error) {
	typ := strings.ReplaceAll(word, "-", "_")
	if artifact.Known(typ) {
		return typ, nil
	}
	fix := "types are " + strings.Join(artifact.Types(), ", ")
	if near := diag.Nearest(typ, artifact.Types()); near != "" {
		fix = "did you mean " + near + "?"
	}
	return "", refusal("artifact.type", diag.Repr(word)+" is no type of artifact", fix)
}
