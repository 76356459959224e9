package hostcalls

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/plugin/host"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/requirement"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// same compares names of distributions.
func same(a, b string) bool { return requirement.Canonical(a) == requirement.Canonical(b) }

func (c *Calls) putObject(ctx context.Context, by *host.Caller, in struct {
	File        string  `json:"file"`
	Text        *string `json:"text"`
	Name        string  `json:"name"`
	ContentType string  `json:"content_type"`
},
) (any, error) {
	if by.Run == "" {
		return nil, host.Refuse("objects are kept with a run, and this call has none")
	}
	r, err := content(by, in.File, in.Text)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	k, err := c.Keeper(ctx)
	if err != nil {
		return nil, err
	}
	p, err := k.Keep(ctx, by.Run, r)
	if err != nil {
		return nil, err
	}
	return map[string]any{"url": objectScheme + string(p.Digest), "digest": p.Digest, "size": p.Size}, nil
}

const objectScheme = "object:"

func (c *Calls) getObject(ctx context.Context, by *host.Caller, in struct {
	URL string `json:"url"`
},
) (any, error) {
	d, ok := strings.CutPrefix(in.URL, objectScheme)
	if !ok || !ref.Digest(d).Valid() {
		return nil, host.Refuse("%s is no address of an object: they begin with %s", diag.Repr(in.URL), objectScheme)
	}
	s, err := c.Store(ctx)
	if err != nil {
		return nil, err
	}
	file, size, err := c.fetch(ctx, s, by, ref.Digest(d))
	if err != nil {
		return nil, missing(err, "object", in.URL)
	}
	return map[string]any{"file": file, "size": size}, nil
}

func (c *Calls) fetch(ctx context.Context, s store.Objects, by *host.Caller, d ref.Digest) (string, int64, error) {
	r, _, err := s.Open(ctx, d)
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	return handOver(by, r)
}

// stored are the collections that plugins may read.
var stored = []store.Kind{store.Artifact, store.Env, store.Agent}

func kindOf(word string) (store.Kind, error) {
	if word == "" {
		return store.Artifact, nil
	}
	if k := store.Kind(word); slices.Contains(stored, k) {
		return k, nil
	}
	return "", rpc.Errorf(rpc.CodeParams, "there is no kind %q; there are artifact, env and agent", word)
}

// file is one file of a stored thing.
type file struct {
	Path string `json:"path"`
	File string `json:"file,omitempty"`
	Size int64  `json:"size"`
}

func (c *Calls) getArtifact(ctx context.Context, by *host.Caller, in struct {
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Version int    `json:"version"`
	Files   bool   `json:"files"`
},
) (any, error) {
	k, err := kindOf(in.Kind)
	if err != nil {
		return nil, err
	}
	s, err := c.Store(ctx)
	if err != nil {
		return nil, err
	}
	d, err := s.Get(ctx, k, in.ID, in.Version)
	if err != nil {
		return nil, missing(err, string(k), in.ID)
	}
	files := []file{}
	if in.Files && k == store.Artifact {
		held, err := envstore.Files(ctx, s, d)
		if err != nil && len(held) == 0 {
			held = nil // a type without files
		}
		for _, b := range held {
			f := file{Path: b.Path, Size: b.Size}
			if b.Link == "" && !b.Folder {
				if f.File, _, err = c.fetch(ctx, s, by, b.Digest); err != nil {
					return nil, err
				}
			}
			files = append(files, f)
		}
	}
	return map[string]any{"id": d.ID, "version": d.Version, "type": d.Type, "body": rawJSON(d.Body), "files": files}, nil
}

// maxList is how many items one answer lists.
const maxList = 1000

func (c *Calls) listArtifacts(ctx context.Context, _ *host.Caller, in struct {
	Kind   string `json:"kind"`
	Type   string `json:"type"`
	Prefix string `json:"prefix"`
	Limit  int    `json:"limit"`
},
) (any, error) {
	k, err := kindOf(in.Kind)
	if err != nil {
		return nil, err
	}
	s, err := c.Store(ctx)
	if err != nil {
		return nil, err
	}
	if in.Limit <= 0 {
		in.Limit = 100
	}
	type item struct {
		ID      string `json:"id"`
		Version int    `json:"version"`
		Type    string `json:"type"`
	}
	items := []item{}
	q := store.Query{Kind: k, Type: in.Type, Prefix: in.Prefix, Limit: min(in.Limit, maxList)}
	page, err := s.List(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, d := range page.Docs {
		items = append(items, item{d.ID, d.Version, d.Type})
	}
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.ID, b.ID) })
	return map[string]any{"items": items}, nil
}

// putArtifact stores a file as an artifact. What holds several, and environments and agents, come from bundles.
func (c *Calls) putArtifact(ctx context.Context, by *host.Caller, in struct {
	Kind string         `json:"kind"`
	ID   string         `json:"id"`
	Type string         `json:"type"`
	Body map[string]any `json:"body"`
	// Files are one: its path is its name.
	Files []struct {
		Path string `json:"path"`
		File string `json:"file"`
	} `json:"files"`
},
) (any, error) {
	k, err := kindOf(in.Kind)
	if err != nil {
		return nil, err
	}
	if k != store.Artifact || in.Type != "" && in.Type != artifact.File {
		return nil, host.Refuse("plugins store artifacts of type file; a %s of type %s is stored with a bundle: agent-env bundle register", k, diag.Repr(in.Type))
	}
	if len(in.Files) != 1 {
		return nil, rpc.Errorf(rpc.CodeParams, "an artifact of type file has one file")
	}
	named, err := rename(by, in.Files[0].Path, in.Files[0].File)
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(filepath.Dir(named))
	s, err := c.Store(ctx)
	if err != nil {
		return nil, err
	}
	about, _ := in.Body["description"].(string)
	out, err := artifactstore.New(s).Put(ctx, artifactstore.Put{
		ID: in.ID, Type: artifact.File, Description: about, Paths: []string{named},
	})
	if err != nil {
		return nil, host.Refuse("%v", err)
	}
	return map[string]any{"id": out.ID, "version": out.Version}, nil
}

// rename copies a plugin's file under its name in the store, which is the last part of its path there, into a folder of its own.
func rename(by *host.Caller, name, from string) (string, error) {
	if name = path.Base(name); name == "." || name == "/" || !filepath.IsLocal(name) {
		return "", rpc.Errorf(rpc.CodeParams, "a file has no name")
	}
	r, err := content(by, from, nil)
	if err != nil {
		return "", err
	}
	defer r.Close()
	dir, err := os.MkdirTemp(by.Temp, "put-")
	if err != nil {
		return "", err
	}
	w, err := os.Create(filepath.Join(dir, name))
	if err == nil {
		_, err = io.Copy(w, r)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(dir))
	}
	return w.Name(), nil
}
