package agent_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/agent"
)

// BenchmarkTurn is a whole turn over HTTP: a blocking message and its reply.
func BenchmarkTurn(b *testing.B) {
	a := agent.New("a", echo, agent.WithLookup(nothing))
	h, err := a.Handler()
	if err != nil {
		b.Fatal(err)
	}
	srv := httptest.NewServer(h)
	defer srv.Close()
	body := `{"jsonrpc":"2.0","id":1,"method":"message/send","params":` + send("x", "", true) + `}`
	b.ReportAllocs()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL+"/a2a", strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			resp, err := srv.Client().Do(req)
			if err != nil {
				b.Error(err)
				return
			}
			if _, err := io.Copy(io.Discard, resp.Body); err != nil {
				b.Error(err)
			}
			resp.Body.Close()
		}
	})
	if err := a.Close(context.WithoutCancel(b.Context())); err != nil {
		b.Error(err)
	}
}
