package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/sdk/computer"
)

// filmNote stands beside a film under way, so that the film can be kept by another process than the one that is filming, when that was killed.
type filmNote struct {
	Env      string `json:"env_id"`
	Instance string `json:"instance_id"`
	Step     string `json:"step_id,omitempty"`
}

const (
	filmPrefix = "screen "
	noteSuffix = ".json" // behind the film's whole name
)

func (f *film) note(n filmNote) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(f.path+noteSuffix, 0o600, b)
}

// remove removes the film, and its note last: a note without a film is nothing that was left.
func (f *film) remove() error { return removeFilm(f.path) }

func removeFilm(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err == nil {
		err = os.Remove(path + noteSuffix)
	}
	return err
}

// LeftFilms tells whether a folder of Records has films that nobody kept, or that are under way.
func LeftFilms(folder string) bool {
	notes, err := leftNotes(folder)
	return err == nil && len(notes) > 0
}

func leftNotes(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filmPrefix) && strings.HasSuffix(e.Name(), noteSuffix) {
			out = append(out, filepath.Join(folder, e.Name()))
		}
	}
	return out, err
}

// KeepLeftFilms makes the films whole that a killed process of a run left, to the last picture that it had seen, puts them into the run's record and tells of each. Nobody may be
// filming the run any more: the caller owns it. What can't be kept stays where it is, and is named in the error.
func KeepLeftFilms(ctx context.Context, records Records, run string, tell func(step string, p Piece) error) error {
	notes, err := leftNotes(records.Folder(run))
	errs := []error{err}
	for _, note := range notes {
		path := strings.TrimSuffix(note, noteSuffix)
		if err := keepLeft(ctx, records, run, path, tell); err != nil {
			errs = append(errs, fmt.Errorf("keep the film that a killed run left, %s: %w", path, err))
		}
	}
	if len(notes) > 0 {
		_ = os.Remove(records.Folder(run)) // the last one's; other files keep it
	}
	return errors.Join(errs...)
}

func keepLeft(ctx context.Context, records Records, run, path string, tell func(step string, p Piece) error) error {
	b, err := os.ReadFile(path + noteSuffix)
	if err != nil {
		return err
	}
	var n filmNote
	if err := json.Unmarshal(b, &n); err != nil {
		return fmt.Errorf("what it is of can't be read: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return removeFilm(path)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	pictures, err := computer.MendFilm(f)
	if err != nil || pictures == 0 {
		if err == nil || errors.Is(err, computer.ErrNoFilm) {
			return errors.Join(err, removeFilm(path))
		}
		return err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	p, err := records.Keep(ctx, run, f)
	if err != nil {
		return err
	}
	p.What, p.Env, p.Instance = PieceScreen, n.Env, n.Instance
	if err := tell(n.Step, p); err != nil {
		return err
	}
	return removeFilm(path)
}
