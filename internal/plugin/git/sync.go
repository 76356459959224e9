package git

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"agentenv.internal/agentenv/internal/treestore"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// State is what is here of a locked plugin.
type State string

// States. Restored, Fetched and Failed come from Sync alone.
const (
	Present  State = "present"   // here, and unchanged where that was looked at
	Missing  State = "missing"   // the files are not here
	Modified State = "modified"  // the files here are others than the lock says
	Unpinned State = "unpinned"  // here, but the lock, of an older format, names no digest
	Restored State = "restored"  // modified files were replaced
	Arrived  State = "installed" // missing files were fetched
	Failed   State = "failed"
	Shipped  State = "superseded" // what comes with the program takes its place
)

// Standing is a row of the lock and what is here of it.
type Standing struct {
	ID     string
	Bundle bool // a bundle's own repository
	Row    Row  // of a bundle: what it has in common with a plugin's
	State  State
	Err    error // why it failed
}

// standings are the rows of a lock: plugins by id, then bundles.
func standings(l *Lock) []Standing {
	var out []Standing
	for _, r := range l.Plugins {
		out = append(out, Standing{ID: r.ID, Row: r})
	}
	for _, b := range l.Bundles {
		out = append(out, Standing{ID: b.ID, Bundle: true, Row: Row{
			ID: b.ID, SourceURL: b.SourceURL, RequestedRef: b.RequestedRef, ResolvedSHA: b.ResolvedSHA, TreeSHA256: b.TreeSHA256, Fetch: b.Fetch, InstalledAt: b.InstalledAt, By: b.By,
		}})
	}
	return out
}

// List is every plugin and bundle of the lock, and whether its files are here. Files are not read.
func (s *Store) List(ctx context.Context) ([]Standing, *Lock, error) {
	l, err := s.Lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	out := standings(l)
	for i := range out {
		out[i].State = s.state(out[i].Row)
	}
	return out, l, nil
}

func (s *Store) state(r Row) State {
	src, err := ParseSource(r.SourceURL)
	if err == nil {
		if _, ok := s.superseding(src); ok {
			return Shipped
		}
	}
	switch {
	case s.builtin(r.ID) && r.SourceURL == "":
		return Shipped
	case r.TreeSHA256 != "" && treeForm().MatchString(r.TreeSHA256) && s.trees.Has(r.TreeSHA256):
		return Present
	case r.TreeSHA256 != "" || err != nil:
		return Missing
	}
	if k, ok := s.knownTree(src, r.ResolvedSHA); ok && s.trees.Has(k.Tree) {
		return Unpinned
	}
	return Missing
}

// Verify is List with all files read and compared with the lock.
func (s *Store) Verify(ctx context.Context) ([]Standing, error) {
	out, _, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	each(len(out), func(i int) {
		st := &out[i]
		if st.State != Present {
			return
		}
		if err := s.Check(ctx, st.Row.TreeSHA256); err != nil {
			st.State = Missing
			if errors.Is(err, ErrModified) {
				st.State = Modified
			}
		}
	})
	return out, ctx.Err()
}

// each does work for 0 to n-1, some at a time.
func each(n int, work func(i int)) {
	slots := make(chan struct{}, parallel)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			work(i)
		})
	}
	wg.Wait()
}

// Sync brings back what the lock names, at the commits that it names, and asks no server for what is here unchanged. Rows keep who installed them
// and the ref that was asked for; those of the first format get the digest of what was fetched. One that fails stops no other.
func (s *Store) Sync(ctx context.Context) ([]Standing, error) {
	all, err := s.Verify(ctx)
	if err != nil {
		return nil, err
	}
	digests := make(map[string]Fetched)
	var mu sync.Mutex
	var held Items
	defer func() { _ = held.Close() }()
	each(len(all), func(i int) {
		st := &all[i]
		if st.State == Present || st.State == Shipped {
			return
		}
		item, err := s.bringBack(ctx, st)
		if err != nil {
			if !errors.Is(err, treestore.ErrInUse) { // else it stays modified
				st.State = Failed
			}
			st.Err = err
			return
		}
		switch st.State {
		case Modified:
			st.State = Restored
		case Unpinned:
			st.State = Present
		default:
			st.State = Arrived
		}
		mu.Lock()
		defer mu.Unlock()
		held = append(held, item)
		if st.Row.TreeSHA256 == "" {
			digests[key(st.Bundle, st.ID)] = item.Fetched
		}
	})
	if err := ctx.Err(); err != nil {
		return all, context.Cause(ctx)
	}
	if len(digests) == 0 {
		return all, nil
	}
	return all, s.Change(ctx, func(_ *folder.Tx, l *Lock) error {
		for i, r := range l.Plugins {
			if f, ok := digests[key(false, r.ID)]; ok && r.TreeSHA256 == "" && r.ResolvedSHA == f.Commit {
				l.Plugins[i].TreeSHA256, l.Plugins[i].Fetch = f.Tree, f.By
			}
		}
		for i, b := range l.Bundles {
			if f, ok := digests[key(true, b.ID)]; ok && b.TreeSHA256 == "" && b.ResolvedSHA == f.Commit {
				l.Bundles[i].TreeSHA256, l.Bundles[i].Fetch = f.Tree, f.By
			}
		}
		return nil
	})
}

func key(bundle bool, id string) string { return fmt.Sprint(bundle, " ", id) }

// bringBack fetches one row again.
func (s *Store) bringBack(ctx context.Context, st *Standing) (*Item, error) {
	r := st.Row
	if r.SourceURL == "" {
		return nil, errors.New("the lock doesn't say where it came from")
	}
	if !fullSHA().MatchString(r.ResolvedSHA) {
		return nil, errors.New("the lock names no commit of it")
	}
	items, err := s.Fetch(ctx, []Want{{URL: r.SourceURL, Ref: r.RequestedRef, Commit: r.ResolvedSHA, Tree: r.TreeSHA256, By: r.By}})
	if err != nil {
		return nil, err
	}
	i := items[0]
	kind := Plugin
	if st.Bundle {
		kind = Bundle
	}
	if i.Kind != kind || kind == Plugin && i.ID() != r.ID {
		return nil, errors.Join(fmt.Errorf("%s is no %s %s", i.Fetched.Source, kind, r.ID), items.Close())
	}
	return i, nil
}
