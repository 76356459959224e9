package a2a

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"

	"agentenv.internal/agentenv/sdk/wire"
)

// ErrNotServed: the agent's card lists no such operation, or none that takes these members.
var ErrNotServed = errors.New("is not served by the agent")

// Operation calls an operation of an extension as the card describes it. in is the request, of which nothing may be sent that the card
// doesn't list; nil is none. out may be nil. secret says that in carries grants or credentials.
func (c *Client) Operation(ctx context.Context, card *wire.AgentCard, uri, name string, in map[string]any, out any, secret bool) error {
	op, ok := card.AgentOperation(uri, name)
	if !ok {
		return fmt.Errorf("%s of %s %w", name, uri, ErrNotServed)
	}
	members := make([]string, 0, len(in))
	for k := range in {
		members = append(members, k)
	}
	slices.Sort(members)
	if op.Request != nil && !op.Request.Takes(members...) {
		return fmt.Errorf("%s of %s with %v %w", name, uri, members, ErrNotServed)
	}
	var body []byte
	if op.Method != http.MethodGet {
		if in == nil {
			in = map[string]any{}
		}
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	answer, err := c.do(ctx, op.Method, op.Endpoint, body, maxAnswer, secret)
	if err != nil {
		return fmt.Errorf("%s of %s: %w", name, uri, err)
	}
	if out == nil || len(answer) == 0 {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s of %s: %w: it is not of the form that is wanted", name, uri, ErrMalformed)
	}
	return nil
}

// Transfer moves an object at a path of the agent's own: body is sent as it comes, size says how long it is; match, where it isn't "", is the tag that the
// object must still have. The answer's body is the caller's to close; an answer that is no success is a *StatusError, without its text, and the path is in no error: both may be secrets.
func (c *Client) Transfer(ctx context.Context, method, path, match string, body io.Reader, size int64) (*http.Response, error) {
	if body != nil && size == 0 {
		body = http.NoBody
	}
	req, err := http.NewRequestWithContext(ctx, method, c.at(path), body)
	if err != nil {
		return nil, errors.New("the path of a transfer is none")
	}
	req.ContentLength = size
	req.Header.Set("Accept-Encoding", "identity")
	if match != "" {
		req.Header.Set("If-Match", match)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, unreachable(ctx, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		b, _ := io.ReadAll(io.LimitReader(res.Body, maxError)) // for its code alone
		res.Body.Close()
		return nil, statusError(res.StatusCode, b, true)
	}
	return res, nil
}

// refused tells whether a request surely never arrived: the connection could not be made.
func refused(err error) bool {
	var op *net.OpError
	return errors.Is(err, ErrUnreachable) && errors.As(err, &op) && op.Op == "dial"
}
