package env

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"agentenv.internal/agentenv/sdk/wire"
)

// clock is where the environment reads its time.
type clock struct {
	mu  sync.Mutex
	url string // "" is the machine's time
}

type syncTime struct {
	URL string `json:"env_get_time_url" jsonschema:"Where the time is read from; the answer holds virtual_time."`
}

// WithClock makes the environment take its time from whoever runs it, and serves the extension that tells where from; see Now.
func WithClock() Option {
	return func(e *Env) {
		e.now = &clock{}
		AddExtension(e, wire.URNClock, "sync_time", func(_ context.Context, in syncTime) (any, error) {
			u, err := url.Parse(in.URL)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return nil, invalid("env_get_time_url must be an http or https address")
			}
			e.now.mu.Lock()
			defer e.now.mu.Unlock()
			e.now.url = in.URL
			return nil, nil
		}, ExtensionDescription("Tells the environment where to read its time."))
	}
}

// Now is the environment's time: the one of whoever runs it, and the machine's as long as nobody told where to read it, or where nobody has set it.
func (e *Env) Now(ctx context.Context) (time.Time, error) {
	from := ""
	if e.now != nil {
		e.now.mu.Lock()
		from = e.now.url
		e.now.mu.Unlock()
	}
	if from == "" {
		return time.Now(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the environment's time: %w", err)
	}
	resp, err := e.client.Do(r)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the environment's time: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return time.Now(), nil // the clock isn't set
	}
	var out struct {
		Virtual string `json:"virtual_time"`
	}
	if resp.StatusCode != http.StatusOK {
		return time.Time{}, fmt.Errorf("read the environment's time: it answered %d", resp.StatusCode)
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<16)).Decode(&out); err != nil {
		return time.Time{}, fmt.Errorf("read the environment's time: %w", err)
	}
	t, err := time.Parse(time.RFC3339Nano, out.Virtual)
	if err != nil {
		return time.Time{}, fmt.Errorf("read the environment's time: %q is no time", out.Virtual)
	}
	return t, nil
}
