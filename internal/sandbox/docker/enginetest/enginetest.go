// Package enginetest is an engine for tests of who speaks to one: it answers as a real one does as far as making a container goes, and fails
// where a test says so. It starts nothing, so no box ever comes of it.
package enginetest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Engine is one engine.
type Engine struct {
	server     *httptest.Server
	mu         sync.Mutex
	calls      []string                    // "METHOD /path", without the version
	faults     map[string]http.HandlerFunc // by "METHOD /path", a regular expression
	containers map[string]bool
	images     map[string]bool
}

// Listen serves an engine that has the image "there" on a new unix socket. Close ends it.
func Listen(socket string) (*Engine, error) {
	l, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		faults: map[string]http.HandlerFunc{}, containers: map[string]bool{}, images: map[string]bool{"there": true},
	}
	e.server = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(e.serve)}}
	e.server.Start()
	return e, nil
}

// Close ends it.
func (e *Engine) Close() { e.server.Close() }

var version = regexp.MustCompile(`^/v1\.\d+`)

func (e *Engine) serve(w http.ResponseWriter, r *http.Request) {
	call := r.Method + " " + version.ReplaceAllString(r.URL.Path, "")
	e.mu.Lock()
	e.calls = append(e.calls, call)
	var fault http.HandlerFunc
	for pattern, h := range e.faults {
		if regexp.MustCompile("^" + pattern + "$").MatchString(call) {
			fault = h
		}
	}
	e.mu.Unlock()
	if fault != nil {
		fault(w, r)
		return
	}
	e.answer(w, r, call)
}

func (e *Engine) answer(w http.ResponseWriter, r *http.Request, call string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	method, path, _ := strings.Cut(call, " ")
	part := strings.Split(strings.Trim(path, "/"), "/")
	name := part[len(part)-1]
	reply := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(v)
	}
	missing := func() { reply(404, map[string]string{"message": "no such thing: " + name}) }
	switch {
	case path == "/_ping":
		w.Header().Set("API-Version", "1.41")
		w.Header().Set("OSType", "linux")
		fmt.Fprint(w, "OK")
	case path == "/info":
		reply(200, map[string]any{"ServerVersion": "0-fake", "Driver": "overlay2", "MemoryLimit": true, "CpuCfsQuota": true, "PidsLimit": true})
	case part[0] == "images" && method == "GET":
		if !e.images[part[1]] {
			missing()
			return
		}
		reply(200, map[string]any{"Id": "sha256:" + strings.Repeat("a", 64), "Os": "linux", "Config": map[string]any{"Env": []string{"A=b"}}})
	case path == "/containers/create":
		e.containers[r.URL.Query().Get("name")] = true
		reply(201, map[string]any{"Id": r.URL.Query().Get("name"), "Warnings": []string{}})
	case part[0] == "containers" && name == "start":
		w.WriteHeader(204)
	case part[0] == "containers" && name == "logs":
		w.Header().Set("Content-Type", "application/vnd.docker.multiplexed-stream")
		text := "sandbox: what it said last\n"
		w.Write(append([]byte{2, 0, 0, 0, 0, 0, 0, byte(len(text))}, text...))
	case part[0] == "containers" && name == "json" && len(part) == 3:
		if !e.containers[part[1]] {
			missing()
			return
		}
		reply(200, map[string]any{"Id": part[1], "State": map[string]any{"Running": false, "ExitCode": 3, "Status": "exited"}})
	case path == "/containers/json":
		reply(200, []any{})
	case method == "DELETE" && part[0] == "containers":
		if !e.containers[name] {
			missing()
			return
		}
		delete(e.containers, name)
		w.WriteHeader(204)
	default:
		reply(500, map[string]string{"message": "the fake engine knows no " + call})
	}
}

// Fail answers calls by h from now on: pattern is a regular expression for "METHOD /path", without the version.
func (e *Engine) Fail(pattern string, h http.HandlerFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.faults[pattern] = h
}

// Heal takes the faults away.
func (e *Engine) Heal() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.faults)
}

// Calls are those that were made, as "METHOD /path".
func (e *Engine) Calls() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.calls)
}

// Left are the names of the containers that it has.
func (e *Engine) Left() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for name := range e.containers {
		out = append(out, name)
	}
	return out
}

// Answering is a fault that answers with a code and an engine's message.
func Answering(code int, message string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		json.NewEncoder(w).Encode(map[string]string{"message": message})
	}
}

// Cut is a fault that ends the connection after some bytes.
func Cut(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, text)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
}
