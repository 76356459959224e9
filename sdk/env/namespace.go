package env

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// How often an upload is tried, what the first pause is, and how long a store may be silent.
const (
	attempts   = 3
	firstPause = time.Second
	silence    = 60 * time.Second
)

// Namespace is leave to upload objects of an export. Its uploads run one at a time.
type Namespace struct {
	Grant  wire.WriteNamespace
	client *http.Client

	mu   sync.Mutex
	used map[string]int64 // path, bytes
}

// Upload writes an object below the grant's root, and answers the part that data/get returns for it. path is relative and without dot
// segments; media "" is application/octet-stream; content is read from its beginning, and again for another attempt. Failures are
// *Failure with a code of transfers.
func (n *Namespace) Upload(ctx context.Context, path, media, name string, content io.ReadSeeker) (wire.Part, error) {
	part, err := wire.UploadPart(path, media, name)
	if err != nil {
		return wire.Part{}, Fail(wire.CodeInvalidTransfer, "upload an export: %v", err)
	}
	size, err := content.Seek(0, io.SeekEnd)
	if err != nil {
		return wire.Part{}, Fail(wire.CodeInvalidTransfer, "upload an export: %v", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.fits(path, size); err != nil {
		return wire.Part{}, err
	}
	for try := range attempts {
		if !time.Now().Before(n.Grant.ExpiresAt) {
			return wire.Part{}, Fail(wire.CodeGrantExpired, "upload an export: the grant has expired").WithStatus(http.StatusGone)
		}
		f := n.try(ctx, path, media, size, content)
		if f == nil {
			n.used[path] = size
			return part, nil
		}
		if !f.Retryable || try == attempts-1 {
			return wire.Part{}, f
		}
		if err := pause(ctx, firstPause<<try); err != nil {
			return wire.Part{}, err
		}
	}
	return wire.Part{}, errors.New("upload an export: no attempt was made")
}

// fits tells whether an object stays within the grant; one that replaces another counts once.
func (n *Namespace) fits(path string, size int64) error {
	total, count := size, int64(1)
	for p, s := range n.used {
		if p != path {
			total, count = total+s, count+1
		}
	}
	switch {
	case size > n.Grant.MaxObjectBytes, total > n.Grant.MaxTotalBytes, count > n.Grant.MaxObjects:
		return Fail(wire.CodeTransferTooLarge, "upload an export: it exceeds what the grant allows").WithStatus(http.StatusRequestEntityTooLarge)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d + rand.N(d/4))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// try uploads once: the grant's fields, the path, the media type, then the file.
func (n *Namespace) try(ctx context.Context, path, media string, size int64, content io.ReadSeeker) *Failure {
	if _, err := content.Seek(0, io.SeekStart); err != nil {
		return Fail(wire.CodeInvalidTransfer, "upload an export: %v", err)
	}
	head, tail, typ, err := n.form(path, media)
	if err != nil {
		return Fail(wire.CodeInvalidTransfer, "upload an export: %v", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	watch := time.AfterFunc(silence, func() { cancel(errSilent) })
	defer watch.Stop()
	defer cancel(nil)
	body := io.MultiReader(bytes.NewReader(head), &moving{io.LimitReader(content, size), watch}, bytes.NewReader(tail))
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, n.Grant.Write.URL, body)
	if err != nil {
		return Fail(wire.CodeInvalidTransfer, "upload an export: the grant's url is no address")
	}
	r.ContentLength = int64(len(head)) + size + int64(len(tail))
	for k, v := range n.Grant.Write.Headers {
		r.Header.Set(k, v)
	}
	r.Header.Set("Content-Type", typ)
	resp, err := n.client.Do(r)
	if err != nil {
		if errors.Is(context.Cause(ctx), errSilent) {
			return transfer(wire.CodeTransferTimeout, http.StatusGatewayTimeout, "the store fell silent").Retry()
		}
		return transfer(wire.CodeTransferUnavailable, http.StatusBadGateway, "the store can't be reached").Retry()
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 4096)) // S3 says in it why
	if err != nil {
		return transfer(wire.CodeTransferUnavailable, http.StatusBadGateway, "the store's answer broke off").Retry()
	}
	switch s := resp.StatusCode; {
	case s >= 200 && s < 300:
		return nil
	case s == http.StatusRequestTimeout, s == http.StatusTooManyRequests, s >= 500, s == http.StatusBadRequest && strings.Contains(string(answer), "RequestTimeout"):
		return transfer(wire.CodeTransferUnavailable, http.StatusBadGateway, "the store answered %d", s).Retry()
	case s == http.StatusRequestEntityTooLarge:
		return transfer(wire.CodeTransferTooLarge, http.StatusRequestEntityTooLarge, "the store answered %d", s)
	default:
		return transfer(wire.CodeTransferRejected, http.StatusBadGateway, "the store answered %d", s)
	}
}

var errSilent = errors.New("silent for too long")

func transfer(code string, status int, format string, args ...any) *Failure {
	return Fail(code, "upload an export: %s", fmt.Sprintf(format, args...)).WithApplied(wire.AppliedUnknown).WithStatus(status)
}

// moving puts the watch off as long as bytes are read.
type moving struct {
	io.Reader
	watch *time.Timer
}

func (m *moving) Read(p []byte) (int, error) {
	m.watch.Reset(silence)
	return m.Reader.Read(p)
}

// form is the multipart text before and after the content.
func (n *Namespace) form(path, media string) (head, tail []byte, contentType string, err error) {
	if media == "" {
		media = "application/octet-stream"
	}
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	g := n.Grant.Write
	for _, k := range slices.Sorted(maps.Keys(g.Fields)) {
		if err := w.WriteField(k, g.Fields[k]); err != nil {
			return nil, nil, "", err
		}
	}
	if err := w.WriteField(g.PathField, n.Grant.RootPath+"/"+path); err != nil {
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
