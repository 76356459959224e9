package transfer_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"agentenv.internal/agentenv/sdk/transfer"
	"agentenv.internal/agentenv/sdk/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// store answers requests in turn.
type store struct {
	answers []func(*http.Request) (*http.Response, error)
	asked   []string
}

func (s *store) RoundTrip(r *http.Request) (*http.Response, error) {
	body := []byte{}
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	s.asked = append(s.asked, fmt.Sprint(r.Method, " ", r.URL, " ", r.Header.Get("Content-Type"), r.Header.Get("Accept-Encoding"), " ", r.Header.Get("X-Grant"), " ", string(body)))
	return s.answers[min(len(s.asked), len(s.answers))-1](r)
}

func says(status int, body string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Header: http.Header{"Location": {"https://elsewhere/"}}}, nil
	}
}

func refused(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Err: errors.New("refused")}
}

// silent answers nothing until it is given up on.
func silent(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

type stalls struct{ ctx context.Context }

func (s stalls) Read([]byte) (int, error) { <-s.ctx.Done(); return 0, s.ctx.Err() }

func stalling(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: io.NopCloser(io.MultiReader(strings.NewReader("so"), stalls{r.Context()}))}, nil
}

func client(s *store) *transfer.Client {
	return &transfer.Client{HTTP: &http.Client{Transport: s, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func code(err error) string {
	e, ok := errors.AsType[*transfer.Error](err)
	if !ok {
		return fmt.Sprint(err)
	}
	return fmt.Sprint(e.Code, " ", e.Status, " ", e.Retryable)
}

var sum = sha256.Sum256([]byte("some"))

// TestGet: an object is read with what its grant says, checked, and asked for again while that may help.
func TestGet(t *testing.T) {
	size := int64(4)
	for name, c := range map[string]struct {
		answers []func(*http.Request) (*http.Response, error)
		change  func(*wire.ReadObject)
		want    string
		asked   int
	}{
		"good":              {answers: []func(*http.Request) (*http.Response, error){says(200, "some")}, want: "<nil>", asked: 1},
		"unwell, then well": {answers: []func(*http.Request) (*http.Response, error){says(503, ""), says(400, "<Code>RequestTimeout</Code>"), says(200, "some")}, want: "<nil>", asked: 3},
		"unwell":            {answers: []func(*http.Request) (*http.Response, error){says(503, "")}, want: "transfer_unavailable 502 true", asked: 3},
		"unreachable":       {answers: []func(*http.Request) (*http.Response, error){refused}, want: "transfer_unavailable 502 true", asked: 3},
		"silent":            {answers: []func(*http.Request) (*http.Response, error){silent, stalling}, want: "transfer_timeout 504 true", asked: 3},
		"refused":           {answers: []func(*http.Request) (*http.Response, error){says(403, "")}, want: "transfer_rejected 502 false", asked: 1},
		"moved":             {answers: []func(*http.Request) (*http.Response, error){says(302, "")}, want: "transfer_rejected 502 false", asked: 1},
		"no content":        {answers: []func(*http.Request) (*http.Response, error){says(204, "")}, want: "transfer_rejected 502 false", asked: 1},
		"too large":         {answers: []func(*http.Request) (*http.Response, error){says(200, "some more")}, want: "transfer_too_large 413 false", asked: 1},
		"another size":      {answers: []func(*http.Request) (*http.Response, error){says(200, "som")}, want: "integrity_mismatch 422 false", asked: 1},
		"another digest":    {answers: []func(*http.Request) (*http.Response, error){says(200, "same")}, want: "integrity_mismatch 422 false", asked: 1},
		"expired":           {answers: []func(*http.Request) (*http.Response, error){says(200, "some")}, change: func(o *wire.ReadObject) { o.Read.ExpiresAt = time.Now() }, want: "grant_expired 410 false"},
		"expires meanwhile": {answers: []func(*http.Request) (*http.Response, error){says(503, "")}, change: func(o *wire.ReadObject) { o.Read.ExpiresAt = time.Now().Add(2 * time.Second) }, want: "grant_expired 410 false", asked: 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := wire.ReadObject{MediaType: "text/plain", MaxBytes: 5, SizeBytes: &size, SHA256: hex.EncodeToString(sum[:]), Read: wire.HTTPGrant{Kind: wire.KindGet, URL: "https://store/secret?sig=1", ExpiresAt: time.Now().Add(time.Hour), Headers: map[string]string{"X-Grant": "g"}}}
				if c.change != nil {
					c.change(&o)
				}
				s := &store{answers: c.answers}
				b, err := client(s).Bytes(t.Context(), o, 1<<20)
				if got := code(err); got != c.want || len(s.asked) != c.asked || err == nil && string(b) != "some" {
					t.Errorf("%s, asked %d times; want %s, %d", got, len(s.asked), c.want, c.asked)
				}
				if err != nil && strings.Contains(err.Error(), "secret") {
					t.Errorf("%v tells the grant's address", err)
				}
				if c.asked > 0 && s.asked[0] != "GET https://store/secret?sig=1 identity g " {
					t.Errorf("%q", s.asked[0])
				}
			})
		})
	}
}

// TestPut: an object is written whole at each attempt, and never when it exceeds its grant.
func TestPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := wire.WriteObject{MediaType: "text/plain", MaxBytes: 4, Write: wire.HTTPGrant{Kind: wire.KindPut, URL: "https://store/x", ExpiresAt: time.Now().Add(time.Hour), Headers: map[string]string{"X-Grant": "g"}}}
		s := &store{answers: []func(*http.Request) (*http.Response, error){says(500, ""), refused, says(201, "")}}
		up, err := client(s).Put(t.Context(), o, strings.NewReader("some"))
		if err != nil || up.SizeBytes != 4 || up.SHA256 != hex.EncodeToString(sum[:]) || len(s.asked) != 3 || s.asked[2] != "PUT https://store/x text/plain g some" {
			t.Errorf("%+v %v %q", up, err, s.asked)
		}
		if _, err := client(s).Put(t.Context(), o, strings.NewReader("more!")); code(err) != "transfer_too_large 413 false" || len(s.asked) != 3 {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("enough"))
		if _, err := client(&store{answers: []func(*http.Request) (*http.Response, error){silent}}).Put(ctx, o, bytes.NewReader(nil)); err == nil || err.Error() != "enough" {
			t.Errorf("%v", err)
		}
	})
}

// TestStaged: a grant that this process stages is tried at its own port, and at its address when nobody listens there.
func TestStaged(t *testing.T) {
	o := wire.ReadObject{MaxBytes: 9, Read: wire.HTTPGrant{URL: "https://front/ext/staging/i/x", ExpiresAt: time.Now().Add(time.Hour), Headers: map[string]string{"agentenv-staging-path": "/ext/staging/i/x%20y"}}}
	for port, want := range map[int]string{0: "https://front/ext/staging/i/x", 7: "http://127.0.0.1:7/ext/staging/i/x%20y https://front/ext/staging/i/x"} {
		s := &store{answers: []func(*http.Request) (*http.Response, error){refused, says(200, "x")}}
		if port == 0 {
			s.answers = s.answers[1:]
		}
		c := client(s)
		c.Port = func() int { return port }
		if _, err := c.Bytes(t.Context(), o, 9); err != nil {
			t.Error(err)
		}
		var asked []string
		for _, a := range s.asked {
			asked = append(asked, strings.Fields(a)[1])
		}
		if got := strings.Join(asked, " "); got != want {
			t.Errorf("port %d: %s, want %s", port, got, want)
		}
	}
	o.Read.Headers["agentenv-staging-path"] = "//evil/x"
	s := &store{answers: []func(*http.Request) (*http.Response, error){says(200, "x")}}
	c := client(s)
	c.Port = func() int { return 7 }
	if _, err := c.Bytes(t.Context(), o, 9); err != nil || !strings.Contains(s.asked[0], "https://front/") {
		t.Errorf("%v %q: another host was asked", err, s.asked)
	}
}
