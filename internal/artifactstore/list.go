package artifactstore

import (
	"context"
	"encoding/json"
	"errors"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// Query selects artifacts for List, newest first; the zero value of a field does not restrict.
type Query struct {
	Type   string
	Prefix string // of the id
	// All lists the artifacts that belong to others too.
	All    bool
	Offset int    // leaves out so many at the beginning
	After  string // Page.Next of the page before
	Limit  int    // 0: 100
}

// Page is one page of artifacts. Next is empty on the last.
type Page struct {
	Artifacts []Info
	Next      string
}

// most is how many documents are asked for at once.
const most = 1000

// List is a page of the latest versions of artifacts.
func (l *Library) List(ctx context.Context, q Query) (Page, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = store.DefaultLimit
	}
	sq := store.Query{Kind: store.Artifact, Type: q.Type, Prefix: q.Prefix, Own: !q.All, After: q.After}
	return l.page(ctx, sq, q.Offset, limit)
}

// Versions is a page of the versions of one artifact, newest first.
func (l *Library) Versions(ctx context.Context, id string, q Query) (Page, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = store.DefaultLimit
	}
	p, err := l.page(ctx, store.Query{Kind: store.Artifact, ID: id, AllVersions: true, After: q.After}, q.Offset, limit)
	if err == nil && len(p.Artifacts) == 0 && q.After == "" && q.Offset == 0 {
		_, err = Find(ctx, l.store, id, 0)
	}
	return p, err
}

// page leaves out skip documents and takes limit.
func (l *Library) page(ctx context.Context, q store.Query, skip, limit int) (Page, error) {
	var out Page
	for {
		q.Limit = min(skip, most)
		if skip == 0 {
			q.Limit = min(limit-len(out.Artifacts), most)
		}
		p, err := l.store.List(ctx, q)
		if err != nil {
			return Page{}, err
		}
		if skip > 0 {
			skip -= len(p.Docs)
		} else {
			for _, d := range p.Docs {
				out.Artifacts = append(out.Artifacts, info(d))
			}
		}
		if p.Next == "" || len(out.Artifacts) == limit {
			out.Next = p.Next
			return out, nil
		}
		q.After = p.Next
	}
}

// File is one entry of what an artifact holds, as Get lays it out.
type File struct {
	Path   string     `json:"path"`
	Size   int64      `json:"size"`
	Mode   uint32     `json:"mode"` // permission bits; 0 for what has none
	Digest ref.Digest `json:"digest,omitempty"`
	Link   string     `json:"link,omitempty"` // where a symbolic link leads
	Folder bool       `json:"folder,omitempty"`
}

// Shown is one version of an artifact with its document and what it holds.
type Shown struct {
	Info
	Document json.RawMessage `json:"document"`
	Files    []File          `json:"files"`
	Size     int64           `json:"size"` // of all files
	// Layout is why Get can't lay the files out; Files is empty then.
	Layout string `json:"layout_error,omitempty"`
}

// Show is one version of an artifact; 0 is the latest.
func (l *Library) Show(ctx context.Context, id string, version int) (Shown, error) {
	d, err := Find(ctx, l.store, id, version)
	if err != nil {
		return Shown{}, err
	}
	out := Shown{Info: info(d), Document: d.Body, Files: []File{}}
	files, err := l.layout(ctx, d)
	if err != nil && ctx.Err() != nil {
		return Shown{}, err
	}
	if err != nil && !errors.Is(err, artifact.ErrNoFiles) {
		out.Layout = err.Error()
	}
	for _, f := range files {
		out.Files = append(out.Files, File{f.Path, f.Size, f.Mode, f.Digest, f.Link, f.Folder})
		out.Size += f.Size
	}
	return out, nil
}
