package act

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/store"
)

const (
	// maxScripts bounds the Python files of one script artifact together.
	maxScripts = 5 << 20
	// singleName is what a file artifact is called where it runs, whatever its own name: importing needs a .py file.
	singleName = "script.py"
	// usualEntry is the script among several when the step names none.
	usualEntry = "run.py"
)

// script is what a run_code step runs: an entry and the Python files that it may import.
type script struct {
	entry string
	files []artifact.Bytes
}

// script finds the script that a step names, without reading any bytes.
func (e *RunCode) script(ctx context.Context, id string, version int, entry string) (script, error) {
	d, err := e.store.Get(ctx, store.Artifact, id, version)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return script{}, &step.Error{Type: "NotFoundError", Err: err}
	case err != nil:
		return script{}, step.Infra(err)
	}
	files, err := artifact.Files(d.Type, d.Body)
	switch {
	case errors.Is(err, artifact.ErrNoFiles):
		return script{}, step.Errorf("ValueError", "script_artifact_id: %s is of type %s; a script is a %s or a %s",
			diag.Repr(id), d.Type, artifact.File, artifact.FileUniverse)
	case err != nil:
		return script{}, step.Infra(fmt.Errorf("artifact %s version %d: %w", d.ID, d.Version, err))
	}
	s := script{}
	if d.Type == artifact.File {
		if entry != "" {
			return s, step.Errorf("ValueError", "script_file: %s is a single file; leave script_file out", diag.Repr(id))
		}
		files[0].Path = singleName
		s.entry, s.files = singleName, files
	} else {
		s.files = slices.DeleteFunc(files, func(b artifact.Bytes) bool { return !strings.HasSuffix(b.Path, ".py") })
		if s.entry, err = pick(s.files, entry); err != nil {
			return s, step.Errorf("ValueError", "%s: %w", diag.Repr(id), err)
		}
	}
	var total int64
	for _, b := range s.files {
		total += b.Size
	}
	if total > maxScripts {
		return s, step.Errorf("ValueError", "%s: its Python files have %d bytes, and scripts may have %d", diag.Repr(id), total, maxScripts)
	}
	return s, nil
}

// pick is the entry among Python files: the one asked for, the only one, or the one called run.py.
func pick(files []artifact.Bytes, asked string) (string, error) {
	names := make([]string, len(files))
	var usual []string
	for i, b := range files {
		names[i] = b.Path
		if path.Base(b.Path) == usualEntry {
			usual = append(usual, b.Path)
		}
	}
	switch {
	case asked != "" && slices.Contains(names, asked):
		return asked, nil
	case asked != "":
		return "", fmt.Errorf("script_file %s is none of its Python files (%s)", diag.Repr(asked), listed(names))
	case len(names) == 0:
		return "", errors.New("holds no Python file")
	case len(names) == 1:
		return names[0], nil
	case len(usual) == 1:
		return usual[0], nil
	case len(usual) > 1:
		return "", fmt.Errorf("holds several files named %s; name one of %s in script_file", usualEntry, listed(usual))
	default:
		return "", fmt.Errorf("holds several Python files and none named %s; name one of %s in script_file", usualEntry, listed(names))
	}
}

// listed names at most ten.
func listed(names []string) string {
	if len(names) > 10 {
		return strings.Join(names[:10], ", ") + fmt.Sprintf(" and %d more", len(names)-10)
	}
	return strings.Join(names, ", ")
}

// staged are the files of a script as they are put below src.
func (e *RunCode) staged(ctx context.Context, s script) []guest.PutFile {
	out := make([]guest.PutFile, 0, len(s.files)+2)
	for _, b := range s.files {
		out = append(out, guest.PutFile{Path: "src/" + b.Path, Mode: fs.FileMode(b.Mode), Size: b.Size, Open: func() (io.ReadCloser, error) {
			r, _, err := store.OpenVerified(ctx, e.store, b.Digest)
			return r, err
		}})
	}
	return out
}
