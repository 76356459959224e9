package home

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"time"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/transfer"
	"agentenv.internal/agentenv/sdk/wire"
)

const (
	maxFetched  = 1 << 30 // bytes of a file that is fetched
	fetchTime   = 60 * time.Second
	maxRedirect = 10
)

// Client fetches files: it follows redirects to https alone, and gives up after 60 s.
func Client() *http.Client {
	return &http.Client{Timeout: fetchTime, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		if r.URL.Scheme != "https" {
			return errors.New("it redirects to another scheme than https")
		}
		if len(via) >= maxRedirect {
			return errors.New("it redirects too often")
		}
		return nil
	}}
}

// Granted is a client that goes the same ways, and nowhere but where a grant leads.
func Granted(c *http.Client) *http.Client {
	return &http.Client{Transport: c.Transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// Place is where a part goes, and the grant to read it with, if there is one.
func Place(p *wire.Part) (string, json.RawMessage, error) {
	if p.Kind != wire.KindFile {
		return "", nil, fmt.Errorf("a file is wanted, not a part of kind %s", p.Kind)
	}
	var meta map[string]json.RawMessage
	var marker struct {
		Path *string         `json:"path"`
		Read json.RawMessage `json:"read"`
	}
	if p.Metadata != nil && json.Unmarshal(p.Metadata, &meta) != nil || meta[wire.URNDataObjects] == nil {
		return "", nil, fmt.Errorf("its metadata lack %s, which tells the path", wire.URNDataObjects)
	}
	if json.Unmarshal(meta[wire.URNDataObjects], &marker) != nil || marker.Path == nil {
		return "", nil, errors.New("its metadata tell no path")
	}
	if err := wire.CheckPath(*marker.Path); err != nil {
		return "", nil, fmt.Errorf("%q: %w", *marker.Path, err)
	}
	if string(marker.Read) == "null" {
		marker.Read = nil
	}
	return *marker.Path, marker.Read, nil
}

// Fetch is a file's bytes: by the grant, inline, or from an https address.
func Fetch(ctx context.Context, client *http.Client, p *wire.Part, read json.RawMessage) ([]byte, error) {
	if read != nil {
		o, err := wire.ParseReadObject(read)
		if err != nil {
			return nil, err
		}
		return (&transfer.Client{HTTP: Granted(client)}).Bytes(ctx, o, o.MaxBytes)
	}
	if p.File.Inline() {
		b, err := base64.StdEncoding.Strict().DecodeString(p.File.Bytes)
		if err != nil {
			return nil, errors.New("its bytes aren't base64")
		}
		return b, nil
	}
	u, err := url.Parse(p.File.URI)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, errors.New("its uri must begin with https://")
	}
	return download(ctx, client, u)
}

func download(ctx context.Context, client *http.Client, u *url.URL) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("its uri is no address")
	}
	r.Header.Set("Accept-Encoding", "identity")
	resp, err := client.Do(r)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // signed addresses are secrets
		}
		return nil, fmt.Errorf("fetch it from %s: %w", u.Host, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch it from %s: it answered %d", u.Host, resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxFetched+1))
	if err != nil {
		return nil, fmt.Errorf("fetch it from %s: %w", u.Host, err)
	}
	if len(b) > maxFetched {
		return nil, fmt.Errorf("fetch it from %s: it has more than %d bytes", u.Host, maxFetched)
	}
	return b, nil
}

// maxInline is how many bytes of files one export may hold inline: all of them are in memory, and in one message. A load takes as much.
const maxInline = 512 << 20

// Answer collects the parts of one export: inline, or uploaded where the caller grants it. What files hold inline is bounded, so that one that is huge, or
// only says so, can't take all the memory of who answers.
type Answer struct {
	to    *env.Namespace
	left  int64
	parts []wire.Part
}

// NewAnswer starts an export; to is nil unless the caller grants a place to upload to.
func NewAnswer(to *env.Namespace) *Answer {
	return &Answer{to: to, left: maxInline, parts: []wire.Part{}}
}

// Parts are those collected so far, none as an empty list.
func (a *Answer) Parts() []wire.Part { return a.parts }

// Add adds a part that is no file.
func (a *Answer) Add(p wire.Part) { a.parts = append(a.parts, p) }

// File adds a file that goes to a path of the home; name is what it is called besides, "" for the path's last segment.
func (a *Answer) File(ctx context.Context, p, name, media string, f *os.File) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name = cmp.Or(name, path.Base(p))
	if a.to != nil {
		part, err := a.to.Upload(ctx, p, media, name, f)
		a.Add(part)
		return err
	}
	b, err := a.read(p, f)
	if err != nil {
		return err
	}
	part := wire.FilePart(b, media, name)
	part.Metadata, err = json.Marshal(map[string]any{wire.URNDataObjects: map[string]string{"path": p}})
	a.Add(part)
	return err
}

// Loose adds a file that goes nowhere in particular, inline.
func (a *Answer) Loose(ctx context.Context, name, media string, f *os.File) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b, err := a.read(cmp.Or(name, "a file"), f)
	if err == nil {
		a.Add(wire.FilePart(b, media, name))
	}
	return err
}

// read reads a file, unless it, with those before, has too much.
func (a *Answer) read(p string, f *os.File) ([]byte, error) {
	st, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", p, plain(err))
	}
	size, b := st.Size(), &bytes.Buffer{}
	if size <= a.left {
		b.Grow(int(size) + bytes.MinRead)
		if size, err = b.ReadFrom(io.LimitReader(f, a.left+1)); err != nil { // it may have grown
			return nil, fmt.Errorf("read %s: %w", p, plain(err))
		}
	}
	if size > a.left {
		return nil, fmt.Errorf("%s has %d bytes: with what is before it that is more than the %d MiB that an answer holds", p, size, maxInline>>20)
	}
	a.left -= size
	return b.Bytes(), nil
}

// Read adds the files under paths of a home, as Export finds them.
func (a *Answer) Read(ctx context.Context, home string, paths, leave []string) error {
	return Export(home, paths, leave, func(p, media string, f *os.File) error { return a.File(ctx, p, "", media, f) })
}
