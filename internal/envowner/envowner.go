// Package envowner keeps environments up that outlive the command that deployed them.
//
// An owner is a process of this program that holds one deployment: its sandboxes are tied to it, its gateway lives in it, and it ends when it is told to,
// when the deployment's time is up, or when it is killed; the sandboxes go with it in each case. A folder of the state root tells other commands of it.
// What such a folder says holds no secret: other commands of the same user reach the owner by a socket in it.
//
// On disk, below the folder of all: <key>/lock is locked for the owner's life; <key>/record.json says what it holds; <key>/control is the socket;
// <key>/owner.log is what it wrote.
package envowner

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

// States of a Record.
const (
	Starting = "starting"
	Running  = "running"
	Dead     = "dead" // its owner is gone; Sweep removes what it left
)

// Record is what is known of a deployment.
type Record struct {
	Instance string    `json:"instance_id"`
	Env      string    `json:"env_id"`
	Version  int       `json:"env_version"`
	Type     string    `json:"env_type"`
	Server   string    `json:"mcp_server_name,omitempty"`
	Mode     string    `json:"gateway_mode"`
	State    string    `json:"state"`
	PID      int       `json:"pid"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
	Boxes    []Box     `json:"sandboxes,omitempty"`

	key string
}

// Box is the sandbox of one server.
type Box struct {
	Name     string `json:"name"` // environment_name
	ID       string `json:"sandbox_id"`
	Provider string `json:"provider"`
}

// Folder is the folder of all deployments of a state root.
type Folder struct{ path string }

// Open answers the folder, which the first deployment makes.
func Open(path string) *Folder { return &Folder{path} }

const (
	lockFile   = "lock"
	recordFile = "record.json"
	socketFile = "control"
	logFile    = "owner.log"
)

func (f *Folder) at(key, name string) string { return filepath.Join(f.path, key, name) }

// newKey makes a folder for a deployment and answers its name.
func (f *Folder) newKey(env string) (string, error) {
	if err := atomicfile.MkdirAll(f.path); err != nil {
		return "", err
	}
	key := ref.Slug(ref.Last(env))
	key = key[:min(len(key), 40)] + "-" + strings.ToLower(rand.Text()[:8])
	return key, os.Mkdir(filepath.Join(f.path, key), 0o700)
}

// alive tells whether a deployment's owner lives.
func (f *Folder) alive(key string) bool {
	if _, err := os.Stat(f.at(key, lockFile)); err != nil {
		return false
	}
	l, err := atomicfile.TryLock(f.at(key, lockFile))
	if err != nil {
		return true // held, or not to be told: then it is left alone
	}
	_ = l.Unlock()
	return false
}

// List tells of every deployment, newest first, those whose owner is gone included. A record that can't be read is passed over.
func (f *Folder) List() ([]Record, error) {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Record
	for _, e := range entries {
		if r, err := f.read(e.Name()); err == nil {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return b.Created.Compare(a.Created) })
	return out, nil
}

func (f *Folder) read(key string) (Record, error) {
	b, err := os.ReadFile(f.at(key, recordFile))
	if err != nil {
		return Record{}, err
	}
	var r Record
	if err := json.Unmarshal(b, &r); err != nil || r.Instance == "" {
		return Record{}, fmt.Errorf("the record of %s can't be read", diag.Repr(key))
	}
	r.key = key
	if !f.alive(key) {
		r.State = Dead
	}
	return r, nil
}

func (f *Folder) write(r Record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteBytes(f.at(r.key, recordFile), 0o600, append(b, '\n'))
}

// Find finds a living deployment, also one that still starts, by its instance id, the beginning of it, or its environment's id where it is deployed once. ErrNotFound.
func (f *Folder) Find(text string) (Record, error) {
	all, err := f.List()
	if err != nil {
		return Record{}, err
	}
	all = slices.DeleteFunc(all, func(r Record) bool { return r.State == Dead })
	var found []Record
	var names []string
	for _, r := range all {
		names = append(names, r.Instance)
		if r.Instance == text {
			return r, nil
		}
		if text != "" && (r.Env == text || ref.Last(r.Env) == text || strings.HasPrefix(r.Instance, text) || strings.HasPrefix(ref.Last(r.Instance), text)) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		fix := "agent-env env list --deployed shows what is"
		if near := diag.Nearest(text, names); near != "" {
			fix = "did you mean " + diag.Repr(near) + "?"
		}
		return Record{}, fmt.Errorf("environment %s %w; %s", diag.Repr(text), ErrNotFound, fix)
	default:
		var ids []string
		for _, r := range found {
			ids = append(ids, r.Instance)
		}
		return Record{}, fmt.Errorf("%s is several deployments; name one of %s", diag.Repr(text), strings.Join(ids, ", "))
	}
}

// Sweep removes what owners left that are gone and answers the instances. It never touches a living one.
func (f *Folder) Sweep(context.Context) ([]string, error) {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var swept []string
	errs := []error{err}
	for _, e := range entries {
		key := e.Name()
		info, err := e.Info()
		if err != nil || f.alive(key) || time.Since(info.ModTime()) < startGrace && !f.locked(key) {
			continue // one that is just being made has no lock yet
		}
		name := key
		if r, err := f.read(key); err == nil {
			name = r.Instance
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

func (f *Folder) locked(key string) bool {
	_, err := os.Stat(f.at(key, lockFile))
	return err == nil
}
