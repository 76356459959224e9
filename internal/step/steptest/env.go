package steptest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/envstore"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/wire"
)

// EnvServer is the program of a fake environment server: it keeps one JSON document. data/add refuses a document that isn't JSON, and one whose text
// holds "poison". Its zero value is ready.
type EnvServer struct {
	// Hang: it never answers. Words: what it writes as it starts. Exit: it ends with this code instead of serving.
	Hang  bool
	Words string
	Exit  int
	Card  string // what it answers in place of its card; "" is a card
	// Gets are answers to GETs of further paths. In them and in Card {name} stands for the environment's name.
	Gets map[string]string

	mu    sync.Mutex
	calls []string
	held  map[string][]byte // by environment name
	ends  map[string]context.CancelFunc
	deny  map[string]bool
}

// Refuse has an environment answer data/get with a failure from now on.
func (s *EnvServer) Refuse(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.deny == nil {
		s.deny = map[string]bool{}
	}
	s.deny[name] = true
}

// Calls are the methods that were called, with the environment's name before each: "mail data/add".
func (s *EnvServer) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.calls...)
}

// Held is what an environment holds; "" for none.
func (s *EnvServer) Held(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.held[name])
}

// Die ends the server of an environment as a crash would.
func (s *EnvServer) Die(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if end := s.ends[name]; end != nil {
		end()
	}
}

// Program is the server as a program of fake boxes.
func (s *EnvServer) Program() fake.Program {
	return func(ctx context.Context, p *fake.Proc) guest.Exit {
		io.WriteString(p.Stderr, s.Words)
		if s.Exit != 0 {
			return fake.Code(s.Exit)
		}
		if s.Hang {
			<-ctx.Done()
			return guest.Exit{Signal: 9}
		}
		l, err := p.Listen(ctx, "tcp", p.Env["MCP_HOST"]+":"+p.Env["MCP_PORT"])
		if err != nil {
			io.WriteString(p.Stderr, err.Error())
			return fake.Code(1)
		}
		ctx, cancel := context.WithCancel(ctx)
		name := p.Env["ENVIRONMENT_NAME"]
		s.mu.Lock()
		if s.held == nil {
			s.held, s.ends = map[string][]byte{}, map[string]context.CancelFunc{}
		}
		s.ends[name] = cancel
		s.mu.Unlock()
		web := &http.Server{Handler: s.handler(name, p.Machine), ReadHeaderTimeout: time.Minute}
		stop := context.AfterFunc(ctx, func() { _ = web.Close() })
		defer stop()
		_ = web.Serve(l)
		_ = web.Close() // a dead server's connections are dead too
		cancel()
		return guest.Exit{Signal: 9}
	}
}

func (s *EnvServer) handler(name string, m *fake.Machine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+wire.CardPath, func(w http.ResponseWriter, _ *http.Request) {
		if s.Card != "" {
			_, _ = io.WriteString(w, strings.ReplaceAll(s.Card, "{name}", name))
			return
		}
		_ = json.NewEncoder(w).Encode(wire.Card{
			Name: name, ProtocolVersion: wire.ProtocolVersion, URL: wire.DataPath, PreferredTransport: wire.TransportJSONRPC,
			Capabilities: wire.Capabilities{Operations: wire.Operations(), Extensions: []wire.Extension{
				{URI: wire.URNClock, Params: json.RawMessage(`{"endpoint":"` + wire.ExtensionPath + `sync_time","methods":{"sync_time":{"method":"POST"}}}`)},
				{URI: wire.URNSetErrors, Params: json.RawMessage(`{"endpoint":"` + wire.ExtensionPath + `set_errors"}`)},
			}},
		})
	})
	for at, body := range s.Gets {
		mux.HandleFunc("GET "+at, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, strings.ReplaceAll(body, "{name}", name))
		})
	}
	// An extension notes what it is told; set_errors refuses a rate above 1.
	mux.HandleFunc("POST "+wire.ExtensionPath, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.calls = append(s.calls, name+" "+strings.TrimPrefix(r.URL.Path, wire.ExtensionPath)+" "+string(b))
		s.mu.Unlock()
		if strings.Contains(string(b), `"rate":2`) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"ok":false,"error":{"code":"invalid_params","message":"rate is at most 1"}}`)
			return
		}
		_, _ = io.WriteString(w, "{}")
	})
	mux.HandleFunc("POST "+wire.DataPath, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		req, werr := wire.DecodeRequest(b)
		resp := wire.Response{ID: req.ID, Result: json.RawMessage("{}")}
		if werr == nil {
			if out, err := s.serve(name, m, req); err != nil {
				werr = wire.HandlerFailed(strings.TrimPrefix(req.Method, "data/")+"_failed", err.Error())
			} else if out != nil {
				resp.Result = out
			}
		}
		if werr != nil {
			resp.Result, resp.Error = nil, werr
		}
		_ = json.NewEncoder(w).Encode(resp)
	})
	mux.HandleFunc("POST "+wire.MCPPath, serveMCP)
	mux.HandleFunc("DELETE "+wire.MCPPath, func(http.ResponseWriter, *http.Request) {})
	return mux
}

// serveMCP is an MCP endpoint without tools.
func serveMCP(w http.ResponseWriter, r *http.Request) {
	var m struct {
		ID     json.RawMessage
		Method string
		Params struct{ ProtocolVersion string }
	}
	if err := json.NewDecoder(r.Body).Decode(&m); err != nil || m.ID == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}
	result := map[string]any{}
	switch m.Method {
	case "initialize":
		w.Header().Set(wire.SessionHeader, "s1")
		result = map[string]any{
			"protocolVersion": m.Params.ProtocolVersion, "capabilities": map[string]any{"tools": map[string]any{}},
			"serverInfo": map[string]any{"name": "fake", "version": "1"},
		}
	case "tools/list":
		result["tools"] = []any{}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
}

func (s *EnvServer) serve(name string, m *fake.Machine, req wire.Request) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls = append(s.calls, name+" "+req.Method)
	switch req.Method {
	case wire.Reset:
		delete(s.held, name)
	case wire.Add:
		var in struct{ Parts []wire.Part }
		if err := json.Unmarshal(req.Params, &in); err != nil || len(in.Parts) != 1 || in.Parts[0].File == nil {
			return nil, errors.New("want one file")
		}
		b, err := m.Files.ReadFile(strings.TrimPrefix(in.Parts[0].File.URI, "file://"))
		s.held[name] = append(s.held[name], b...) // before it is looked at: a bad add leaves half
		if err != nil || !json.Valid(b) || bytes.Contains(b, []byte("poison")) {
			return nil, errors.New("bad seed")
		}
	case wire.Get:
		if s.deny[name] {
			return nil, errors.New("no export today")
		}
		return json.Marshal(map[string]any{"parts": []wire.Part{{Kind: wire.KindData, Data: json.RawMessage(s.held[name])}}})
	}
	return nil, nil
}

// PutEnv stores an mcp_server environment of a name whose server is started by command, from a folder of those files beside its process.toml and,
// where none of them is one, a Dockerfile.
func (r *Rig) PutEnv(id, name, processTOML string, files ...File) {
	r.T.Helper()
	if !slices.ContainsFunc(files, func(f File) bool { return f.Path == "Dockerfile" }) {
		files = append(files, File{Path: "Dockerfile", Text: "FROM scratch\n"})
	}
	if processTOML != "" {
		files = append(files, File{Path: env.ProcessFile, Text: processTOML})
	}
	image := ref.Derived(id, "env_image")
	r.PutImage(image, "Dockerfile", files...)
	r.PutEnvDoc(id, env.MCPServer, server(name, image))
}

// PutEnvOf stores an mcp_server environment of a name that is made of the image of a reference, "name@digest".
func (r *Rig) PutEnvOf(id, name, reference string) {
	r.T.Helper()
	image := ref.Derived(id, "env_image")
	text, digest, _ := strings.Cut(reference, "@")
	r.put(func(store.Stage) []artifact.Document {
		return []artifact.Document{artifact.NewImageOf(first(image), text, ref.Digest(digest), "")}
	})
	r.PutEnvDoc(id, env.MCPServer, server(name, image))
}

// PutImageNamed stores an image by a name that is pinned to nothing.
func (r *Rig) PutImageNamed(id, name string) {
	r.T.Helper()
	r.put(func(store.Stage) []artifact.Document {
		return []artifact.Document{{Pin: first(id), Type: artifact.DockerImage, Fields: map[string]any{"image_name": name}}}
	})
}

func server(name, image string) map[string]any {
	return map[string]any{
		"environment_name": name, "service_name": name, "env_provider_type": env.ProviderGateway, "metadata": map[string]any{},
		"docker_image_artifact": map[string]any{"id": image, "version": 1, "type": artifact.DockerImage},
	}
}

// PutImage stores an image that is built of files.
func (r *Rig) PutImage(id, dockerfile string, files ...File) {
	r.T.Helper()
	r.put(func(s store.Stage) []artifact.Document {
		var parts []artifact.Bytes
		for _, f := range files {
			parts = append(parts, r.bytes(s, f))
		}
		return []artifact.Document{artifact.NewImage(first(id), dockerfile, "", parts)}
	})
}

// PutWebsite stores a website environment whose two sides have these files; process.backend.toml and Dockerfile.backend count where they are there.
func (r *Rig) PutWebsite(id, name string, files ...File) {
	r.T.Helper()
	fields := map[string]any{"environment_name": name, "service_name": name, "env_provider_type": env.ProviderGateway, "metadata": map[string]any{}}
	for _, i := range env.Images(env.Website) {
		image := id + i.Suffix
		r.PutImage(image, i.Dockerfile, files...)
		fields[strings.TrimSuffix(i.Key, "image")+"docker_image_artifact"] = map[string]any{"id": image, "version": 1, "type": artifact.DockerImage}
	}
	r.PutEnvDoc(id, env.Website, fields)
}

// PutEnvDoc stores an environment's document.
func (r *Rig) PutEnvDoc(id, typ string, fields map[string]any) {
	r.T.Helper()
	s, err := r.Store.Begin(r.T.Context())
	if err != nil {
		r.T.Fatal(err)
	}
	d := artifact.Document{Pin: artifact.Pin{ID: id, Version: 1}, Type: typ, Fields: fields}
	s.Doc(store.Doc{Kind: store.Env, ID: id, Version: 1, Type: typ, Body: d.Body(time.Now())}, store.Absent)
	if err := s.Commit(r.T.Context()); err != nil {
		r.T.Fatal(err)
	}
}

// PutEnvironment stores data of an environment, a file called data.json.
func (r *Rig) PutEnvironment(id, name, text string) {
	r.T.Helper()
	r.put(func(s store.Stage) []artifact.Document {
		return artifact.NewOwnEnvironment(artifact.Pin{ID: id, Version: 1}, name, r.bytes(s, File{Path: "data.json", Text: text}), "", first)
	})
}

// PutEnvironments stores a universe of environments, each a file data.json by the environment's name.
func (r *Rig) PutEnvironments(id string, data map[string]string) {
	r.T.Helper()
	r.put(func(s store.Stage) []artifact.Document {
		var files []artifact.Bytes
		for name, text := range data {
			files = append(files, r.bytes(s, File{Path: name + "/data.json", Text: text}))
		}
		return artifact.NewUniverse(artifact.Pin{ID: id, Version: 1}, files, nil, first)
	})
}

func first(id string) artifact.Pin { return artifact.Pin{ID: id, Version: 1} }

// DeployEnv deploys a stored environment, as a deploy step of that id would.
func (r *Rig) DeployEnv(id, stepID string) *deploy.Env {
	r.T.Helper()
	stored, err := envstore.Read(r.T.Context(), r.Store, id, 0)
	if err != nil {
		r.T.Fatal(err)
	}
	v, err := r.Envs.Deploy(r.T.Context(), deploy.EnvRequest{Run: Run, Step: stepID, Attempt: 1, Env: stored})
	if err != nil {
		r.T.Fatal(err)
	}
	return v
}

// Remove removes an artifact.
func (r *Rig) Remove(id string) error {
	s, err := r.Store.Begin(r.T.Context())
	if err != nil {
		return err
	}
	s.Delete(store.Artifact, id, 0)
	return s.Commit(r.T.Context())
}

// LoadEnv gives a deployed environment stored data.
func (r *Rig) LoadEnv(id, artifactID string) {
	r.T.Helper()
	v, err := r.Envs.Env(Run, id, "")
	if err != nil {
		r.T.Fatal(err)
	}
	d, err := envstore.ReadData(r.T.Context(), r.Store, artifactID, 0)
	if err != nil {
		r.T.Fatal(err)
	}
	if _, err := v.Load(r.T.Context(), r.Store, d); err != nil {
		r.T.Fatal(err)
	}
}
