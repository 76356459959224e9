// Package transfer moves bytes to and from object stores as grants allow: one object read or written, or many uploaded below a namespace.
//
// An object is one request: nothing is resumed and no redirect is followed. A store that is unwell is asked three times while the grant holds.
// Failures are *Error with a code of transfers; neither they nor anything else here repeats a grant's address, fields or headers.
package transfer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// How often a transfer is tried, what the first pause is, and how long a store may be silent.
const (
	attempts   = 3
	firstPause = time.Second
	silence    = 60 * time.Second
)

// StagingHeader, in a grant's headers, is the path at which the receiver itself stages the object: it is then tried on the loopback first.
const StagingHeader = "AgentEnv-Staging-Path"

// Error is a transfer that failed.
type Error struct {
	wire.Failure
	Status int // of HTTP, for an answer that tells of it
}

func (e *Error) Error() string { return e.Message }

// Unwrap makes errors.As find the failure.
func (e *Error) Unwrap() error { return &e.Failure }

// status is the answer that tells of a failure, by code.
func status(code string) int {
	switch code {
	case wire.CodeInvalidTransfer:
		return http.StatusBadRequest
	case wire.CodeGrantExpired:
		return http.StatusGone
	case wire.CodeTransferTooLarge:
		return http.StatusRequestEntityTooLarge
	case wire.CodeIntegrityMismatch:
		return http.StatusUnprocessableEntity
	case wire.CodeTransferTimeout:
		return http.StatusGatewayTimeout
	}
	return http.StatusBadGateway
}

func failed(code string, retry bool, format string, args ...any) *Error {
	applied := wire.AppliedUnknown
	if code == wire.CodeInvalidTransfer || code == wire.CodeGrantExpired {
		applied = wire.AppliedNo
	}
	return &Error{wire.Failure{Code: code, Message: fmt.Sprintf(format, args...), Retryable: retry, Applied: applied}, status(code)}
}

// Client makes transfers. The zero value works.
type Client struct {
	// HTTP makes the requests; nil is one that follows no redirects and takes at most 30 s to connect. One that is given must not follow them to where a grant doesn't lead.
	HTTP *http.Client
	// Port is the one that this process serves its own staging on, for grants that carry StagingHeader; nil or 0: none.
	Port func() int
}

func (c *Client) http() *http.Client {
	if c != nil && c.HTTP != nil {
		return c.HTTP
	}
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// again runs try until it succeeds, fails for good, or the grant has expired.
func again(ctx context.Context, expires time.Time, try func() *Error) error {
	for n := range attempts {
		if !expires.IsZero() && !time.Now().Before(expires) {
			return failed(wire.CodeGrantExpired, false, "the grant has expired")
		}
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !err.Retryable || n == attempts-1 {
			return err
		}
		if err := pause(ctx, firstPause<<n); err != nil {
			return err
		}
	}
	return errors.New("no attempt was made")
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d + rand.N(d/4))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var errSilent = errors.New("silent for too long")

// unreachable says why a request got no answer.
func unreachable(ctx context.Context) *Error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return failed(wire.CodeTransferTimeout, true, "the store fell silent")
	}
	return failed(wire.CodeTransferUnavailable, true, "the store can't be reached")
}

// answered says what an answer means; body is its beginning, in which S3 tells why.
func answered(s int, body string) *Error {
	switch {
	case s >= 200 && s < 300:
		return nil
	case s == http.StatusRequestTimeout, s == http.StatusTooManyRequests, s >= 500, s == http.StatusBadRequest && strings.Contains(body, "RequestTimeout"):
		return failed(wire.CodeTransferUnavailable, true, "the store answered %d", s)
	case s == http.StatusRequestEntityTooLarge:
		return failed(wire.CodeTransferTooLarge, false, "the store answered %d", s)
	}
	return failed(wire.CodeTransferRejected, false, "the store answered %d", s)
}

// send makes a request at the grant's address, or first, when this process stages the object itself, at its own port. remake makes the request
// for an address.
func (c *Client) send(ctx context.Context, address string, headers map[string]string, remake func(ctx context.Context, address string) (*http.Request, error)) (*http.Response, error) {
	if local := c.local(headers); local != "" {
		r, err := remake(ctx, local)
		if err != nil {
			return nil, err
		}
		resp, err := c.http().Do(r)
		if op, ok := errors.AsType[*net.OpError](err); err == nil || !ok || op.Op != "dial" {
			return resp, err
		}
	}
	r, err := remake(ctx, address)
	if err != nil {
		return nil, err
	}
	return c.http().Do(r)
}

func (c *Client) local(headers map[string]string) string {
	if c == nil || c.Port == nil {
		return ""
	}
	port := c.Port()
	for k, path := range headers {
		if port > 0 && strings.EqualFold(k, StagingHeader) && strings.HasPrefix(path, "/") {
			u := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
			if p, err := url.Parse(path); err == nil && p.Host == "" {
				u.Path, u.RawPath = p.Path, p.RawPath
				return u.String()
			}
		}
	}
	return ""
}
