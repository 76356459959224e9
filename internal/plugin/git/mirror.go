package git

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/treestore"
)

// A mirror is a folder, or the same folder behind an http address, with trees of git plugins: what it has is taken from it, and no source is asked. It holds
// index.json and, for each tree, its files as TREE.tar below one folder. Vendor writes one.
const (
	mirrorIndex  = "index.json"
	mirrorFormat = 1
	mirrorTop    = "tree" // the folder that a tar holds
	maxIndex     = 16 << 20
	mirrorWait   = 30 * time.Second // for the head of an answer
)

// mirrored is index.json.
type mirrored struct {
	Format  int                        `json:"format_version"`
	Sources map[string]*mirroredSource `json:"sources"` // by Source.Key
}

// mirroredSource is what a mirror has of one source.
type mirroredSource struct {
	Refs    map[string]string `json:"refs"`    // as asked for, "" the default branch, to commits
	Commits map[string]string `json:"commits"` // to trees
}

// mirror is a mirror that is read.
type mirror struct {
	at    string // a folder, or an address without a slash at its end
	index mirrored
}

// CheckMirror says what is wrong with the place of a mirror.
func CheckMirror(at string, plainHTTP bool) error {
	u, err := url.Parse(at)
	switch {
	case filepath.IsAbs(at):
		return nil
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("mirror in [git_plugins.sources] is %s: write an absolute path of a folder, or its https:// address", diag.Repr(withoutSecrets(at)))
	case u.Scheme == HTTP && !plainHTTP:
		return errors.New("mirror in [git_plugins.sources] is not encrypted; use https://, or set plain_http = true there")
	case u.Scheme != HTTPS && u.Scheme != HTTP:
		return fmt.Errorf("mirror in [git_plugins.sources] has the transport %s; use https://, or the absolute path of a folder", diag.Repr(u.Scheme))
	}
	return nil
}

// openMirror reads a mirror's index.
func openMirror(ctx context.Context, at string) (_ *mirror, err error) {
	m := &mirror{at: strings.TrimRight(at, "/")}
	defer func() {
		if err != nil {
			err = fmt.Errorf("the mirror %s can't be used: %w", at, err)
		}
	}()
	r, err := m.open(ctx, mirrorIndex)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	m.index, err = readIndex(r)
	return m, err
}

func readIndex(r io.Reader) (mirrored, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxIndex+1))
	if err != nil {
		return mirrored{}, err
	}
	return parseMirror(b)
}

// parseMirror reads an index. Names of trees and commits in it are digits and nothing else.
func parseMirror(b []byte) (mirrored, error) {
	var out mirrored
	if len(b) > maxIndex {
		return out, fmt.Errorf("its %s has more than %d MiB", mirrorIndex, maxIndex>>20)
	}
	if err := json.Unmarshal(b, &out); err != nil {
		return out, fmt.Errorf("its %s can't be read: %w", mirrorIndex, err)
	}
	if out.Format != mirrorFormat {
		return out, fmt.Errorf("its %s has format_version %d, and this agent-env knows %d", mirrorIndex, out.Format, mirrorFormat)
	}
	for key, s := range out.Sources {
		if s == nil {
			return out, fmt.Errorf("its %s says nothing of %s", mirrorIndex, diag.Repr(key))
		}
		for commit, tree := range s.Commits {
			if !fullSHA().MatchString(commit) || !treeForm().MatchString(tree) {
				return out, fmt.Errorf("its %s has a commit or a tree of %s that can't be", mirrorIndex, diag.Repr(key))
			}
		}
		for ref, commit := range s.Refs {
			if CheckRef(ref) != nil || s.Commits[commit] == "" {
				return out, fmt.Errorf("its %s has a ref %s of %s without a commit", mirrorIndex, diag.Repr(ref), diag.Repr(key))
			}
		}
	}
	return out, nil
}

// open opens a file of the mirror.
func (m *mirror) open(ctx context.Context, name string) (io.ReadCloser, error) {
	if filepath.IsAbs(m.at) {
		return os.Open(filepath.Join(m.at, name))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.at+"/"+name, nil)
	if err != nil {
		return nil, err
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.ResponseHeaderTimeout, transport.DisableKeepAlives = mirrorWait, true
	client := &http.Client{Transport: transport, Timeout: CloneTime, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if len(via) > maxRedirects {
			return errors.New("it leads on more often than can be meant")
		}
		if r.URL.Host != via[0].URL.Host || r.URL.Scheme != via[0].URL.Scheme {
			return fmt.Errorf("it leads elsewhere, to %s", r.URL.Host)
		}
		return nil
	}}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(fmt.Errorf("%s answers %d", name, resp.StatusCode), resp.Body.Close())
	}
	return resp.Body, nil
}

// refs are the refs of a source as a source names them, where the mirror has ref; else nil.
func (m *mirror) refs(src Source, ref string) map[string]string {
	if m == nil {
		return nil
	}
	s := m.index.Sources[src.Key()]
	if s == nil || s.Refs[ref] == "" {
		return nil
	}
	out := map[string]string{}
	for name, commit := range s.Refs {
		out[guess(name)] = commit // it knows names as they were asked for, and not whether they are of branches or of tags
	}
	return out
}

// find is the commit that a ref means in the mirror, and its tree; false for what it doesn't have.
func (m *mirror) find(src Source, r Resolved) (_ Resolved, tree string, ok bool) {
	s := m.index.Sources[src.Key()]
	if s == nil {
		return r, "", false
	}
	if r.Commit == "" {
		r.Commit = s.Refs[r.Ref]
	}
	if r.Commit == "" && hexForm().MatchString(r.Ref) {
		for commit := range s.Commits {
			if strings.HasPrefix(commit, strings.ToLower(r.Ref)) {
				if r.Commit != "" {
					return r, "", false // which of them is meant has to be asked
				}
				r.Commit = commit
			}
		}
	}
	tree = s.Commits[r.Commit]
	return r, tree, tree != ""
}

// fetch unpacks a tree into dst, an empty folder.
func (m *mirror) fetch(ctx context.Context, f *Fetcher, src Source, r Resolved, tree, dst string) (Fetched, error) {
	out := Fetched{Source: src, Ref: r.Ref, Commit: r.Commit, Dir: dst, By: ByMirror}
	if err := os.MkdirAll(f.o.Dir, 0o700); err != nil {
		return out, err
	}
	in, err := m.open(ctx, tree+".tar")
	if err != nil {
		return out, about(src, fmt.Errorf("the mirror %s lacks its files: %w", m.at, err))
	}
	defer in.Close()
	files, err := f.unpacked(ctx, in, dst)
	if err != nil {
		return out, about(src, fmt.Errorf("its files in the mirror %s: %w", m.at, err))
	}
	for _, e := range files {
		out.Bytes += e.size
	}
	if out.Tree, out.Files = treeSum(files), len(files); out.Tree != tree {
		return out, about(src, fmt.Errorf("the mirror %s has other files (%.12s…) than it says (%.12s…)", m.at, out.Tree, tree))
	}
	return out, nil
}

// unpacked unpacks an archive of one folder and reads what it held.
func (f *Fetcher) unpacked(ctx context.Context, r io.Reader, dst string) ([]entry, error) {
	if err := f.unpack(ctx, r, dst); err != nil {
		return nil, err
	}
	files, err := walk(ctx, os.DirFS(dst))
	if err == nil {
		err = checkFiles(files, f.o.Limits)
	}
	return files, err
}

// Vendored is what Vendor wrote of one row.
type Vendored struct {
	ID     string
	Bundle bool
	Source Source
	Ref    string
	Commit string
	Tree   string
	Fresh  bool // its files weren't in the mirror yet
}

// Vendor writes everything that the workspace's lock names into a mirror: a folder, which is made, or holds one already that this is added to. All
// of it has to be here, unchanged. The index is written last.
func (s *Store) Vendor(ctx context.Context, dir string) ([]Vendored, error) {
	l, err := s.Lock(ctx)
	if err != nil {
		return nil, err
	}
	m := &mirror{at: dir}
	if m.index, err = readMirror(filepath.Join(dir, mirrorIndex)); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	if err := atomicfile.MkdirAll(dir); err != nil {
		return nil, err
	}
	out := []Vendored{}
	var errs []error
	for _, st := range standings(l) {
		if s.state(st.Row) == Shipped {
			continue
		}
		v, err := s.vendor(ctx, m, st)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", st.ID, err))
			continue
		}
		out = append(out, v)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(m.index, "", "  ")
	if err != nil {
		return nil, err
	}
	return out, atomicfile.WriteBytes(filepath.Join(dir, mirrorIndex), 0o644, append(b, '\n'))
}

// readMirror reads the index in a folder; an empty one where there is none.
func readMirror(file string) (mirrored, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return mirrored{Format: mirrorFormat, Sources: map[string]*mirroredSource{}}, nil
	}
	if err != nil {
		return mirrored{}, err
	}
	defer f.Close()
	out, err := readIndex(f)
	if out.Sources == nil {
		out.Sources = map[string]*mirroredSource{}
	}
	return out, err
}

// vendor adds one row to a mirror in a folder.
func (s *Store) vendor(ctx context.Context, m *mirror, st Standing) (v Vendored, err error) {
	src, err := ParseSource(st.Row.SourceURL)
	if err != nil {
		return v, err
	}
	v = Vendored{ID: st.ID, Bundle: st.Bundle, Source: src, Ref: st.Row.RequestedRef, Commit: st.Row.ResolvedSHA, Tree: st.Row.TreeSHA256}
	if err := s.Check(ctx, v.Tree); err != nil {
		return v, err
	}
	h, err := s.Tree(ctx, v.Tree)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, h.Release()) }()
	file := filepath.Join(m.at, v.Tree+".tar")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		v.Fresh = true
		if err := writeTar(ctx, file, h); err != nil {
			return v, err
		}
	}
	have := m.index.Sources[src.Key()]
	if have == nil {
		have = &mirroredSource{map[string]string{}, map[string]string{}}
		m.index.Sources[src.Key()] = have
	}
	have.Commits[v.Commit] = v.Tree
	if v.Ref != v.Commit {
		have.Refs[v.Ref] = v.Commit
	}
	return v, nil
}

// writeTar writes the files of a tree as one archive: equal trees make equal bytes.
func writeTar(ctx context.Context, file string, h *treestore.Held) error {
	files, err := walk(ctx, os.DirFS(h.Path()))
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return atomicfile.Write(file, 0o644, func(w io.Writer) error {
		t := tar.NewWriter(w)
		for _, e := range files {
			mode := int64(0o644)
			if e.exec {
				mode = 0o755
			}
			if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: mirrorTop + "/" + e.path, Size: e.size, Mode: mode, Format: tar.FormatPAX}); err != nil {
				return err
			}
			if err := copyTo(t, filepath.Join(h.Path(), filepath.FromSlash(e.path))); err != nil {
				return err
			}
		}
		return t.Close()
	})
}

func copyTo(w io.Writer, file string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}
