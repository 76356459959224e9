package env_test

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"strings"
	"sync"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// A counter is an environment with a tool, and data that can be loaded, reset and exported.
type counting struct {
	mu sync.Mutex
	n  int
}

func (c *counting) environment() *env.Env {
	e := env.New("counter", env.WithLookup(func(string) (string, bool) { return "", false }))
	type step struct {
		By int `json:"by" jsonschema:"How much to add." default:"1"`
	}
	env.AddTool(e, "count", "Add to the counter.", func(_ context.Context, in step) (int, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if in.By == 0 {
			return 0, env.Fail("no_step", "adding nothing makes no sense").WithHint("leave by out to add 1")
		}
		c.n += in.By
		return c.n, nil
	})
	type seed struct {
		N int `json:"n"`
	}
	e.OnReset(func(context.Context) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.n = 0
		return nil
	})
	e.OnAdd(func(ctx context.Context, inputs []*env.Input) error {
		for _, in := range inputs {
			var s seed
			if err := in.Decode(ctx, &s); err != nil {
				return err
			}
			c.mu.Lock()
			c.n += s.N
			c.mu.Unlock()
		}
		return nil
	})
	e.OnGet(func(context.Context) ([]wire.Part, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		p, err := wire.DataPart(seed{c.n})
		return []wire.Part{p}, err
	})
	return e
}

// An environment is put together, then served. In a program, Serve takes the place of a test server and of Close.
func Example() {
	c := &counting{}
	e := c.environment()
	h, err := e.Handler()
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	call := func(body string) {
		resp, err := srv.Client().Post(srv.URL+wire.DataPath, "application/json", strings.NewReader(body))
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			fmt.Println(err)
		}
		fmt.Println(string(b))
	}
	call(`{"jsonrpc":"2.0","id":1,"method":"data/add","params":{"parts":[{"kind":"data","data":{"n":41}}]}}`)
	call(`{"jsonrpc":"2.0","id":2,"method":"data/get"}`)
	call(`{"jsonrpc":"2.0","id":3,"method":"data/reset"}`)
	card := e.Card()
	fmt.Println(card.Name, card.Capabilities.Operations, card.Capabilities.Tools[0].Name)
	// Output:
	// {"jsonrpc":"2.0","id":1,"result":{}}
	// {"jsonrpc":"2.0","id":2,"result":{"parts":[{"kind":"data","data":{"n":41}}]}}
	// {"jsonrpc":"2.0","id":3,"result":{}}
	// counter [data/reset data/add data/get] count
}

// Methods of one extension share an entry of the card and have a path each.
func ExampleAddExtension() {
	e := env.New("door", env.WithLookup(func(string) (string, bool) { return "", false }))
	open := false
	type set struct {
		Open bool `json:"open"`
	}
	env.AddExtension(e, "urn:example:door/v1", "set", func(_ context.Context, in set) (any, error) {
		if in.Open == open {
			return nil, env.Fail("conflict", "it is so already").Retry().WithStatus(409)
		}
		open = in.Open
		return nil, nil
	}, env.Op())
	h, err := e.Handler()
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, body := range []string{`{"open":"yes"}`, `{"open":true}`, `{"open":1,"wide":2}`} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("POST", "/agentenv/ext/example/door/set", strings.NewReader(body)))
		fmt.Println(w.Code, w.Body)
	}
	// Output:
	// 200 {}
	// 409 {"ok":false,"error":{"code":"conflict","message":"it is so already","retryable":true,"applied":"no"}}
	// 400 {"ok":false,"error":{"code":"invalid_params","message":"wide: there is no such parameter","retryable":false,"applied":"no"}}
}
