package agent_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"agentenv.internal/agentenv/sdk/agent"
)

// TestStaging: objects are whole, below secret ids, within a limit on all of them together.
func TestStaging(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, echo, agent.WithLookup(func(name string) (string, bool) {
		return map[string]string{agent.StagingDirVariable: dir, agent.StagingMaxBytesVariable: "20"}[name], true
	}))
	id := strings.Repeat("i", 22)
	s := "/ext/staging/" + id
	r.want("GET", "/.well-known/agent.json", "", 200, `"params":{"endpoint":"/ext/staging","max_bytes":20}`)
	var o struct{ Path, ETag, SHA256 string }
	out := r.want("PUT", s+"/a/b", "hello", 201, `"size_bytes":5`)
	if err := json.Unmarshal([]byte(out), &o); err != nil || o.Path != id+"/a/b" || len(o.SHA256) != 64 {
		t.Error(out)
	}
	r.want("GET", s+"/a/b", "", 200, "hello")
	r.want("PUT", s+"/a/c", strings.Repeat("x", 16), 413, `{"detail":"staging is full"}`)
	r.want("PUT", s+"/a/c", strings.Repeat("x", 15), 201, "")
	r.want("PUT", s+"/d", "x", 413, "")
	r.want("PUT", s+"/a/b", "", 201, `"size_bytes":0`) // what it replaces is free again
	r.want("PUT", s+"/d", "12345", 201, "")
	r.want("DELETE", s+"/a/", "", 204, "")
	r.want("PUT", s+"/e", strings.Repeat("y", 15), 201, "")
	r.want("PUT", s+"/f", "z", 413, "")
}

// TestStagingForm is about uploads by form.
func TestStagingForm(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, echo, agent.WithLookup(func(name string) (string, bool) { return dir, name == agent.StagingDirVariable }))
	id := strings.Repeat("i", 22)
	s := "/ext/staging/" + id
	part := func(name, value string) string {
		return "--B\r\nContent-Disposition: form-data; name=\"" + name + "\"\r\n\r\n" + value + "\r\n"
	}
	for _, c := range []struct {
		form   string
		status int
		text   string
	}{
		{part("policy", "p") + part("key", "x/y") + part("file", "data") + part("after", "z") + "--B--\r\n", 201, `"path":"` + id + `/p/x/y","size_bytes":4`},
		{part("key", "../y") + part("file", "data") + "--B--\r\n", 400, "segments"},
		{part("file", "data") + "--B--\r\n", 400, "key before"},
		{part("key", "x") + "--B--\r\n", 400, "no field file"},
		{part("key", "x") + "--B\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\ndat", 400, "no valid form"},
		{strings.Repeat(part("f", "x"), 33) + part("key", "x") + part("file", "data") + "--B--\r\n", 400, "too many"},
		{part("f", strings.Repeat("x", 65<<10)) + "--B--\r\n", 400, "too long"},
		{"--B\r\nX: " + strings.Repeat("x", 17<<10) + "\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nx\r\n--B--\r\n", 400, "too long"},
		{"nothing", 400, ""},
	} {
		r.want("POST", s+"/p", c.form, c.status, c.text, "Content-Type", "multipart/form-data; boundary=B")
	}
	r.want("POST", s+"/p", "x", 400, "multipart", "Content-Type", "text/plain")
	if left, err := os.ReadDir(filepath.Join(dir, "incoming")); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// TestStagingFiles: listing, deleting, conflicts, and what a body that breaks off leaves.
func TestStagingFiles(t *testing.T) {
	dir := t.TempDir()
	r := serve(t, echo, agent.WithLookup(func(name string) (string, bool) { return dir, name == agent.StagingDirVariable }))
	id := strings.Repeat("i", 22)
	s := "/ext/staging/" + id
	r.want("PUT", s+"/a/b", "1", 201, "")
	r.want("PUT", s+"/a", "1", 409, "conflicts")
	r.want("PUT", s+"/a/b/c", "1", 409, "conflicts")
	r.want("PUT", s+"/a%2f..%2f..%2fx", "1", 400, "")
	r.want("PUT", s+"/"+strings.Repeat("x", 1024), "1", 400, "")
	r.want("PUT", s+"/z", "22", 201, "")
	r.want("GET", s+"/", "", 200, `{"objects":[{"path":"a/b","size_bytes":1,"etag":"\"`)
	r.want("GET", s+"/none/", "", 200, `{"objects":[]}`)
	r.want("GET", s+"/a", "", 404, "")
	r.want("GET", s+"/none", "", 404, "")
	r.want("PATCH", s+"/z", "", 405, "")
	resp, err := http.Head(r.url + s + "/z")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.Header.Get("Content-Length") != "2" {
		t.Error(resp.Header)
	}
	r.want("DELETE", s+"/z", "", 412, "", "If-Match", `"0-0"`)
	r.want("DELETE", s+"/z", "", 204, "", "If-Match", resp.Header.Get("ETag"))
	r.want("DELETE", s+"/z", "", 404, "")
	r.want("DELETE", s+"/", "", 204, "")
	r.want("DELETE", s+"/", "", 204, "")
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(r.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "PUT "+s+"/cut HTTP/1.1\r\nHost: x\r\nContent-Length: "+strconv.Itoa(1<<20)+"\r\n\r\nsome"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.Contains(string(answer), "400 Bad Request") {
		t.Errorf("%s %v", answer, err)
	}
	conn.Close()
	for _, d := range []string{"objects", "incoming"} {
		if left, err := os.ReadDir(filepath.Join(dir, d)); err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v %v", d, left, err)
		}
	}
	if fi, err := os.Stat(filepath.Join(dir, "objects")); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v %v: ids are secrets", fi.Mode(), err)
	}
}

// TestStagingOff: with a limit of 0 nothing is staged or told.
func TestStagingOff(t *testing.T) {
	r := serve(t, echo, agent.WithLookup(func(name string) (string, bool) { return "0", name == agent.StagingMaxBytesVariable }))
	r.want("PUT", "/ext/staging/"+strings.Repeat("i", 22)+"/a", "x", 404, "")
	if _, card := r.do("GET", "/.well-known/agent.json", ""); strings.Contains(card, "staging") {
		t.Error(card)
	}
}
