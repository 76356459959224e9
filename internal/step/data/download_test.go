package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/steptest"
)

// server answers by path. flaky fails so often before it answers.
func server(t *testing.T) (s *httptest.Server, flaky *atomic.Int32) {
	flaky = new(atomic.Int32)
	mux := http.NewServeMux()
	text := func(w http.ResponseWriter, s string) { _, _ = w.Write([]byte(s)) }
	mux.HandleFunc("/a/data.csv", func(w http.ResponseWriter, r *http.Request) { text(w, "1,2\n"+r.URL.RawQuery) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/a/data.csv", http.StatusFound) })
	mux.HandleFunc("/loop", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/loop", http.StatusFound) })
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) {
		for range 100 {
			text(w, strings.Repeat("x", 100))
			w.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/sized", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "5000"); text(w, "x") })
	mux.HandleFunc("/cut", func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Content-Length", "50"); text(w, "x") })
	mux.HandleFunc("/busy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		if flaky.Add(-1) >= 0 {
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		text(w, "at last")
	})
	mux.HandleFunc("/down", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	s = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s, flaky
}

// near are Downloads of at most 1000 bytes that reach this machine, and do not really wait.
func near() (*Downloads, *[]time.Duration) {
	d := NewDownloads(true)
	d.max = 1000
	var waited []time.Duration
	d.pause = func(ctx context.Context, p time.Duration) error {
		waited = append(waited, p)
		return ctx.Err()
	}
	return d, &waited
}

func TestDownload(t *testing.T) {
	s, flaky := server(t)
	flaky.Store(2)
	d, waited := near()
	r := steptest.New(t, fake.Options{})
	r.PutFile("@local/b/one", steptest.File{Path: "hello.txt", Text: "hello\n"})
	r.Box()
	e := NewLoadArtifact(r.Store, r.Deploy, nil, nil, d)
	r.Must(e, load(fmt.Sprintf(`"artifact_id": "@local/b/one", "urls": [%q, {"url": %q, "filename": "late"}]`, s.URL+"/a/data.csv?token=canary", s.URL+"/busy")))
	files := r.Fake.Machines()[0].Files
	for name, want := range map[string]string{"hello.txt": "hello\n", "data.csv": "1,2\ntoken=canary", "late": "at last"} {
		if b, err := files.ReadFile("/loaded/" + name); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	if got := fmt.Sprint(*waited); got != "[7s 7s]" {
		t.Errorf("waited %s", got)
	}
	rec := r.View().List(LoadedPath)
	r.Equal("record", rec[1], json.RawMessage(`{"id":"`+s.URL+`/a/data.csv","version":0,"artifact_type":"url","env_id":null,"agent_name":null,"sandbox_name":"box",`+
		`"container_name":null,"destination_path":"/loaded","files":["data.csv"],"file_count":1}`))
	if strings.Contains(r.Log(), "canary") {
		t.Error("the query is in the log")
	}
	r.Must(e, load(fmt.Sprintf(`"urls": [{"url": %q, "filename": "moved"}], "destination_path": "/app"`, s.URL+"/moved")))
	if b, err := files.ReadFile("/app/moved"); err != nil || string(b) != "1,2\n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestDownloadFailures(t *testing.T) {
	s, flaky := server(t)
	flaky.Store(1000)
	host := strings.TrimPrefix(s.URL, "http://")
	for _, tt := range []struct{ url, want, waited string }{
		{s.URL + "/nosuch?token=canary", "DownloadError: http://" + host + "/nosuch: 404 Not Found", ""},
		{s.URL + "/big", "DownloadError: http://" + host + "/big: has more than 1000 bytes", ""},
		{s.URL + "/sized", "DownloadError: http://" + host + "/sized: has 5000 bytes, more than 1000", ""},
		{s.URL + "/loop", "DownloadError: http://" + host + "/loop: redirected more than 10 times", ""},
		{s.URL + "/file", "DownloadError: http://" + host + "/file: 'file:///etc/passwd' is no http or https URL", ""},
		{s.URL + "/cut", "infra: DownloadError: http://" + host + "/cut: unexpected EOF", "1s 2s 4s 8s 16s 32s"},
		{s.URL + "/busy", "infra: DownloadError: http://" + host + "/busy: 429 Too Many Requests", "7s 7s 7s 8s 16s 32s"},
		{s.URL + "/down", "infra: DownloadError: http://" + host + "/down: 502 Bad Gateway", "1s 2s 4s 8s 16s 32s"},
		{"ftp://x/y", "DownloadError: 'ftp://x/y' is no http or https URL", ""},
		{"http:///y", "DownloadError: 'http:///y' names no host", ""},
		{"http://user:canary@[::1%zz]/y", "DownloadError: this is no URL", ""},
	} {
		d, waited := near()
		f, _, err := d.get(t.Context(), tt.url)
		if f != nil {
			_ = f.Close()
		}
		if got := steptest.ErrorType(err) + ": " + fmt.Sprint(err); got != tt.want {
			t.Errorf("%s:\n got %s\nwant %s", tt.url, got, tt.want)
		}
		if got := strings.Trim(fmt.Sprint(*waited), "[]"); got != tt.waited {
			t.Errorf("%s: waited %s", tt.url, got)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	d, _ := near()
	d.pause = func(ctx context.Context, _ time.Duration) error { cancel(); return ctx.Err() }
	if _, _, err := d.get(ctx, s.URL+"/down"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Nothing of this machine or of a private network is reached, whatever way leads there.
func TestDownloadsStayOutside(t *testing.T) {
	s, _ := server(t)
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1", "192.168.1.1", "169.254.169.254", "[fe80::1]", "[fd00::1]"} {
		d := NewDownloads(false)
		d.pause = func(context.Context, time.Duration) error {
			t.Errorf("%s: it is tried again", host)
			return context.Canceled
		}
		_, _, err := d.get(t.Context(), "http://"+host+":"+port+"/a/data.csv")
		if steptest.ErrorType(err) != "DownloadError" || !errors.Is(err, errPrivate) {
			t.Errorf("%s: %v", host, err)
		}
	}
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700::1111": true, "100.64.0.1": false, "172.16.0.1": false, "172.32.0.1": true, "224.0.0.1": false, "255.255.255.255": false,
		"0.1.2.3": false, "198.18.0.1": false, "192.0.0.8": false, "::": false, "::ffff:10.0.0.1": false, "64:ff9b::a00:1": false, "2002:a00:1::": false, "fc00::1": false,
		"ff02::1": false, "fe80::1%eth0": false, "::10.0.0.1": false, "::ffff:8.8.8.8": true,
	} {
		if got := public(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}

// What an earlier step collected is loaded again, by either field; a step with nothing to store leaves nothing to load.
func TestLoadCollected(t *testing.T) {
	r := world(t, tree)
	r.Must(NewCollectArtifacts(r.Store, r.Deploy), collect(`"exclude_basenames": ["nowhere"]`))
	r.Must(NewCollectArtifacts(r.Store, r.Deploy), strings.Replace(collect(`"base_path": "/nosuch"`), `"get"`, `"none"`, 1))
	e := NewLoadArtifact(r.Store, r.Deploy, nil, nil, NewDownloads(false))
	r.Must(e, load(`"collected_artifacts_step_id": "get", "destination_path": "/one"`))
	r.Must(e, load(`"artifact_from_step_id": "get", "destination_path": "/two"`))
	r.Must(e, load(`"artifact_from_step_id": "none"`))
	files := r.Fake.Machines()[0].Files
	for _, dir := range []string{"/one", "/two"} {
		if b, err := files.ReadFile(dir + "/bin/here"); err != nil || string(b) != "#!run" {
			t.Errorf("%s: %q, %v", dir, b, err)
		}
		if info, err := files.Stat(dir + "/bin/run.sh"); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
		if info, err := files.Stat(dir + "/empty"); err != nil || !info.IsDir() {
			t.Errorf("%s: %v, %v", dir, info, err)
		}
	}
	var last loaded
	if all := r.View().List(LoadedPath); len(all) != 2 || json.Unmarshal(all[0], &last) != nil || last.ID != steptest.Run || last.Type != artifact.FileUniverse || last.Version != 1 {
		t.Errorf("%s", all)
	}
	err := r.Do(e, load(`"artifact_from_step_id": "nosuch"`))
	if got := steptest.ErrorType(err); got != "NotFoundError" {
		t.Errorf("%s %v", got, err)
	}
	if got := steptest.Texts(e.Preflight(t.Context(), r.Doc(load(`"urls": ["ftp://user:canary@x/y", {"url": "http:///a", "filename": "b"}, "https://x/%zz?canary", "https://x/z"]`)), step.Plan{})); got !=
		"urls[0]: 'ftp://x/y' is no http or https URL; name a file by its http or https URL\n"+
			"urls[1]: 'http:///a' names no host; name a file by its http or https URL\n"+
			"urls[2]: this is no URL; name a file by its http or https URL" {
		t.Error(got)
	}
}
