package home

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
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
		return (&transfer.Client{}).Bytes(ctx, o, o.MaxBytes)
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

// Part is the part that stands for a file of a home in an export: inline, or uploaded where the caller grants it.
func Part(ctx context.Context, p, media string, f io.ReadSeeker, to *env.Namespace) (wire.Part, error) {
	if to != nil {
		return to.Upload(ctx, p, media, path.Base(p), f)
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return wire.Part{}, fmt.Errorf("read %s: %w", p, err)
	}
	part := wire.FilePart(b, media, path.Base(p))
	part.Metadata, err = json.Marshal(map[string]any{wire.URNDataObjects: map[string]string{"path": p}})
	return part, err
}
