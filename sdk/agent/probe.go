package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

const probePath = "/ext/attribution-probe"

// Attribution is what the agent last told a model's endpoint about whom a call was for. At is zero when it has told nothing yet.
type Attribution struct {
	Fields map[string]string
	At     time.Time
}

// WithAttributionProbe lets callers see that attribution reaches the calls that the agent makes.
func WithAttributionProbe(f func(ctx context.Context) (Attribution, error)) Option {
	return func(a *Agent) {
		if f == nil {
			a.problem("WithAttributionProbe needs a function")
		}
		a.probe = f
	}
}

func (a *Agent) probeExtension() (extension, bool, error) {
	if a.probe == nil {
		return extension{}, false, nil
	}
	return newExtension(wire.URNAttributionProbe, "Tells the attribution that was seen last.", probePath,
		operation{name: "probe", verb: http.MethodPost, path: probePath, response: `{"required":["last_seen_attribution"],"optional":["last_seen_at_utc"]}`, serve: a.serveProbe})
}

func (a *Agent) serveProbe(ctx context.Context, body []byte) (any, error) {
	if len(bytes.TrimSpace(body)) > 0 {
		f, err := readFields(body)
		if err == nil {
			err = f.err()
		}
		if err != nil {
			return nil, err
		}
	}
	at, err := a.probe(ctx)
	if err != nil {
		return nil, err
	}
	if at.Fields == nil {
		at.Fields = map[string]string{}
	}
	out := map[string]any{"last_seen_attribution": at.Fields}
	if !at.At.IsZero() {
		out["last_seen_at_utc"] = at.At.UTC().Format(timeForm)
	}
	return out, nil
}

func decodeTexts(b []byte) ([]string, error) {
	var raws []json.RawMessage
	if json.Unmarshal(b, &raws) != nil {
		return nil, errors.New("want a list of texts")
	}
	out := make([]string, len(raws))
	for i, r := range raws {
		if json.Unmarshal(r, &out[i]) != nil || string(r) == "null" {
			return nil, errors.New("want a list of texts")
		}
	}
	return out, nil
}

func decodeBool(b []byte) (bool, error) {
	var v bool
	if json.Unmarshal(b, &v) != nil {
		return false, errors.New("want true or false")
	}
	return v, nil
}
