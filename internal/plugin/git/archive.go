package git

import (
	"context"
	"crypto/sha1" //nolint:gosec // git's own object ids
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/archive"
)

// Where no git is, github.com serves commits as archives. What an archive holds is bound to its commit: the digest that git gives a tree is
// computed of the files and compared with the commit's, so that what is left out of archives, or rewritten in them, is noticed.

// archived tells whether a source serves archives.
func archived(s Source) (owner, repo string, err error) {
	parts := strings.Split(strings.TrimSuffix(strings.TrimPrefix(s.Path, "/"), ".git"), "/")
	if s.Scheme != HTTPS || s.Host != "github.com" || s.Port != 0 || len(parts) != 2 {
		return "", "", fmt.Errorf("%s: %w", s, errNoGit)
	}
	return parts[0], parts[1], nil
}

func (f *Fetcher) githubHeader(s Source, accept string) http.Header {
	h := http.Header{"Accept": {accept}}
	if t := f.token(s); t != "" {
		h.Set("Authorization", "Bearer "+t)
	}
	return h
}

// resolveArchive asks github.com which commit a ref means.
func (f *Fetcher) resolveArchive(ctx context.Context, s Source, ref string) (Resolved, error) {
	owner, repo, err := archived(s)
	if err != nil {
		return Resolved{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, httpTime)
	defer cancel()
	if ref == "" {
		ref = "HEAD"
	}
	resp, err := f.get(ctx, fmt.Sprintf("https://api.github.com/repos/%s/%s/commits/%s", url.PathEscape(owner), url.PathEscape(repo), url.PathEscape(ref)), f.githubHeader(s, "application/vnd.github+json"))
	if err != nil {
		return Resolved{}, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusMovedPermanently:
		return Resolved{}, fmt.Errorf("%s has no %s, or is private (then set GITHUB_TOKEN), or was renamed", s, ref)
	case http.StatusForbidden, http.StatusTooManyRequests:
		return Resolved{}, fmt.Errorf("%s: github.com answers no more questions for now; set GITHUB_TOKEN or install git", s)
	default:
		return Resolved{}, fmt.Errorf("%s: api.github.com answers %d", s, resp.StatusCode)
	}
	var c struct {
		SHA    string `json:"sha"`
		Commit struct {
			Tree struct {
				SHA string `json:"sha"`
			} `json:"tree"`
		} `json:"commit"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 16<<20)).Decode(&c); err != nil {
		return Resolved{}, fmt.Errorf("%s: api.github.com answers what can't be read: %w", s, err)
	}
	if !fullSHA().MatchString(c.SHA) || !fullSHA().MatchString(c.Commit.Tree.SHA) {
		return Resolved{}, fmt.Errorf("%s: api.github.com names no commit", s)
	}
	out := Resolved{Ref: ref, Commit: c.SHA, Tree: c.Commit.Tree.SHA}
	if ref == "HEAD" {
		out.Ref = ""
	}
	return out, nil
}

// fetchArchive unpacks the archive of a commit into dst.
func (f *Fetcher) fetchArchive(ctx context.Context, s Source, r Resolved, dst string) ([]entry, error) {
	owner, repo, err := archived(s)
	if err != nil {
		return nil, err
	}
	if r.Tree == "" {
		if r, err = f.resolveArchive(ctx, s, r.Commit); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, CloneTime)
	defer cancel()
	resp, err := f.get(ctx, fmt.Sprintf("https://codeload.github.com/%s/%s/tar.gz/%s", url.PathEscape(owner), url.PathEscape(repo), r.Commit), f.githubHeader(s, "*/*"))
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("codeload.github.com answers %d", resp.StatusCode)
	}
	files, err := f.unpacked(ctx, resp.Body, dst)
	if err != nil {
		return nil, err
	}
	got, err := gitTree(os.DirFS(dst), files)
	if err != nil {
		return nil, err
	}
	if got != r.Tree {
		return nil, fmt.Errorf("the archive of commit %s isn't what the commit holds (submodules, or files that archives leave out); install git", r.Commit)
	}
	return files, nil
}

// unpack unpacks an archive whose members stand in one folder, which is left out.
func (f *Fetcher) unpack(ctx context.Context, r io.Reader, dst string) error {
	packed := &io.LimitedReader{R: r, N: f.o.Limits.Packed + 1}
	top, err := os.MkdirTemp(f.o.Dir, "archive-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(top) }() // a leftover is swept later
	root, err := os.OpenRoot(top)
	if err != nil {
		return err
	}
	defer root.Close()
	_, err = archive.Unpack(ctx, packed, root, archive.Options{
		Limits: archive.Limits{Bytes: f.o.Limits.Bytes, Entries: 2 * f.o.Limits.Files, Depth: f.o.Limits.Depth + 1}, Strict: true, NoLinks: true,
	})
	if packed.N == 0 {
		return fmt.Errorf("it is larger than %d MiB packed", f.o.Limits.Packed>>20)
	}
	if err != nil {
		return err
	}
	es, err := os.ReadDir(top)
	if err != nil {
		return err
	}
	if len(es) != 1 || !es[0].IsDir() {
		return errors.New("the archive doesn't hold one folder")
	}
	return moveAll(path.Join(top, es[0].Name()), dst)
}

// gitTree is the id that git gives the tree of some files.
func gitTree(fsys fs.FS, files []entry) (string, error) {
	type item struct {
		mode, name string
		id         []byte
	}
	dirs := map[string][]item{"": {}}
	for _, e := range files {
		id, err := blobID(fsys, e)
		if err != nil {
			return "", err
		}
		mode := "100644"
		if e.exec {
			mode = "100755"
		}
		dir, name := path.Split(e.path)
		dir = strings.TrimSuffix(dir, "/")
		dirs[dir] = append(dirs[dir], item{mode, name, id})
		for d := dir; d != ""; {
			up, _ := path.Split(d)
			d = strings.TrimSuffix(up, "/")
			if _, ok := dirs[d]; !ok {
				dirs[d] = nil
			}
		}
	}
	names := make([]string, 0, len(dirs))
	for d := range dirs {
		names = append(names, d)
	}
	// Deepest first: a folder's id goes into that of the one above.
	slices.SortFunc(names, func(a, b string) int { return depth(b) - depth(a) })
	var root []byte
	for _, d := range names {
		items := dirs[d]
		key := func(i item) string {
			if i.mode == "40000" {
				return i.name + "/"
			}
			return i.name
		}
		slices.SortFunc(items, func(a, b item) int { return strings.Compare(key(a), key(b)) })
		var body []byte
		for _, i := range items {
			body = append(append(append(body, i.mode+" "+i.name...), 0), i.id...)
		}
		h := sha1.New() //nolint:gosec // git's own object ids
		fmt.Fprintf(h, "tree %d\x00", len(body))
		_, _ = h.Write(body)
		id := h.Sum(nil)
		if d == "" {
			root = id
			continue
		}
		up, name := path.Split(d)
		up = strings.TrimSuffix(up, "/")
		dirs[up] = append(dirs[up], item{"40000", name, id})
	}
	return fmt.Sprintf("%x", root), nil
}

// depth is how many folders a path goes down; 0 is the root.
func depth(dir string) int {
	if dir == "" {
		return 0
	}
	return 1 + strings.Count(dir, "/")
}

func blobID(fsys fs.FS, e entry) ([]byte, error) {
	f, err := fsys.Open(e.path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := sha1.New() //nolint:gosec // git's own object ids
	fmt.Fprintf(h, "blob %d\x00", e.size)
	_, err = io.Copy(h, f)
	return h.Sum(nil), err
}
