// Package owner keeps deployments up that outlive the command that made them.
//
// An owner is a process of this program that holds one deployment: its sandboxes are tied to it, and it ends when it is told to, when the deployment's time
// is up, or when it is killed; the sandboxes go with it in each case. A folder of the state root tells other commands of it. What such a folder says holds
// no secret: other commands of the same user reach the owner by a socket in it. What is deployed, and what a record says of it, is the caller's.
//
// On disk, below the folder of all: <key>/lock is locked for the owner's life; <key>/record.json says what it holds; <key>/control is the socket;
// <key>/owner.log is what it wrote.
package owner

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/ref"
)

// ErrNotFound: no deployment of that name stands.
var ErrNotFound = errors.New("is not deployed")

// States of a Head.
const (
	Starting = "starting"
	Running  = "running"
	Dead     = "dead" // its owner is gone; Sweep removes what it left
)

// Head is what every record says. Records embed it.
type Head struct {
	Instance string    `json:"instance_id"`
	State    string    `json:"state"`
	PID      int       `json:"pid"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`

	key string
}

func (h *Head) head() *Head { return h }

// Record is a pointer to a record: a struct that embeds Head, and knows the id of what is deployed.
type Record[R any] interface {
	*R
	head() *Head
	Of() string
}

// Words are what messages call things.
type Words struct {
	Noun string // "environment"
	List string // the command that lists deployments
	Stop string // the command that stops one
}

// Folder is the folder of all deployments of one sort of a state root.
type Folder[R any, P Record[R]] struct {
	path  string
	words Words
}

// Open answers the folder, which the first deployment makes.
func Open[R any, P Record[R]](path string, w Words) *Folder[R, P] { return &Folder[R, P]{path, w} }

const (
	lockFile   = "lock"
	recordFile = "record.json"
	socketFile = "control"
	logFile    = "owner.log"
)

// At is a file of a deployment's own folder, which goes with the deployment.
func (f *Folder[R, P]) At(key, name string) string { return filepath.Join(f.path, key, name) }

// newKey makes a folder for a deployment of an id and answers its name.
func (f *Folder[R, P]) newKey(id string) (string, error) {
	if err := atomicfile.MkdirAll(f.path); err != nil {
		return "", err
	}
	key := ref.Slug(ref.Last(id))
	key = key[:min(len(key), 40)] + "-" + strings.ToLower(rand.Text()[:8])
	return key, os.Mkdir(filepath.Join(f.path, key), 0o700)
}

// Instance is the id of the deployment of a key.
func Instance(id, key string) string { return id + key[strings.LastIndexByte(key, '-'):] }

// alive tells whether a deployment's owner lives.
func (f *Folder[R, P]) alive(key string) bool {
	_, held := atomicfile.Held(f.At(key, lockFile))
	return held
}

// List tells of every deployment, newest first, those whose owner is gone included. A record that can't be read is passed over.
func (f *Folder[R, P]) List() ([]R, error) {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []R
	for _, e := range entries {
		if r, err := f.read(e.Name()); err == nil {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b R) int { return P(&b).head().Created.Compare(P(&a).head().Created) })
	return out, nil
}

// Heads are those of List.
func (f *Folder[R, P]) Heads() ([]Head, error) {
	all, err := f.List()
	var out []Head
	for i := range all {
		out = append(out, *P(&all[i]).head())
	}
	return out, err
}

func (f *Folder[R, P]) read(key string) (R, error) {
	var r R
	b, err := os.ReadFile(f.At(key, recordFile))
	if err != nil {
		return r, err
	}
	h := P(&r).head()
	if err := json.Unmarshal(b, &r); err != nil || h.Instance == "" {
		return r, fmt.Errorf("the record of %s can't be read", diag.Repr(key))
	}
	h.key = key
	if !f.alive(key) {
		h.State = Dead
	}
	return r, nil
}

// Write makes r the record of a deployment.
func (f *Folder[R, P]) Write(key string, r R) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(f.At(key, recordFile), 0o600, append(b, '\n'))
}

// Find finds a living deployment, also one that still starts, by its instance id, the id of what is deployed where that is deployed once, or else the
// beginning of an instance id. ErrNotFound.
func (f *Folder[R, P]) Find(text string) (R, error) {
	var none R
	all, err := f.List()
	if err != nil {
		return none, err
	}
	var found, begun []R // whose id text is, and whose it begins
	var names, ids []string
	for _, r := range all {
		h := P(&r).head()
		if h.State == Dead {
			continue
		}
		names = append(names, h.Instance)
		of := P(&r).Of()
		switch {
		case h.Instance == text:
			return r, nil
		case text == "":
		case of == text || ref.Last(of) == text:
			found = append(found, r)
		case strings.HasPrefix(h.Instance, text) || strings.HasPrefix(ref.Last(h.Instance), text):
			begun = append(begun, r)
		}
	}
	if len(found) == 0 { // a whole id is never taken for the beginning of another
		found = begun
	}
	for _, r := range found {
		ids = append(ids, P(&r).head().Instance)
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		fix := f.words.List + " shows what is"
		if near := diag.Nearest(text, names); near != "" {
			fix = "did you mean " + diag.Repr(near) + "?"
		}
		return none, fmt.Errorf("%s %s %w; %s", f.words.Noun, diag.Repr(text), ErrNotFound, fix)
	default:
		return none, fmt.Errorf("%s is several deployments; name one of %s", diag.Repr(text), strings.Join(ids, ", "))
	}
}

// Sweep removes what owners left that are gone and answers the instances. It never touches a living one.
func (f *Folder[R, P]) Sweep(context.Context) ([]string, error) {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var swept []string
	errs := []error{err}
	for _, e := range entries {
		key := e.Name()
		info, err := e.Info()
		locked, alive := atomicfile.Held(f.At(key, lockFile)) // without a lock it is being made, or removed
		if err != nil || alive || !locked && time.Since(info.ModTime()) < startGrace {
			continue
		}
		name := key
		if r, err := f.read(key); err == nil {
			name = P(&r).head().Instance
		}
		if err := os.RemoveAll(filepath.Join(f.path, key)); err != nil {
			errs = append(errs, err)
			continue
		}
		swept = append(swept, name)
	}
	return swept, errors.Join(errs...)
}

// startGrace is how long a folder without a lock is taken for one that is being made.
const startGrace = time.Minute
