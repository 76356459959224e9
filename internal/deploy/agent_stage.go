package deploy

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"time"

	"agentenv.internal/agentenv/internal/agent/a2a"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/sdk/wire"
)

// stage is a folder of its own in the agent's staging, by which objects go in and out: agents reach that from where they are, whatever network they have.
func (r *a2aRunner) stage() (*stage, error) {
	x := r.card.Extension(wire.URNStaging)
	var p struct {
		Endpoint string `json:"endpoint"`
	}
	if x == nil || json.Unmarshal(x.Params, &p) != nil || p.Endpoint == "" {
		return nil, fmt.Errorf("%s, by which its state goes in and out, %w", wire.URNStaging, ErrNotServed)
	}
	var id [24]byte
	_, _ = rand.Read(id[:]) // it can't fail
	return &stage{r.client, p.Endpoint + "/" + base64.RawURLEncoding.EncodeToString(id[:])}, nil
}

// stage is a folder in an agent's staging. Its path is a secret.
type stage struct {
	client *a2a.Client
	path   string
}

// stagedHeader tells an agent that a grant is one of its own staging, which it then reaches by itself.
const stagedHeader = "AgentEnv-Staging-Path"

// grantTime is how long what is staged may be read and written.
const grantTime = 12 * time.Hour

// grant lets the agent write or read one object of the folder. The URL names no machine: grants have one, and this one is never dialled before the agent
// has asked itself.
func (s *stage) grant(kind, name string) wire.HTTPGrant {
	at := s.path + "/" + name
	return wire.HTTPGrant{Kind: kind, URL: "https://staging.invalid" + at, ExpiresAt: time.Now().Add(grantTime).UTC(), Headers: map[string]string{stagedHeader: at}}
}

// opaque is the media type of what an agent saves.
const opaque = "application/octet-stream"

func (s *stage) write(name string, most int64) wire.WriteObject {
	return wire.WriteObject{MediaType: opaque, MaxBytes: most, Write: s.grant(wire.KindPut, name)}
}

func (s *stage) read(name string, size int64) wire.ReadObject {
	return wire.ReadObject{MediaType: opaque, MaxBytes: max(size, 1), SizeBytes: &size, Read: s.grant(wire.KindGet, name)}
}

// clear removes what is staged; what is left goes with the agent.
func (s *stage) clear(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if res, err := s.client.Transfer(ctx, http.MethodDelete, s.path+"/", "", nil, 0); err == nil {
		res.Body.Close()
	}
}

// get reads an object of the folder.
func (s *stage) get(ctx context.Context, name string, most int64, take func(io.Reader) error) error {
	res, err := s.client.Transfer(ctx, http.MethodGet, s.path+"/"+name, "", nil, 0)
	if err != nil {
		return fmt.Errorf("fetch the %s that the agent saved: %w", name, err)
	}
	defer res.Body.Close()
	if err := take(io.LimitReader(res.Body, most)); err != nil {
		return err
	}
	if n, _ := io.ReadFull(res.Body, make([]byte, 1)); n > 0 {
		return fmt.Errorf("the %s that the agent saved is larger than %d MiB", name, most>>20)
	}
	return nil
}

func (s *stage) put(ctx context.Context, name string, r io.Reader, size int64) error {
	res, err := s.client.Transfer(ctx, http.MethodPut, s.path+"/"+name, "", r, size)
	if err != nil {
		return fmt.Errorf("give the agent the %s that was saved: %w", name, err)
	}
	return res.Body.Close()
}

// stagedObject is what an agent says of an object in its staging; its Path is relative to the folder that was listed.
type stagedObject struct {
	Path string `json:"path"`
	Size int64  `json:"size_bytes"`
}

// maxStagedList bounds a list of what is staged, in bytes.
const maxStagedList = 8 << 20

// list tells what is in a folder of the stage.
func (s *stage) list(ctx context.Context, folder string) ([]stagedObject, error) {
	res, err := s.client.Transfer(ctx, http.MethodGet, s.path+"/"+folder+"/", "", nil, 0)
	if status, ok := errors.AsType[*a2a.StatusError](err); ok && status.Status == http.StatusNotFound {
		return nil, nil // nothing was ever staged there
	}
	if err != nil {
		return nil, fmt.Errorf("list what the agent has recorded: %w", err)
	}
	defer res.Body.Close()
	return readStaged(io.LimitReader(res.Body, maxStagedList))
}

// fetch reads an object of so many bytes and answers its tag.
func (s *stage) fetch(ctx context.Context, name string, size int64, take func(io.Reader) error) (tag string, err error) {
	res, err := s.client.Transfer(ctx, http.MethodGet, s.path+"/"+name, "", nil, 0)
	if err != nil {
		return "", fmt.Errorf("fetch %s: %w", path.Base(name), err)
	}
	defer res.Body.Close()
	body := &counted{r: io.LimitReader(res.Body, size+1)}
	if err := take(body); err != nil {
		return "", err
	}
	if body.n != size {
		return "", fmt.Errorf("%s is not of the %d bytes that the agent says", path.Base(name), size)
	}
	return res.Header.Get("ETag"), nil
}

// remove removes an object unless it is another one by now.
func (s *stage) remove(ctx context.Context, name, tag string) error {
	res, err := s.client.Transfer(ctx, http.MethodDelete, s.path+"/"+name, tag, nil, 0)
	if status, ok := errors.AsType[*a2a.StatusError](err); ok && (status.Status == http.StatusNotFound || status.Status == http.StatusPreconditionFailed) {
		return nil // the next fetch takes what is there
	}
	if err != nil {
		return fmt.Errorf("remove %s, which was fetched: %w", path.Base(name), err)
	}
	return res.Body.Close()
}

// counted counts what is read.
type counted struct {
	r io.Reader
	n int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

// readStaged reads a list of what is staged.
func readStaged(r io.Reader) ([]stagedObject, error) {
	var out struct {
		Objects []stagedObject `json:"objects"`
	}
	if err := json.NewDecoder(r).Decode(&out); err != nil {
		return nil, errors.New("what the agent has recorded can't be read: its list is of another form")
	}
	for _, o := range out.Objects {
		if o.Size < 0 {
			return nil, fmt.Errorf("the agent says that %s has %d bytes", diag.Repr(o.Path), o.Size)
		}
	}
	return out.Objects, nil
}
