package hostcalls

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

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
	r, err := content(in.File, in.Text)
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
	return map[string]any{"id": d.ID, "version": d.Version, "type": d.Type, "body": json.RawMessage(d.Body), "files": files}, nil
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
