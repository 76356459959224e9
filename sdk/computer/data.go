package computer

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
	"strings"
	"time"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/transfer"
	"agentenv.internal/agentenv/sdk/wire"
)

// File is a file of the home.
type File struct {
	Path string // relative, with slashes
	Data []byte
}

const (
	maxFetched  = 1 << 30 // bytes of a file that is fetched
	fetchTime   = 60 * time.Second
	maxRedirect = 10
	privateDir  = ".agentenv" // what the framework keeps in a home; no data
)

func defaultClient() *http.Client {
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

func (c *Computer) addData() {
	c.env.OnAdd(c.dataAdd)
	c.env.OnExport(c.dataGet)
	tree := map[string]any{"part": "file", "format": "file-tree"}
	c.declare(wire.URNIntake, "What data goes in and comes out.", map[string]any{
		"add": []any{map[string]any{"part": "file", "format": "file-tree", "load": "additive"}}, "get": []any{tree},
	})
}

// dataAdd fetches all files before the first is written.
func (c *Computer) dataAdd(ctx context.Context, inputs []*env.Input) error {
	var files []File
	at := map[string]int{}
	for i, in := range inputs {
		p, read, err := placed(&in.Part)
		if err == nil && below(p, privateDir) {
			err = fmt.Errorf("%s is no place for data", p)
		}
		if err != nil {
			return fmt.Errorf("parts[%d]: %w", i, err)
		}
		data, err := c.fetch(ctx, &in.Part, read)
		if err != nil {
			return fmt.Errorf("parts[%d]: %s: %w", i, p, err)
		}
		if n, again := at[p]; again { // the last one wins
			files[n].Data = data
			continue
		}
		at[p] = len(files)
		files = append(files, File{p, data})
	}
	return c.writer.WriteFiles(ctx, files)
}

// placed is where a part goes, and the grant to read it with, if there is one.
func placed(p *wire.Part) (string, json.RawMessage, error) {
	if p.Kind != wire.KindFile {
		return "", nil, fmt.Errorf("a computer takes files, not a part of kind %s", p.Kind)
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

// fetch is a file's bytes: by the grant, inline, or from an https address.
func (c *Computer) fetch(ctx context.Context, p *wire.Part, read json.RawMessage) ([]byte, error) {
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
	return c.download(ctx, u)
}

func (c *Computer) download(ctx context.Context, u *url.URL) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("its uri is no address")
	}
	r.Header.Set("Accept-Encoding", "identity")
	resp, err := c.client.Do(r)
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

// below tells whether a path is another or lies below it, by segments.
func below(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// dataGet answers the files under the paths that the settings, or this call, name.
func (c *Computer) dataGet(ctx context.Context, to *env.Namespace) ([]wire.Part, error) {
	paths, err := filePaths(env.CallFrom(ctx).Arguments)
	if err != nil {
		return nil, err
	}
	if paths == nil {
		paths = c.chosen().DataPaths
	}
	out := []wire.Part{}
	leave := append(c.appPaths(), privateDir)
	err = exportFiles(c.home, paths, leave, func(p, media string, f io.ReadSeeker) error {
		part, err := c.exported(ctx, p, media, f, to)
		out = append(out, part)
		return err
	})
	return out, err
}

// filePaths is the paths that a call names; nil when it names none.
func filePaths(params json.RawMessage) ([]string, error) {
	var in struct {
		FilePaths json.RawMessage `json:"file_paths"`
	}
	if len(params) == 0 || json.Unmarshal(params, &in) != nil || in.FilePaths == nil || string(in.FilePaths) == "null" {
		return nil, nil
	}
	out := []string{}
	if json.Unmarshal(in.FilePaths, &out) != nil {
		return nil, env.Fail(wire.CodeInvalidParams, "file_paths must be a list of texts")
	}
	for _, p := range out {
		if err := wire.CheckPath(p); err != nil {
			return nil, env.Fail(wire.CodeInvalidParams, "file_paths: %q: %v", p, err)
		}
	}
	return out, nil
}

func (c *Computer) exported(ctx context.Context, p, media string, f io.ReadSeeker, to *env.Namespace) (wire.Part, error) {
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
