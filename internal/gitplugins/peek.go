package gitplugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/plugin/pack"
)

// Peek is what a repository holds. Its files are held until Close.
type Peek struct {
	Item     *git.Item
	Pack     *pack.Manifest // of a plugin bundle; nil of a plugin
	Members  []Peeked       // of a plugin bundle, in file order
	Problems diag.List      // of the bundle's manifest
	items    git.Items
}

// Peeked is a member of a plugin bundle, looked at.
type Peeked struct {
	pack.Member
	Item *git.Item // nil of one that comes with the program, or can't be looked at
	Err  error
}

// Close lets go of the files.
func (p *Peek) Close() error { return p.items.Close() }

// Look looks at what a repository holds, and at the members that a plugin bundle names. Nothing of a workspace changes, and a member that can't
// be looked at stops no other.
func (p *Plugins) Look(ctx context.Context, url, ref string) (_ *Peek, err error) {
	s, err := p.looker(ctx)
	if err != nil {
		return nil, err
	}
	items, err := s.Fetch(ctx, []git.Want{{URL: url, Ref: ref, By: "peek"}})
	if err != nil {
		return nil, err
	}
	out := &Peek{Item: items[0], items: items}
	if out.Item.Kind == git.Bundle {
		err = p.peekPack(ctx, s, out)
	}
	if err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return out, nil
}

// peekPack reads a bundle's manifest and looks at its members, some at a time.
func (p *Plugins) peekPack(ctx context.Context, s *git.Store, out *Peek) error {
	var err error
	if out.Pack, out.Problems, err = pack.Read(os.DirFS(out.Item.Fetched.Dir)); err != nil {
		return err
	}
	if out.Pack == nil {
		return fmt.Errorf("%s: its bundle manifest can't be used:\n%w", out.Item.Fetched.Source, out.Problems.Err())
	}
	wants := map[string]git.Want{}
	for _, w := range pack.Wants(out.Pack, out.Item.Fetched.Source) {
		wants[w.Declared] = w
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	slots := make(chan struct{}, 4)
	out.Members = make([]Peeked, len(out.Pack.Members))
	for i, m := range out.Pack.Members {
		out.Members[i].Member = m
		w, ok := wants[m.ID]
		if !ok {
			if !slices.Contains(p.builtins(), m.ID) {
				out.Members[i].Err = errors.New("it is said to come with the program, and doesn't come with this one")
			}
			continue
		}
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			items, err := s.Fetch(ctx, []git.Want{w})
			if err != nil {
				out.Members[i].Err = err
				return
			}
			out.Members[i].Item = items[0]
			mu.Lock()
			defer mu.Unlock()
			out.items = append(out.items, items...)
		})
	}
	wg.Wait()
	return ctx.Err()
}

// VerifyBundle looks at the plugin bundle in a folder as an install would: its manifest, and its members at the refs that it pins. It answers what it
// saw, and what is wrong with each member and with the bundle ("").
func (p *Plugins) VerifyBundle(ctx context.Context, dir string) (_ *Peek, wrong map[string][]string, err error) {
	s, err := p.looker(ctx)
	if err != nil {
		return nil, nil, err
	}
	dir = p.abs(dir)
	src, err := git.ParseSource(dir)
	if err != nil {
		return nil, nil, err
	}
	kind, _, err := git.Detect(os.DirFS(dir))
	if err == nil && kind != git.Bundle {
		err = errors.New("it is no plugin bundle")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", dir, err)
	}
	out := &Peek{Item: &git.Item{Kind: git.Bundle, Fetched: git.Fetched{Source: src, Dir: dir}}}
	if err := p.peekPack(ctx, s, out); err != nil {
		return nil, nil, errors.Join(err, out.Close())
	}
	wrong = map[string][]string{}
	for _, p := range out.Problems.Of(diag.Error) {
		wrong[""] = append(wrong[""], p.String())
	}
	for _, id := range out.Pack.On() {
		if out.Pack.Member(id) == nil && !slices.Contains(p.builtins(), id) {
			wrong[""] = append(wrong[""], fmt.Sprintf("%s: enabled names %s, which is no member", out.Pack.File, diag.Repr(id)))
		}
	}
	for _, m := range out.Members {
		if m.Err != nil {
			wrong[m.ID] = append(wrong[m.ID], m.Err.Error())
		}
		if m.Item != nil && m.Item.Manifest != nil {
			wrong[m.ID] = append(wrong[m.ID], unusable(s, m.Item)...)
		}
	}
	return out, wrong, nil
}

// unusable says what of a plugin could not be used here.
func unusable(s *git.Store, i *git.Item) []string {
	var out []string
	if why := s.TooNew(i.Manifest); why != "" {
		out = append(out, why)
	}
	if len(i.Manifest.Command) > 0 && len(i.Manifest.Types) == 0 {
		out = append(out, "nothing that can be read tells which types its program serves (agentenv_plugin.json)")
	}
	if len(i.Manifest.Command) > 0 && strings.Contains(i.Manifest.Command[0], "/") && !filepath.IsAbs(i.Manifest.Command[0]) {
		name := i.Manifest.Command[0]
		fi, err := fs.Stat(os.DirFS(i.Fetched.Dir), filepath.ToSlash(filepath.Clean(name)))
		if err != nil || !fi.Mode().IsRegular() || fi.Mode()&0o111 == 0 {
			out = append(out, fmt.Sprintf("its program %s is not there, or can't be run", diag.Repr(name)))
		}
	}
	return out
}

// Pin is a member of a plugin bundle whose release is pinned.
type Pin struct {
	ID, Old, New string // New is Old where nothing newer is there
	Err          error
}

// BumpPins rewrites the releases' tags that a plugin bundle in a folder pins to those of the newest releases; all else of the file stays. One whose
// source doesn't answer stays as it is.
func (p *Plugins) BumpPins(ctx context.Context, dir string, dry bool) ([]Pin, error) {
	s, err := p.looker(ctx)
	if err != nil {
		return nil, err
	}
	dir = p.abs(dir)
	m, l, err := pack.Read(os.DirFS(dir))
	if err == nil {
		err = l.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	file := filepath.Join(dir, m.File)
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	t, l := doc.ParseYAML(m.File, src)
	if err := l.Err(); err != nil {
		return nil, err
	}
	out := []Pin{}
	var edits []doc.Edit
	asked := map[string]Pin{}
	for i, n := range t.Root().Get("plugins").Items() {
		id := n.Get("id").Text()
		x := m.Member(id)
		if x == nil || x.Builtin || !git.IsRelease(x.Ref) {
			continue
		}
		pin, again := asked[id]
		if !again {
			pin = Pin{ID: id, Old: x.Ref}
			pin.New, pin.Err = s.Newest(ctx, x.Source, x.Ref, false)
			asked[id] = pin
			out = append(out, pin)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if pin.Err == nil && pin.New != pin.Old {
			edits = append(edits, doc.Set(pin.New, "plugins", i, "ref"))
		}
	}
	if dry || len(edits) == 0 {
		return out, nil
	}
	if src, err = doc.Splice(t, edits...); err != nil {
		return nil, err
	}
	fi, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	return out, atomicfile.WriteBytes(file, fi.Mode().Perm(), src)
}
