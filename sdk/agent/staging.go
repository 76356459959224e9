package agent

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"

	"agentenv.internal/agentenv/sdk/wire"
)

const stagingPath = "/ext/staging"

// Bounds of what staging takes.
const (
	defaultStaging = 16 << 30 // bytes, unless AGENTENV_STAGING_MAX_BYTES says otherwise
	minStagingID   = 22       // characters of a path's first segment, which is a secret
	maxStagingPath = 1024
	maxFormFields  = 32
	maxFormField   = 64 << 10
	maxPartHeader  = 16 << 10
)

// configure reads the limits of staging.
func (s *staging) configure(lookup func(string) (string, bool)) error {
	s.max = defaultStaging
	if v, ok := lookup(StagingMaxBytesVariable); ok && strings.TrimSpace(v) != "" {
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil || n < 0 {
			return fmt.Errorf("%s: %q is no number of bytes", StagingMaxBytesVariable, v)
		}
		s.max = n
	}
	s.dir, _ = lookup(StagingDirVariable)
	return nil
}

func (a *Agent) stagingExtension() (extension, bool, error) {
	if a.staging.max == 0 {
		return extension{}, false, nil
	}
	raw, err := encode(map[string]any{"endpoint": stagingPath, "max_bytes": a.staging.max})
	return extension{card: wire.Extension{URI: wire.URNStaging, Description: "Keeps objects on their way between the agent and its caller.", Params: raw}}, true, err
}

// stagingError is a refusal of staging, which are JSON.
type stagingError struct {
	status int
	detail string
}

func (e *stagingError) Error() string { return e.detail }

func refuseStaging(status int, detail string) error { return &stagingError{status, detail} }

// checkStaging tells what is wrong with a path: it must be in its shortest form and begin with a long id.
func checkStaging(p string) error {
	if len(p) > maxStagingPath || wire.CheckPath(p) != nil {
		return refuseStaging(http.StatusBadRequest, "the path must be relative, of at most 1024 characters, without empty, . or .. segments")
	}
	if id, _, _ := strings.Cut(p, "/"); len(id) < minStagingID {
		return refuseStaging(http.StatusNotFound, "nothing is staged at this path")
	}
	return nil
}

// serve answers below stagingPath.
func (s *staging) serve(w http.ResponseWriter, r *http.Request) {
	p := strings.TrimPrefix(r.URL.Path, stagingPath+"/")
	p, below := strings.CutSuffix(p, "/")
	err := checkStaging(p)
	if err == nil {
		err = s.store()
	}
	if err == nil {
		switch {
		case below && r.Method == http.MethodGet:
			err = s.serveList(w, p)
		case below && r.Method == http.MethodDelete:
			err = s.removeBelow(p)
		case below:
			err = refuseStaging(http.StatusMethodNotAllowed, "what ends in / can be listed and deleted alone")
		case r.Method == http.MethodGet || r.Method == http.MethodHead:
			err = s.serveObject(w, r, p)
		case r.Method == http.MethodPut:
			err = s.servePut(w, r, p)
		case r.Method == http.MethodPost:
			err = s.servePost(w, r, p)
		case r.Method == http.MethodDelete:
			err = s.remove(p, r.Header.Get("If-Match"))
		default:
			err = refuseStaging(http.StatusMethodNotAllowed, "there is no such method")
		}
	}
	switch {
	case err != nil:
		answerStaging(w, err)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	}
}

func answerStaging(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*stagingError](err)
	switch {
	case ok:
	case errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		e = &stagingError{http.StatusInsufficientStorage, "the disk is full"}
	case errors.Is(err, errBody):
		e = &stagingError{http.StatusBadRequest, "the body broke off"}
	default: // errors of the file system name paths, which hold secrets
		e = &stagingError{http.StatusInternalServerError, "the object can't be stored"}
	}
	b, _ := encode(map[string]string{"detail": e.detail}) // a text always encodes
	answer(w, e.status, "application/json", b)
}

// staged is an object as callers are told of it.
type staged struct {
	Path   string `json:"path"`
	Size   int64  `json:"size_bytes"`
	ETag   string `json:"etag"`
	SHA256 string `json:"sha256,omitempty"`
}

func etag(fi os.FileInfo) string {
	return fmt.Sprintf("\"%x-%x\"", fi.ModTime().UnixNano(), fi.Size())
}

func (s *staging) serveList(w http.ResponseWriter, p string) error {
	found, err := s.list(p)
	if err != nil {
		return err
	}
	b, err := encode(map[string]any{"objects": found})
	if err == nil {
		answer(w, http.StatusOK, "application/json", b)
	}
	return err
}

func (s *staging) serveObject(w http.ResponseWriter, r *http.Request, p string) error {
	f, fi, err := s.open(p)
	if err != nil {
		return err
	}
	defer f.Close()
	w.Header().Set("Content-Type", opaque)
	w.Header().Set("ETag", etag(fi))
	w.Header().Set("Content-Length", strconv.FormatInt(fi.Size(), 10))
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	_, _ = io.Copy(w, f) // the client may be gone, and the status is out
	return nil
}

// body tells a client that broke off from a disk that failed.
type body struct{ r io.Reader }

var errBody = errors.New("the body broke off")

func (b body) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("%w: %w", errBody, err)
	}
	return n, err
}

func (s *staging) servePut(w http.ResponseWriter, r *http.Request, p string) error {
	return answerStored(w)(s.put(p, body{r.Body}, r.ContentLength))
}

func answerStored(w http.ResponseWriter) func(staged, error) error {
	return func(o staged, err error) error {
		if err != nil {
			return err
		}
		b, err := encode(o)
		if err == nil {
			answer(w, http.StatusCreated, "application/json", b)
		}
		return err
	}
}

// servePost takes a form: fields, one of which is the key, then the file. What follows the file is ignored.
func (s *staging) servePost(w http.ResponseWriter, r *http.Request, prefix string) error {
	bad := func(detail string) error { return refuseStaging(http.StatusBadRequest, detail) }
	media, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || media != "multipart/form-data" || params["boundary"] == "" {
		return bad("the upload must be multipart/form-data")
	}
	form := multipart.NewReader(r.Body, params["boundary"])
	key, keyed := "", false
	for n := 0; ; n++ {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) {
			return bad("the upload has no field file")
		}
		if err != nil {
			return bad("the upload is no valid form")
		}
		size := 0
		for k, v := range part.Header {
			size += len(k) + len(strings.Join(v, ""))
		}
		switch name := part.FormName(); {
		case size > maxPartHeader:
			return bad("a part's headers are too long")
		case name == "":
			return bad("a field has no name")
		case name == "file" && !keyed:
			return bad("the upload must name its key before its file")
		case name == "file":
			p := path.Join(prefix) + "/" + key
			if err := checkStaging(p); err != nil {
				return err
			}
			return answerStored(w)(s.put(p, formBody{part}, -1))
		case n >= maxFormFields:
			return bad("the upload has too many fields")
		default:
			v, err := io.ReadAll(io.LimitReader(part, maxFormField+1))
			if err != nil {
				return bad("the upload is no valid form")
			}
			if len(v) > maxFormField {
				return bad("a field is too long")
			}
			if name == "key" {
				key, keyed = string(v), true
			}
		}
	}
}

// formBody makes a form that breaks off within its file the client's fault.
type formBody struct{ r io.Reader }

func (b formBody) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = refuseStaging(http.StatusBadRequest, "the upload is no valid form")
	}
	return n, err
}
