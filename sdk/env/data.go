package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"agentenv.internal/agentenv/sdk/transfer"
	"agentenv.internal/agentenv/sdk/wire"
)

// Input is one part of a seed, whichever way it was sent: inline data or text, the bytes of a file, or where a file is found (a path inside the
// server's sandbox, or an https address).
type Input struct {
	Part wire.Part
	env  *Env
}

// Name is the file's name as far as the sender told one.
func (i *Input) Name() string {
	if i.Part.File == nil {
		return ""
	}
	return i.Part.File.Name
}

// Open is the seed's bytes; of inline data the JSON text. Reading stops with an error beyond the server's limit. The caller closes it.
func (i *Input) Open(ctx context.Context) (io.ReadCloser, error) {
	switch {
	case i.Part.Kind == wire.KindText:
		return io.NopCloser(strings.NewReader(i.Part.Text)), nil
	case i.Part.Kind == wire.KindData:
		return io.NopCloser(bytes.NewReader(i.Part.Data)), nil
	case i.Part.File.Inline():
		b, err := i.Part.File.Content()
		return io.NopCloser(bytes.NewReader(b)), err
	}
	u, err := url.Parse(i.Part.File.URI)
	if err != nil {
		return nil, errors.New("the seed's uri is no address")
	}
	switch u.Scheme {
	case "file":
		return i.openFile(u)
	case "https":
		return i.fetch(ctx, u)
	}
	return nil, fmt.Errorf("a seed's uri must begin with file:// or https://, not %q", u.Scheme)
}

func (i *Input) openFile(u *url.URL) (io.ReadCloser, error) {
	if u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") {
		return nil, errors.New("a seed's file:// uri must name an absolute path of this machine")
	}
	f, err := os.Open(u.Path)
	if err != nil {
		return nil, fmt.Errorf("open the seed: %w", err)
	}
	st, err := f.Stat()
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("open the seed: %s is no regular file", u.Path)
	}
	if err == nil && st.Size() > i.env.maxSeed {
		err = tooLarge(i.env.maxSeed)
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &limited{f, i.env.maxSeed, i.env.maxSeed}, nil
}

func (i *Input) fetch(ctx context.Context, u *url.URL) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, errors.New("fetch the seed: its uri is no address")
	}
	r.Header.Set("Accept-Encoding", "identity")
	resp, err := i.env.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("fetch the seed from %s: %w", u.Host, withoutURL(err))
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("fetch the seed from %s: it answered %d", u.Host, resp.StatusCode)
	}
	if resp.ContentLength > i.env.maxSeed {
		resp.Body.Close()
		return nil, tooLarge(i.env.maxSeed)
	}
	return &limited{resp.Body, i.env.maxSeed, i.env.maxSeed}, nil
}

// withoutURL drops the address from an error of the client: signed ones are secrets.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func tooLarge(limit int64) error { return fmt.Errorf("the seed has more than %d bytes", limit) }

// limited fails, rather than ends, beyond its limit.
type limited struct {
	io.ReadCloser
	left, limit int64
}

func (l *limited) Read(p []byte) (int, error) {
	if int64(len(p)) > l.left+1 {
		p = p[:l.left+1]
	}
	n, err := l.ReadCloser.Read(p)
	if l.left -= int64(n); l.left < 0 {
		return 0, tooLarge(l.limit)
	}
	return n, err
}

// Bytes is the whole seed.
func (i *Input) Bytes(ctx context.Context) ([]byte, error) {
	r, err := i.Open(ctx)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read the seed: %w", err)
	}
	return b, nil
}

// Decode reads the seed as JSON.
func (i *Input) Decode(ctx context.Context, into any) error {
	b, err := i.Bytes(ctx)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("the seed isn't the JSON that is wanted: %w", err)
	}
	return nil
}

// serveData answers the data plane: whatever is wrong, the status is 200 and the body says it.
func (e *Env) serveData(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, e.maxData))
	resp := wire.Response{Error: &wire.Error{Code: wire.CodeRequest, Message: "invalid request"}}
	if err != nil {
		resp.Error.Message = unreadable(err).Message
	} else {
		resp = e.data(r.Context(), body, r.Header)
	}
	b, err := encode(resp)
	if err != nil {
		e.log.ErrorContext(r.Context(), "an answer of the data plane can't be written", "error", err)
		if b, err = encode(wire.Response{ID: resp.ID, Error: wire.HandlerFailed(wire.GetFailed, "the data can't be written as JSON")}); err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
	}
	answer(w, http.StatusOK, b)
}

func (e *Env) data(ctx context.Context, body []byte, header http.Header) wire.Response {
	req, rerr := wire.DecodeRequest(body)
	if rerr != nil {
		return wire.Response{ID: req.ID, Error: rerr}
	}
	if !e.serves(req.Method) {
		return wire.Response{ID: req.ID, Error: wire.MethodNotFound(req.Method)}
	}
	c := callOf(nil, header, "")
	c.Tool, c.Arguments = req.Method, req.Params
	ctx = withCall(ctx, c)
	var result json.RawMessage
	switch req.Method {
	case wire.Reset:
		rerr = e.dataReset(ctx)
	case wire.Add:
		rerr = e.dataAdd(ctx, req.Params)
	case wire.Get:
		result, rerr = e.dataGet(ctx, req.Params)
	}
	return wire.Response{ID: req.ID, Result: result, Error: rerr}
}

func (e *Env) dataReset(ctx context.Context) *wire.Error {
	return e.run(ctx, wire.Reset, wire.ResetFailed, func() error { return e.reset(ctx) })
}

func (e *Env) dataAdd(ctx context.Context, params json.RawMessage) *wire.Error {
	parts, err := wire.ParseAdd(params)
	if err != nil {
		return wire.InvalidParams(err.Error())
	}
	inputs := make([]*Input, len(parts))
	for i := range parts {
		inputs[i] = &Input{parts[i], e}
	}
	return e.run(ctx, wire.Add, wire.AddFailed, func() error { return e.add(ctx, inputs) })
}

func (e *Env) dataGet(ctx context.Context, params json.RawMessage) (json.RawMessage, *wire.Error) {
	in := map[string]json.RawMessage{}
	if params != nil && json.Unmarshal(params, &in) != nil {
		return nil, wire.InvalidParams("want a JSON object")
	}
	var to *Namespace
	if raw := in["write_namespace"]; e.namespaces && len(raw) > 0 && string(raw) != "null" {
		g, err := wire.ParseWriteNamespace(raw)
		if err != nil {
			return nil, wire.InvalidParams(err.Error())
		}
		to = &Namespace{Grant: g, to: (&transfer.Client{HTTP: e.client}).Namespace(g)}
	}
	var parts []wire.Part
	if rerr := e.run(ctx, wire.Get, wire.GetFailed, func() (err error) { parts, err = e.get(ctx, to); return err }); rerr != nil {
		return nil, rerr
	}
	b, err := wire.EncodeParts(parts)
	if err != nil {
		return nil, wire.HandlerFailed(wire.GetFailed, "the data can't be written as JSON")
	}
	return b, nil
}

func (e *Env) run(ctx context.Context, method, code string, f func() error) *wire.Error {
	_, err := guarded(ctx, e.log, method, func() (struct{}, error) { return struct{}{}, f() })
	if err == nil {
		return nil
	}
	if fl, ok := asFailure(err); ok {
		if fl.Code == wire.CodeInvalidParams {
			return wire.InvalidParams(fl.Message)
		}
		err = errors.New(fl.Message)
	}
	return wire.HandlerFailed(code, err.Error())
}

func unreadable(err error) *Failure {
	if m, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return invalid("the body has more than %d bytes", m.Limit).WithStatus(http.StatusRequestEntityTooLarge)
	}
	return invalid("the body can't be read")
}
