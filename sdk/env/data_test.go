package env_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// rpc calls the data plane and answers the whole body.
func rpc(t *testing.T, url, method, params string) string {
	t.Helper()
	status, _, body := ask(t, "POST", url+wire.DataPath, fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":%s}`, method, params))
	if status != 200 {
		t.Fatalf("%s: status %d: %s", method, status, body)
	}
	return body
}

func filePart(uri string) string {
	return fmt.Sprintf(`{"parts":[{"kind":"file","file":{"uri":%q}}]}`, uri)
}

// TestSeeds: each way to send a seed loads, and what can't be read says why.
func TestSeeds(t *testing.T) {
	const seed = `{"notes":[{"text":"from-%s"}]}`
	store := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/seed":
			fmt.Fprintf(w, seed, "https")
		case "/elsewhere":
			http.Redirect(w, r, "/seed", http.StatusFound)
		case "/long":
			w.(http.Flusher).Flush() // no length
			fmt.Fprint(w, strings.Repeat(" ", 3000))
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(store.Close)
	client := store.Client()
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	dir := t.TempDir()
	path := filepath.Join(dir, "a seed.json")
	if err := os.WriteFile(path, fmt.Appendf(nil, seed, "file"), 0o600); err != nil {
		t.Fatal(err)
	}
	big := filepath.Join(dir, "big")
	if err := os.WriteFile(big, make([]byte, 2001), 0o600); err != nil {
		t.Fatal(err)
	}
	_, e := newNotes(env.WithHTTPClient(client), env.WithLimits(0, 0, 2000))
	srv := serve(t, e)
	for name, params := range map[string]string{
		"data":  `{"parts":[{"kind":"data","data":{"notes":[{"text":"from-data"}]}}]}`,
		"bytes": `{"parts":[{"kind":"file","file":{"bytes":"eyJub3RlcyI6W3sidGV4dCI6ImZyb20tYnl0ZXMifV19","uri":"file:///nothing"}}]}`,
		"file":  filePart("file://" + strings.ReplaceAll(path, " ", "%20")),
		"https": filePart(store.URL + "/seed"),
	} {
		rpc(t, srv.URL, wire.Reset, "{}")
		if got := rpc(t, srv.URL, wire.Add, params); got != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("%s: %s", name, got)
		}
		if got := rpc(t, srv.URL, wire.Get, "{}"); !strings.Contains(got, "from-"+name) {
			t.Errorf("%s: get answers %s", name, got)
		}
	}
	for params, want := range map[string]string{
		filePart("file:///nothing/there"):                  "no such file",
		filePart("file://" + dir):                          "is no regular file",
		filePart("file://" + big):                          "more than 2000 bytes",
		filePart("file://elsewhere/x"):                     "an absolute path of this machine",
		filePart("file:relative"):                          "an absolute path of this machine",
		filePart("http://127.0.0.1/x"):                     `must begin with file:// or https://, not \"http\"`,
		filePart("s3://bucket/x"):                          `not \"s3\"`,
		filePart(store.URL + "/nothing"):                   "it answered 404",
		filePart(store.URL + "/elsewhere"):                 "it answered 302",
		filePart(store.URL + "/long"):                      "more than 2000 bytes",
		filePart("https://127.0.0.1:9/?sig=s3kr"):          "fetch the seed from 127.0.0.1:9",
		`{"parts":[{"kind":"file","file":{"bytes":"!"}}]}`: "aren't base64",
		`{"parts":[{"kind":"data","data":{"notes":5}}]}`:   "isn't the JSON that is wanted",
	} {
		got := rpc(t, srv.URL, wire.Add, params)
		if !strings.Contains(got, want) || !strings.Contains(got, `"code":-32000`) || !strings.Contains(got, `"code":"add_failed"`) {
			t.Errorf("%s: %s, want %q", params, got, want)
		}
		if strings.Contains(got, "s3kr") {
			t.Errorf("the error tells a signature: %s", got)
		}
	}
}

// TestLargeCalls: a body beyond the limit is refused, not read.
func TestLargeCalls(t *testing.T) {
	_, e := newNotes(env.WithLimits(1000, 1000, 0))
	srv := serve(t, e)
	long := strings.Repeat("x", 2000)
	if got := rpc(t, srv.URL, wire.Add, `{"parts":[{"kind":"text","text":"`+long+`"}]}`); !strings.Contains(got, "more than 1000 bytes") {
		t.Error(got)
	}
	if status, _, body := ask(t, "POST", srv.URL+"/agentenv/ext/example/fault/set", `{"mode":"`+long+`"}`); status != 413 || !strings.Contains(body, "invalid_params") {
		t.Error(status, body)
	}
	status, _, body := ask(t, "POST", srv.URL+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"x":"`+long+`"}}`, "Accept", "*/*", "Content-Type", "application/json")
	if status != 413 || !json.Valid([]byte(body)) {
		t.Error(status, body)
	}
}

// TestPanicStaysInside: what a panic says reaches nobody.
func TestPanicStaysInside(t *testing.T) {
	e := env.New("x", env.WithLookup(func(string) (string, bool) { return "", false }))
	e.OnReset(func(context.Context) error { panic("s3cret") })
	srv := serve(t, e)
	if got := rpc(t, srv.URL, wire.Reset, "{}"); strings.Contains(got, "s3cret") || !strings.Contains(got, "reset_failed") || !strings.Contains(got, "an internal fault") {
		t.Error(got)
	}
}
