// Package live keeps the record of what an agent does in a file, event by event: what was recorded outlives the process, so the trajectory of an
// agent that was killed is complete to the last thing that happened.
//
// Secrets are taken out by value before anything is written. A file belongs to one writer; anybody may Read it.
package live

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/trajectory"
)

// Options are what a File is made of.
type Options struct {
	Path   string           // "" keeps the record in memory alone
	Redact *redact.Redactor // nil: nothing is secret
	// Keep stores a picture and answers the path that events name it by.
	Keep func(media string, data []byte) (string, error)
}

// File is one record. Its methods may be called from several goroutines. Close it.
type File struct {
	o Options

	mu     sync.Mutex
	f      *os.File
	events []trajectory.Event
	err    error
}

// Open begins a record, in place of one that was there.
func Open(o Options) (*File, error) {
	r := &File{o: o}
	if o.Path == "" {
		return r, nil
	}
	if err := atomicfile.MkdirAll(filepath.Dir(o.Path)); err != nil {
		return nil, fmt.Errorf("make the folder of the trajectory's record: %w", err)
	}
	f, err := os.OpenFile(o.Path, os.O_CREATE|os.O_WRONLY|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the trajectory's record: %w", err)
	}
	r.f = f
	return r, nil
}

// Record adds an event. When it returns the event outlives the process. After a failure nothing more is recorded.
func (r *File) Record(e trajectory.Event) error {
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("record the trajectory: %w", err)
	}
	b = r.o.Redact.JSON(b)
	var clean trajectory.Event
	if err := json.Unmarshal(b, &clean); err != nil {
		return fmt.Errorf("record the trajectory: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	if r.f != nil {
		if _, err := r.f.Write(append(b, '\n')); err != nil {
			r.err = fmt.Errorf("record the trajectory: %w", err)
			return r.err
		}
	}
	r.events = append(r.events, clean)
	return nil
}

// Image stores a picture beside the record.
func (r *File) Image(media string, data []byte) (string, error) {
	if r.o.Keep == nil {
		return "", nil
	}
	return r.o.Keep(media, data)
}

// Events are those so far.
func (r *File) Events() []trajectory.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.events)
}

// Close closes the file, which stays.
func (r *File) Close() error {
	if r.f == nil {
		return nil
	}
	return r.f.Close()
}

// Read reads a record that may be under way; an event that its writer was killed in is left out. No file is no events.
func Read(path string) ([]trajectory.Event, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	events, _, err := trajectory.ReadEvents(b)
	return events, err
}
