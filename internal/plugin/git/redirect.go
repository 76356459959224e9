package git

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// httpTime bounds one request of ours; git's own have its limits.
const httpTime = 30 * time.Second

var errSlow = errors.New("it didn't answer in time")

const (
	discovery    = "/info/refs"
	maxRedirects = 5
)

// following runs work on a source. Where the server sends git elsewhere, which git itself is told not to follow, the new place is checked as
// the old one was, and work is run on it.
func (f *Fetcher) following(ctx context.Context, s Source, work func(Source) error) error {
	err := work(s)
	fail, ok := errors.AsType[*Failure](err)
	if !ok || s.Scheme != HTTPS && s.Scheme != HTTP || !strings.Contains(fail.Text, "requested URL returned error: 30") {
		return err
	}
	target, err := f.target(ctx, s)
	if err != nil {
		return fmt.Errorf("%s: it is redirected: %w", s, err)
	}
	return work(target)
}

// target is where a server sends those who ask for a repository.
func (f *Fetcher) target(ctx context.Context, s Source) (Source, error) {
	for range maxRedirects {
		next, err := f.hop(ctx, s)
		if err != nil {
			return Source{}, err
		}
		if next == s {
			return s, nil
		}
		if s.Scheme == HTTPS && next.Scheme != HTTPS {
			return Source{}, fmt.Errorf("%s is not encrypted", next)
		}
		if err := f.o.Allows(next); err != nil {
			return Source{}, err
		}
		s = next
	}
	return Source{}, errors.New("more often than can be meant")
}

// hop asks for a repository once.
func (f *Fetcher) hop(ctx context.Context, s Source) (Source, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, min(f.o.Lookup, httpTime), errSlow)
	defer cancel()
	resp, err := f.get(ctx, s.String()+discovery+"?service=git-upload-pack", nil)
	if err != nil {
		return Source{}, err
	}
	resp.Body.Close()
	if resp.StatusCode < 300 || resp.StatusCode > 399 {
		return s, nil
	}
	base, err := url.Parse(s.String() + discovery)
	if err != nil {
		return Source{}, err
	}
	u, err := base.Parse(resp.Header.Get("Location"))
	if err != nil || u.RawQuery != "service=git-upload-pack" || u.Fragment != "" {
		return Source{}, errors.New("to a place that is no repository")
	}
	u.RawQuery = ""
	where, ok := strings.CutSuffix(u.String(), discovery)
	if !ok {
		return Source{}, errors.New("to a place that is no repository")
	}
	return ParseSource(where)
}

// get sends one request and follows nothing. The caller closes the body.
func (f *Fetcher) get(ctx context.Context, address string, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	req.Header.Set("User-Agent", "agent-env")
	if f.o.GitHub != nil {
		f.o.GitHub(req)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(req)
	if err != nil && errors.Is(context.Cause(ctx), errSlow) {
		return nil, fmt.Errorf("ask %s: %w", req.URL.Host, errSlow)
	}
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		return nil, fmt.Errorf("ask %s: %w", req.URL.Host, err)
	}
	return resp, nil
}
