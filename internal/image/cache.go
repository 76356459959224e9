package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/treestore"
)

// Entry is an image of the store.
type Entry struct {
	Refs     []string  `json:"refs"` // that name it; empty for one that lost its name to a newer image
	Digest   string    `json:"digest"`
	Platform string    `json:"platform"`
	Layers   int       `json:"layers"`
	Bytes    int64     `json:"bytes"` // of its files
	Own      int64     `json:"own"`   // of Bytes, in layers that no other image has
	Files    int       `json:"files"`
	Pulled   time.Time `json:"pulled"`
	LastUsed time.Time `json:"last_used"`
	InUse    bool      `json:"in_use"`
	Owners   string    `json:"owners"` // OwnersAll, OwnersSub or OwnersOne
	key      string
	record   *record
}

// List is every image, by its first reference. A damaged one is left out, and goes with the next Prune.
func (s *Store) List(ctx context.Context) ([]Entry, error) {
	trees, err := s.trees.List(ctx)
	if err != nil {
		return nil, err
	}
	refs, err := s.refs()
	if err != nil {
		return nil, err
	}
	named := map[string][]string{}
	for _, r := range refs {
		named[r.Image] = append(named[r.Image], r.Ref)
	}
	users := map[string]int{}
	var out []Entry
	for _, t := range trees {
		if !strings.HasPrefix(t.Key, imagePrefix) {
			continue
		}
		r, err := readRecord(t.Path)
		if err != nil {
			continue
		}
		e := Entry{
			Refs: append([]string{}, named[t.Key]...), Digest: r.Digest, Platform: r.Platform, Layers: len(r.Layers), Pulled: r.Pulled,
			LastUsed: t.LastUsed, InUse: t.InUse, Owners: ownersIn(t.Key), key: t.Key, record: r,
		}
		slices.Sort(e.Refs)
		for _, l := range r.Layers {
			e.Bytes, e.Files = e.Bytes+l.Bytes, e.Files+l.Files
			users[l.Key]++
		}
		out = append(out, e)
	}
	for i := range out {
		for _, l := range out[i].record.Layers {
			if users[l.Key] == 1 {
				out[i].Own += l.Bytes
			}
		}
	}
	slices.SortFunc(out, func(a, b Entry) int { return strings.Compare(a.name(), b.name()) })
	return out, nil
}

// name is what an image is sorted by.
func (e *Entry) name() string {
	if len(e.Refs) > 0 {
		return e.Refs[0]
	}
	return "~" + e.Digest
}

func ownersIn(key string) string {
	rest := strings.TrimPrefix(key, imagePrefix)
	for _, kind := range []string{OwnersAll, OwnersSub} {
		if strings.HasPrefix(rest, kind) {
			return kind
		}
	}
	return OwnersOne
}

// Find answers the image that a reference, a digest or the beginning of one (of 12 characters or more) names; ErrNotFound otherwise.
func (s *Store) Find(ctx context.Context, text string) (Entry, error) {
	all, err := s.List(ctx)
	if err != nil {
		return Entry{}, err
	}
	key := ""
	if src, err := Parse(text); err == nil {
		key = src.key()
	}
	var found []Entry
	hex := strings.TrimPrefix(text, "sha256:")
	for _, e := range all {
		if slices.Contains(e.Refs, key) || key == e.record.Ref || len(hex) >= 12 && strings.HasPrefix(strings.TrimPrefix(e.Digest, "sha256:"), hex) {
			found = append(found, e)
		}
	}
	switch {
	case len(found) == 0:
		return Entry{}, fmt.Errorf("%w here: %s", ErrNotFound, text)
	case len(found) > 1 && found[0].Digest != found[1].Digest:
		return Entry{}, fmt.Errorf("%s is the beginning of several images' digests", text)
	}
	return found[0], nil
}

// Pruned is what was removed.
type Pruned struct {
	Images []Entry `json:"images"`
	Busy   []Entry `json:"busy"`  // would have gone, but are in use
	Bytes  int64   `json:"bytes"` // of the layers that went
	Left   int64   `json:"left"`  // bytes of the layers that are still here
}

// Remove takes an image's names and the image itself away, with the layers that no other image has. ErrInUse while a sandbox runs on it.
func (s *Store) Remove(ctx context.Context, text string) (Pruned, error) {
	e, err := s.Find(ctx, text)
	if err != nil {
		return Pruned{}, err
	}
	if err := s.trees.Remove(e.key); err != nil {
		if errors.Is(err, treestore.ErrInUse) {
			err = fmt.Errorf("%w: %s", ErrInUse, text)
		}
		return Pruned{}, err
	}
	out, err := s.sweep(ctx)
	out.Images = append(out.Images, e)
	return out, err
}

// Prune removes the images that were used longest ago until the layers take at most most bytes, and what nothing names. An image that is in
// use stays. It goes on after a failure, and joins all of them.
func (s *Store) Prune(ctx context.Context, most int64) (Pruned, error) {
	var out Pruned
	all, err := s.List(ctx)
	if err != nil {
		return out, err
	}
	slices.SortFunc(all, func(a, b Entry) int { return a.LastUsed.Compare(b.LastUsed) })
	users, total := map[string]int{}, int64(0)
	for _, e := range all {
		for _, l := range e.record.Layers {
			if users[l.Key]++; users[l.Key] == 1 {
				total += l.Bytes
			}
		}
	}
	var errs []error
	for _, e := range all {
		if total <= most && len(e.Refs) > 0 {
			continue
		}
		err := s.trees.Remove(e.key)
		if errors.Is(err, treestore.ErrInUse) {
			e.InUse = true
			out.Busy = append(out.Busy, e)
			continue
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out.Images = append(out.Images, e)
		for _, l := range e.record.Layers {
			if users[l.Key]--; users[l.Key] == 0 {
				total -= l.Bytes
			}
		}
	}
	swept, err := s.sweep(ctx)
	out.Bytes, out.Left = swept.Bytes, swept.Left
	return out, errors.Join(append(errs, err)...)
}

// sweep removes the layers that no image has and the references whose image is gone.
func (s *Store) sweep(ctx context.Context) (out Pruned, err error) {
	if _, err := os.Stat(s.o.Dir); errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	gate, err := s.gate(ctx, false)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, gate.Unlock()) }()
	images, err := s.List(ctx)
	if err != nil {
		return out, err
	}
	wanted := map[string]int64{}
	there := map[string]bool{}
	for _, e := range images {
		there[e.key] = true
		for _, l := range e.record.Layers {
			wanted[l.Key] = l.Bytes
		}
	}
	pruned, err := s.trees.Prune(ctx, func(t treestore.Entry) bool {
		if strings.HasPrefix(t.Key, imagePrefix) {
			return there[t.Key] || t.InUse
		}
		_, ok := wanted[t.Key]
		return ok
	})
	for _, t := range pruned.Removed {
		out.Bytes += t.Bytes
	}
	for _, n := range wanted {
		out.Left += n
	}
	refs, rerr := s.refs()
	errs := []error{err, rerr}
	for path, r := range refs {
		if !s.trees.Has(r.Image) {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return out, errors.Join(errs...)
}
