package transfer

import (
	"bytes"
	"context"
	"io"
	"maps"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// Namespace is leave to upload objects below a root. Its uploads run one at a time.
type Namespace struct {
	grant  wire.WriteNamespace
	client *Client

	mu   sync.Mutex
	used map[string]int64 // path, bytes
}

// Namespace starts uploads under a grant; what they may hold together is counted from here on.
func (c *Client) Namespace(g wire.WriteNamespace) *Namespace {
	return &Namespace{grant: g, client: c, used: map[string]int64{}}
}

// Upload writes an object below the grant's root. path is relative and without dot segments; media "" is application/octet-stream; content is
// read from its beginning, and again for another attempt. An object that replaces another counts once.
func (n *Namespace) Upload(ctx context.Context, path, media string, content io.ReadSeeker) error {
	if err := wire.CheckPath(path); err != nil {
		return failed(wire.CodeInvalidTransfer, false, "%v", err)
	}
	size, err := content.Seek(0, io.SeekEnd)
	if err != nil {
		return failed(wire.CodeInvalidTransfer, false, "the content can't be read")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.fits(path, size) {
		e := failed(wire.CodeTransferTooLarge, false, "it exceeds what the grant allows")
		e.Applied = wire.AppliedNo
		return e
	}
	if err := again(ctx, n.grant.ExpiresAt, func() *Error { return n.try(ctx, path, media, size, content) }); err != nil {
		return err
	}
	n.used[path] = size
	return nil
}

func (n *Namespace) fits(path string, size int64) bool {
	total, count := size, int64(1)
	for p, s := range n.used {
		if p != path {
			total, count = total+s, count+1
		}
	}
	return size <= n.grant.MaxObjectBytes && total <= n.grant.MaxTotalBytes && count <= n.grant.MaxObjects
}

// try uploads once: the grant's fields, the path, the media type, then the file.
func (n *Namespace) try(ctx context.Context, path, media string, size int64, content io.ReadSeeker) *Error {
	head, tail, typ, err := n.form(path, media)
	if err != nil {
		return failed(wire.CodeInvalidTransfer, false, "the form can't be written")
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	defer cancel(nil)
	g := n.grant.Write
	resp, err := n.client.send(ctx, g.URL, g.Headers, func(ctx context.Context, address string) (*http.Request, error) {
		if _, err := content.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		body := io.MultiReader(bytes.NewReader(head), &moving{io.LimitReader(content, size), watch}, bytes.NewReader(tail))
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, body)
		if err != nil {
			return nil, err
		}
		r.ContentLength = int64(len(head)) + size + int64(len(tail))
		for k, v := range g.Headers {
			r.Header.Set(k, v)
		}
		r.Header.Set("Content-Type", typ)
		return r, nil
	})
	if err != nil {
		return unreachable(ctx)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
	if err != nil {
		return failed(wire.CodeTransferUnavailable, true, "the store's answer broke off")
	}
	return answered(resp.StatusCode, string(answer))
}

// form is the multipart text before and after the content.
func (n *Namespace) form(path, media string) (head, tail []byte, contentType string, err error) {
	if media == "" {
		media = "application/octet-stream"
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	g := n.grant.Write
	for _, k := range slices.Sorted(maps.Keys(g.Fields)) {
		if err := w.WriteField(k, g.Fields[k]); err != nil {
			return nil, nil, "", err
		}
	}
	if err := w.WriteField(g.PathField, n.grant.RootPath+"/"+path); err != nil {
		return nil, nil, "", err
	}
	if _, has := g.Fields["Content-Type"]; !has {
		if err := w.WriteField("Content-Type", media); err != nil {
			return nil, nil, "", err
		}
	}
	h := textproto.MIMEHeader{}
	h.Set("Content-Disposition", multipart.FileContentDisposition(g.FileField, path[strings.LastIndex(path, "/")+1:]))
	h.Set("Content-Type", media)
	if _, err := w.CreatePart(h); err != nil {
		return nil, nil, "", err
	}
	end := b.Len()
	if err := w.Close(); err != nil {
		return nil, nil, "", err
	}
	return b.Bytes()[:end], b.Bytes()[end:], w.FormDataContentType(), nil
}
