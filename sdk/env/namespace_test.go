package env_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// store answers uploads with statuses in turn, and keeps what was sent.
type store struct {
	statuses []int // 0 is no answer at all
	bodies   []string
	forms    [][]string // name=value, in order
	types    []string
}

func (s *store) RoundTrip(r *http.Request) (*http.Response, error) {
	_, p, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return nil, err
	}
	var form []string
	n := int64(0)
	m := multipart.NewReader(io.TeeReader(r.Body, counter{&n}), p["boundary"])
	for {
		part, err := m.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		b, err := io.ReadAll(part)
		if err != nil {
			return nil, err
		}
		form = append(form, part.FormName()+"="+string(b))
		if part.FileName() != "" {
			s.types = append(s.types, part.FileName()+" "+part.Header.Get("Content-Type"))
		}
	}
	if _, err := io.Copy(io.Discard, io.TeeReader(r.Body, counter{&n})); err != nil {
		return nil, err
	}
	if n != r.ContentLength {
		return nil, errors.New("the length that was told isn't the body's")
	}
	s.forms = append(s.forms, append(form, "header="+r.Header.Get("X-Grant")))
	i := len(s.forms) - 1
	if s.statuses[i] == 0 {
		return nil, errors.New("connection refused")
	}
	body := ""
	if i < len(s.bodies) {
		body = s.bodies[i]
	}
	return &http.Response{StatusCode: s.statuses[i], Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{}}, nil
}

type counter struct{ n *int64 }

func (c counter) Write(p []byte) (int, error) { *c.n += int64(len(p)); return len(p), nil }

const grant = `{"root_path":"snap/x","expires_at":"2000-01-01T01:00:00Z","max_objects":1,"max_object_bytes":1000,"max_total_bytes":1000,` +
	`"write":{"kind":"http-post-policy","url":"https://store/up","fields":{"policy":"p","acl":"a"},"path_field":"key","file_field":"file","headers":{"X-Grant":"g"}}}`

// get calls data/get of the notes environment without a network: time stands where the test puts it.
func get(t *testing.T, s *store, texts ...string) wire.Response {
	t.Helper()
	n, e := newNotes(env.WithHTTPClient(&http.Client{Transport: s}))
	for _, x := range texts {
		n.rows = append(n.rows, note{Text: x})
	}
	h, err := e.Handler()
	if err != nil {
		t.Fatal(err)
	}
	body := `{"jsonrpc":"2.0","id":1,"method":"data/get","params":{"write_namespace":` + grant + `}}`
	r, err := http.NewRequestWithContext(t.Context(), "POST", "/agentenv", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	w := &recorder{header: http.Header{}}
	h.ServeHTTP(w, r)
	resp, err := wire.DecodeResponse([]byte(w.body.String()))
	if err != nil {
		t.Fatalf("%s: %v", w.body.String(), err)
	}
	return resp
}

type recorder struct {
	header http.Header
	body   strings.Builder
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) WriteHeader(int)             {}
func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

// TestUpload: the form has the grant's fields, the path, the type, then the file; a store that is unwell is asked again.
func TestUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now() // 2000-01-01T00:00:00Z
		s := &store{statuses: []int{503, 400, 204}, bodies: []string{"", "<Code>RequestTimeout</Code>"}}
		r := get(t, s, "a")
		if r.Error != nil {
			t.Fatal(r.Error)
		}
		const want = `{"parts":[{"kind":"file","file":{"uri":"notes.json","mimeType":"application/json","name":"notes.json"},"metadata":{"urn:agentenv:data-objects/v1":{"path":"notes.json"}}}]}`
		if string(r.Result) != want {
			t.Errorf("%s", r.Result)
		}
		if got := strings.Join(s.forms[2], " "); got != `acl=a policy=p key=snap/x/notes.json Content-Type=application/json file={"notes":[{"text":"a"}]} header=g` {
			t.Errorf("form %s", got)
		}
		if got := s.types[2]; got != "notes.json application/json" {
			t.Errorf("file %s", got)
		}
		if took := time.Since(began); took < 3*time.Second || took > 4*time.Second {
			t.Errorf("pauses took %v", took)
		}
	})
}

// TestUploadFails: each way in which an upload can fail has its code; neither address nor fields of the grant are told.
func TestUploadFails(t *testing.T) {
	for name, c := range map[string]struct {
		s     *store
		after time.Duration
		text  string
		want  string
		tries int
	}{
		"rejected":      {&store{statuses: []int{403}}, 0, "a", "the store answered 403", 1},
		"redirected":    {&store{statuses: []int{307}}, 0, "a", "the store answered 307", 1},
		"too large":     {&store{}, 0, strings.Repeat("x", 1000), "exceeds what the grant allows", 0},
		"expired":       {&store{}, 2 * time.Hour, "a", "the grant has expired", 0},
		"unreachable":   {&store{statuses: []int{0, 0, 0}}, 0, "a", "the store can't be reached", 3},
		"unwell":        {&store{statuses: []int{500, 429, 408}}, 0, "a", "the store answered 408", 3},
		"expires since": {&store{statuses: []int{500, 500, 500}}, time.Hour - time.Second, "a", "the grant has expired", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(c.after)
				r := get(t, c.s, c.text)
				if r.Error == nil || r.Error.DataCode() != wire.GetFailed || !strings.Contains(r.Error.Message, c.want) {
					t.Fatalf("%s, %+v", r.Result, r.Error)
				}
				if strings.Contains(r.Error.Message, "https://") || len(c.s.forms) != c.tries {
					t.Errorf("%s after %d tries", r.Error.Message, len(c.s.forms))
				}
			})
		})
	}
}

// TestUploadPaths: a path that leads out of the grant is never sent.
func TestUploadPaths(t *testing.T) {
	s := &store{}
	e := env.New("x", env.WithHTTPClient(&http.Client{Transport: s}), env.WithLookup(func(string) (string, bool) { return "", false }))
	var errs []error
	e.OnExport(func(ctx context.Context, to *env.Namespace) ([]wire.Part, error) {
		for _, p := range []string{"../x", "/x", "a//b", "a/./b", `a\b`, ""} {
			_, err := to.Upload(ctx, p, "", "", strings.NewReader("x"))
			errs = append(errs, err)
		}
		return nil, nil
	})
	srv := serve(t, e)
	params, err := json.Marshal(map[string]any{"write_namespace": json.RawMessage(strings.Replace(grant, "2000-", "2100-", 1))})
	if err != nil {
		t.Fatal(err)
	}
	rpc(t, srv.URL, wire.Get, string(params))
	if len(errs) != 6 || len(s.forms) != 0 {
		t.Fatalf("%d errors, %d uploads", len(errs), len(s.forms))
	}
	for _, err := range errs {
		if f, ok := errors.AsType[*env.Failure](err); !ok || f.Code != wire.CodeInvalidTransfer {
			t.Errorf("%v", err)
		}
	}
}
