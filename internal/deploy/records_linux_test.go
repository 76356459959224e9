package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/redact"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/step/steptest"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// records keeps pieces of runs in memory.
type records struct {
	dir  string
	mu   sync.Mutex
	kept map[ref.Digest][]byte
	told []deploy.Piece
}

func (r *records) Folder(string) string { return filepath.Join(r.dir, "run") }

func (r *records) Keep(_ context.Context, _ string, in io.Reader) (deploy.Piece, error) {
	b, err := io.ReadAll(in)
	r.mu.Lock()
	defer r.mu.Unlock()
	d := ref.DigestOf(b)
	r.kept[d] = b
	return deploy.Piece{Digest: d, Size: int64(len(b))}, err
}

func (r *records) Open(_ context.Context, d ref.Digest) (io.ReadSeekCloser, int64, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return struct {
		io.ReadSeeker
		io.Closer
	}{bytes.NewReader(r.kept[d]), io.NopCloser(nil)}, int64(len(r.kept[d])), nil
}

func (r *records) BoxCreated(string, string, sandbox.Info)        {}
func (r *records) BoxRemoved(string, string, sandbox.Info, error) {}
func (r *records) EnvTaken(string, deploy.TakeOver) error         { return nil }
func (r *records) EnvKept(_ string, p deploy.Piece) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, p)
}

// What agents do in a run is in its record, large results by their handles, secrets in neither.
func TestRecordsOfARun(t *testing.T) {
	const secret = "xbeginx-s3cr3t"
	p := localProvider(t, nil)
	rec := &records{dir: t.TempDir(), kept: map[ref.Digest][]byte{}}
	hidden := &redact.Redactor{}
	hidden.Add(secret)
	r := steptest.WithAll(t, deploy.EnvOptions{Records: rec, Redact: hidden}, steptest.Named{Name: "local", Provider: p})
	r.Deploy.Open(steptest.Run, deploy.Policy{Observer: rec})
	r.PutEnv("@local/mail", "mail", serveWords)
	v := r.DeployEnv("@local/mail", "up")
	agent := access.Principal{Role: "solver"}
	if got := tool(t, v, agent, "mail_role", "{}"); got != "solver" {
		t.Error(got)
	}
	got := tool(t, v, agent, "mail_big", `{"bytes": 1000000}`)
	if !strings.Contains(got, "begin"+strings.Repeat("x", 3000)) || !strings.Contains(got, strings.Repeat("x", 3000)+"end") || len(got) > 20_000 {
		t.Errorf("%d bytes: %.100s … %.100s", len(got), got, got[len(got)-100:])
	}
	if len(rec.told) != 1 || rec.told[0].What != deploy.PieceResult || !strings.Contains(got, string(rec.told[0].Digest)) || !bytes.Contains(rec.kept[rec.told[0].Digest], []byte(strings.Repeat("x", 1000000))) {
		t.Errorf("%+v", rec.told)
	}
	// Who was answered it reads the rest, and nobody else does.
	ask := fmt.Sprintf(`{"handle": %q, "offset": 500000, "length": 10}`, rec.told[0].Digest)
	if got := tool(t, v, agent, "read_result", ask); !strings.HasPrefix(got, "Bytes 500000 to 500010 of ") || !strings.HasSuffix(got, "\nxxxxxxxxxx") {
		t.Errorf("%.200s", got)
	}
	if got, err := v.Gateway.CallTool(t.Context(), access.Principal{Role: "other"}, "read_result", json.RawMessage(ask)); err != nil || !strings.Contains(string(got), "there is no result ") {
		t.Errorf("another role reads %.200s, %v", got, err)
	}
	_, _ = v.Gateway.CallTool(t.Context(), agent, "mail_fetch", json.RawMessage(`{"url": "http://127.0.0.1:1/`+secret+`", "role": "", "body": ""}`))

	// A snapshot can hold the log of calls; there is no database, so that changes are left out and the rest is kept.
	var missed []string
	pin, _, err := v.Snapshot(t.Context(), r.Store, deploy.Snapshot{ID: "@local/after", Calls: true, Changes: true, Missed: func(what string, err error) { missed = append(missed, fmt.Sprint(what, ": ", err)) }})
	if err != nil || strings.Join(missed, "; ") != "env_changes: the environment keeps no log of changes" {
		t.Error(missed, err)
	}
	d, err := r.Store.Get(t.Context(), store.Artifact, pin.ID+"__metadata__env_trajectory", pin.Version)
	if err != nil {
		t.Fatal(err)
	}
	if files, err := artifact.Files(d.Type, d.Body); err != nil || len(files) != 1 || files[0].Path != "trajectory.jsonl" || files[0].Size == 0 {
		t.Errorf("%+v %v", files, err)
	}
	if list, err := os.ReadDir(rec.Folder("")); err != nil || len(list) != 1 {
		t.Errorf("%v %v", list, err)
	}
	gone(t, r, p)
	if _, err := os.Stat(rec.Folder("")); !os.IsNotExist(err) {
		t.Error("the run's folder is left")
	}
	last := rec.told[len(rec.told)-1]
	calls := string(rec.kept[last.Digest])
	if last.What != deploy.PieceCalls || last.Env != "@local/mail" || last.Instance != v.Instance || !strings.Contains(calls, `"mail_big"`) || !strings.Contains(calls, `"solver"`) {
		t.Errorf("%+v\n%.2000s", last, calls)
	}
	for digest, b := range rec.kept {
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("%s holds a secret", digest)
		}
	}
}

// Who calls is decided by the door: what requests, servers and neighbours claim changes nothing.
func TestNobodyTakesAnothersRole(t *testing.T) {
	p := localProvider(t, nil)
	r := steptest.With(t, p)
	r.PutEnv("@local/mail", "mail", serveWords)
	r.PutEnv("@local/spy", "spy", serveWords)
	v, spy := r.DeployEnv("@local/mail", "up"), r.DeployEnv("@local/spy", "other")
	v.Gateway.SetAccess("solver", []string{"mail_words"}, false)

	// An agent's sandbox with the agent's door in it.
	info, err := r.Deploy.Create(t.Context(), deploy.Request{Run: steptest.Run, Step: "agent", Attempt: 1, Name: "agent"})
	if err != nil {
		t.Fatal(err)
	}
	box, err := r.Deploy.Box(t.Context(), steptest.Run, "agent")
	if err != nil {
		t.Fatal(err)
	}
	l, err := box.Listen(t.Context(), "tcp", "127.0.0.1:18765")
	if err != nil {
		t.Fatal(err)
	}
	door := &http.Server{Handler: v.Gateway.Door(access.Principal{Role: "solver", Deployment: v.Instance}), ReadHeaderTimeout: time.Minute}
	var serving sync.WaitGroup
	serving.Go(func() { _ = door.Serve(l) })
	defer serving.Wait()
	defer door.Close()
	inside := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) { return box.Dial(ctx, "tcp", addr) }, DisableKeepAlives: true}}

	step := func(c *http.Client, url, role, name string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/step", strings.NewReader(`{"action":"call_tool","tool_name":"`+name+`","arguments":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(wire.RoleHeader, role)
		req.Header.Set("Content-Type", "application/json")
		resp, err := c.Do(req)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	const at = "http://127.0.0.1:18765"
	if code, body := step(inside, at, "owner", "mail_role"); code != http.StatusOK || !strings.Contains(body, "solver") || strings.Contains(body, "owner") {
		t.Errorf("a forged role: %d %s", code, body)
	}
	for _, role := range []string{"", "default", "owner", "*", "solver2"} {
		if code, body := step(inside, at, role, "mail_words"); code != http.StatusForbidden {
			t.Errorf("forged %q: %d %s", role, code, body)
		}
	}
	for _, path := range []string{"/state", "/trajectory", "/triggers/state", "/clock/state", "/changes", "/svc/mcp-mail/.well-known/agent-env.json", "/c/" + strings.Repeat("a", 43) + "/state", "/c/../state"} {
		resp, err := inside.Get(at + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden && resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s at the agent's door: %d", path, resp.StatusCode)
		}
	}

	// A neighbour: its own loopback is not the agent's, and the host's is out of reach.
	host, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for _, url := range []string{at + "/step", "http://127.0.0.1:18764/clock/time", "http://" + host.Addr().String() + "/", "http://10.0.0.1:18765/", "http://" + info.ID + ":18765/"} {
		args, err := json.Marshal(map[string]string{"url": url, "role": "solver", "body": `{"action":"list_tools"}`})
		if err != nil {
			t.Fatal(err)
		}
		got := tool(t, spy, owner, "spy_fetch", string(args))
		if !strings.HasPrefix(got, "refused: ") && !strings.HasPrefix(got, "404 ") { // 404 is its own server's, which has no /step
			t.Errorf("a neighbour at %s: %s", url, got)
		}
	}
	// A server that claims a role towards itself or the gateway gains nothing: it reaches neither the gateway nor the other server.
	if got := tool(t, v, access.Principal{Role: "solver"}, "mail_fetch", `{"url": "http://127.0.0.1:18764/clock/time", "role": "owner", "body": ""}`); !strings.HasPrefix(got, "refused: ") {
		t.Error(got)
	}
	if _, err := v.ClockURL(t.Context(), "mail"); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{"clock/time": "404 ", "state": "404 ", "tools/enable": "404 ", "mcp": "404 "} { // no clock is set
		body := `{"role":"solver","tools":"*"}`
		if path == "clock/time" {
			body = ""
		}
		args, err := json.Marshal(map[string]string{"url": "http://127.0.0.1:18764/" + path, "role": "owner", "body": body})
		if err != nil {
			t.Fatal(err)
		}
		if got := tool(t, v, owner, "mail_fetch", string(args)); !strings.HasPrefix(got, want) {
			t.Errorf("a server at its clock's door, /%s: %s", path, got)
		}
	}
	if code, body := step(inside, at, "", "mail_words"); code != http.StatusForbidden {
		t.Errorf("the rule is gone: %d %s", code, body)
	}
	door.Close()
	gone(t, r, p)
}
