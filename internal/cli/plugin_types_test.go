package cli_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/wire"
)

// rooms are the environments of type acme_room that the plugin has standing in this process.
type rooms struct {
	mu  sync.Mutex
	all map[string]*room
}

// room is a running environment that keeps a list of words. Its book is a folder where it is entered while it stands.
type room struct {
	srv   *http.Server
	done  chan struct{}
	mu    sync.Mutex
	first []string
	words []string
	files bool // it reads data from files
}

// roomState is what finds a room again.
type roomState struct {
	Entry string `json:"entry"` // of the book
}

func (s *rooms) types() []plugin.Env {
	return []plugin.Env{{
		Name: "acme_room", Description: "A room that keeps words",
		Schema: json.RawMessage(`{"type": "object", "properties": {
			"book": {"type": "string", "minLength": 1}, "words": {"type": "array", "items": {"type": "string"}, "default": []},
			"environment_name": {"type": "string"}, "table": {"type": "string"}, "fault": {"type": "string"},
			"reads_files": {"type": "boolean", "default": false}}, "required": ["book"]}`),
		Refs: []plugin.Ref{{Path: "table", Kind: "artifact", Type: "acme_table"}},
		Check: func(_ context.Context, d plugin.Document, files []plugin.File) []plugin.Problem {
			if i := slices.IndexFunc(files, func(f plugin.File) bool { return f.Size == 0 }); i >= 0 {
				return []plugin.Problem{{Summary: files[i].Path + " is empty"}}
			}
			var c struct {
				Words []string `json:"words"`
			}
			if d.Decode(&c) == nil && len(c.Words) > 3 {
				return []plugin.Problem{{Where: "words", Summary: "are more than the room holds", Fix: "write three at most"}}
			}
			return nil
		},
		Deploy: s.deploy, Reset: s.reset, Close: s.close,
	}}
}

func (s *rooms) deploy(ctx context.Context, c *plugin.EnvCall) (out plugin.Deployed, err error) {
	var d struct {
		ID    string   `json:"id"`
		Type  string   `json:"type"`
		Name  string   `json:"environment_name"`
		Book  string   `json:"book"`
		Words []string `json:"words"`
		Fault string   `json:"fault"`
		Files bool     `json:"reads_files"`
	}
	if err := c.Env.Decode(&d); err != nil {
		return out, err
	}
	if d.Type != "acme_room" || !strings.HasPrefix(d.ID, "@local/") {
		return out, fmt.Errorf("the document is %s", c.Env)
	}
	switch d.Fault {
	case "full":
		return out, plugin.Fail("RoomError", "the house is full")
	case "url":
		return plugin.Deployed{Env: plugin.DeployedEnv{URL: "nowhere"}, State: json.RawMessage(`{}`)}, nil
	}
	for _, f := range c.Files { // words from files of its folder
		b, err := os.ReadFile(f.File)
		if err != nil || !strings.HasSuffix(f.File, "/"+f.Path) {
			return out, fmt.Errorf("the file %s is at %s: %w", f.Path, f.File, err)
		}
		d.Words = append(d.Words, strings.Fields(string(b))...)
	}
	r := &room{first: d.Words, words: d.Words, files: d.Files, done: make(chan struct{})}
	h, err := r.server(filepath.Base(d.ID)).Handler()
	if err != nil {
		return out, err
	}
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return out, err
	}
	r.srv = &http.Server{Handler: http.StripPrefix("/rooms/1", keyed(h))} //nolint:gosec // of a test
	go func() { defer close(r.done); _ = r.srv.Serve(l) }()
	f, err := os.CreateTemp(d.Book, "room-*")
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		return out, errors.Join(err, r.srv.Close())
	}
	s.mu.Lock()
	s.all[f.Name()] = r
	s.mu.Unlock()
	state, err := json.Marshal(roomState{f.Name()})
	return plugin.Deployed{State: state, Env: plugin.DeployedEnv{
		URL: "http://" + l.Addr().String() + "/rooms/1/", Headers: map[string]string{"X-Room-Key": "let-me-in"}, Metadata: map[string]any{"book": d.Book}, ReadsFiles: d.Files,
	}}, err
}

// keyed lets in whoever has the key.
func keyed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Room-Key") != "let-me-in" {
			http.Error(w, "no key", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func (r *room) server(name string) *env.Env {
	e := env.New(name)
	type none struct{}
	env.AddTool(e, "words", "All words.", func(context.Context, none) (string, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return strings.Join(r.words, " "), nil
	})
	env.AddExtension(e, "urn:acme:shout", "shout", func(_ context.Context, in struct {
		Text string `json:"text"`
	},
	) (map[string]string, error) {
		return map[string]string{"text": strings.ToUpper(in.Text)}, nil
	}, env.Op())
	e.OnReset(func(context.Context) error { r.set(nil); return nil })
	e.OnAdd(func(ctx context.Context, in []*env.Input) error {
		var d struct {
			Words []string `json:"words"`
		}
		if at := in[0].Part.File; at == nil || strings.HasPrefix(at.URI, "file:///") != r.files {
			return errors.New("the data came another way")
		}
		if err := in[0].Decode(ctx, &d); err != nil {
			return err
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.words = append(r.words, d.Words...)
		return nil
	})
	e.OnGet(func(context.Context) ([]wire.Part, error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		p, err := wire.DataPart(map[string]any{"words": r.words})
		return []wire.Part{p}, err
	})
	return e
}

func (r *room) set(words []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.words = words
}

func (s *rooms) reset(_ context.Context, c *plugin.EnvCall) error {
	var st roomState
	if err := c.State.Decode(&st); err != nil {
		return err
	}
	s.mu.Lock()
	r := s.all[st.Entry]
	s.mu.Unlock()
	if r == nil {
		return plugin.Fail("RoomError", "there is no room %s", st.Entry)
	}
	r.set(r.first)
	return nil
}

// close ends a room, of this process or of one that is gone.
func (s *rooms) close(_ context.Context, c *plugin.EnvCall) error {
	var st roomState
	if err := c.State.Decode(&st); err != nil || st.Entry == "" {
		return err
	}
	s.mu.Lock()
	r := s.all[st.Entry]
	delete(s.all, st.Entry)
	s.mu.Unlock()
	if r != nil {
		_ = r.srv.Close()
		<-r.done
	}
	if err := os.Remove(st.Entry); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// table is the artifact type acme_table: its rows are kept in capitals.
func table() plugin.Artifact {
	return plugin.Artifact{
		Name: "acme_table", Description: "A table", Schema: json.RawMessage(`{"properties": {"columns": {"type": "array", "items": {"type": "string"}, "minItems": 1}}, "required": ["columns"]}`),
		Check: func(_ context.Context, _ plugin.Document, files []plugin.File) []plugin.Problem {
			if len(files) == 0 {
				return []plugin.Problem{{Summary: "a table needs a file of rows"}}
			}
			return nil
		},
		Write: func(_ context.Context, h *plugin.Host, id string, config plugin.Document, files []plugin.File) (out plugin.Written, err error) {
			var c struct {
				Columns []string `json:"columns"`
			}
			if err := config.Decode(&c); err != nil {
				return out, err
			}
			rows := 0
			for _, f := range files {
				b, err := os.ReadFile(f.File)
				if err != nil {
					return out, err
				}
				if strings.Contains(string(b), "poison") {
					return out, plugin.Fail("TableError", "%s of %s can't be a table", f.Path, id)
				}
				rows += strings.Count(string(b), "\n")
				to := filepath.Join(h.TempDir(), fmt.Sprintf("%d", len(out.Files)))
				if err := os.WriteFile(to, []byte(strings.ToUpper(string(b))), 0o600); err != nil {
					return out, err
				}
				out.Files = append(out.Files, plugin.File{Path: f.Path, File: to})
			}
			out.Body, err = json.Marshal(map[string]any{"columns": c.Columns, "rows": rows})
			return out, err
		},
	}
}

// acmeAsk is the step acme_ask: one host call, and what is in its answer.
func acmeAsk(ctx context.Context, c *plugin.Call) error {
	var d struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
		Want   string          `json:"want"`
		Fetch  string          `json:"fetch"` // a member of the answer that is a URL; what it has, at path below it, is looked at
		Path   string          `json:"path"`
		Read   string          `json:"read"` // a member of the answer that is a file
	}
	if err := c.Doc.Decode(&d); err != nil {
		return err
	}
	var out map[string]any
	if err := c.Host.Ask(ctx, d.Method, d.Params, &out); err != nil {
		return err
	}
	b, err := json.Marshal(out)
	if err != nil {
		return err
	}
	if at, ok := out[d.Fetch].(string); ok {
		if b, err = get(ctx, at+d.Path); err != nil {
			return err
		}
	}
	if file, ok := out[d.Read].(string); ok {
		if b, err = os.ReadFile(file); err != nil {
			return err
		}
	}
	if !strings.Contains(string(b), d.Want) {
		return plugin.Fail("AnswerError", "%s answers %s", d.Method, b)
	}
	return c.Score(1, nil)
}

func get(ctx context.Context, at string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(io.LimitReader(resp.Body, 1<<20))
}
