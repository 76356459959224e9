package deploy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// playServer is the test program as a server of an environment: `agent-env serve NAME` in boxes of the tests.
func playServer(name string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var err error
	switch name {
	case "words":
		err = wordsServer().Serve(ctx)
	case "backend":
		e := wordsServer()
		e.Handle("GET /api/words", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "the words of "+e.Name()) }))
		err = e.Serve(ctx)
	case "frontend":
		err = frontend(ctx)
	case "talker":
		err = newTalker(onMachine()).Serve(ctx)
	case "container-talker":
		err = newTalker(byEngine()).Serve(ctx)
	case "claude":
		err = playClaude(ctx)
	case "filed":
		err = filedServer().Serve(ctx)
	case "mute":
		fmt.Fprintln(os.Stderr, "waiting for the database")
		<-ctx.Done()
	default:
		err = fmt.Errorf("no server %q", name)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// FiledSize is the size of the file that filedServer exports.
const FiledSize = 32 << 20

// filedServer answers data/get with a file of its box, behind two links; after data/add it names a folder.
func filedServer() *env.Env {
	e := env.New(os.Getenv("ENVIRONMENT_NAME"))
	name := "/root/link"
	e.OnReset(func(context.Context) error { return nil })
	e.OnAdd(func(context.Context, []*env.Input) error { name = "/root"; return nil })
	e.OnGet(func(context.Context) ([]wire.Part, error) {
		_ = os.Symlink("/root/second", "/root/link")
		_ = os.Symlink("out.bin", "/root/second")
		f, err := os.Create("/root/out.bin")
		if err != nil {
			return nil, err
		}
		_, err = io.CopyN(f, strings.NewReader(strings.Repeat("0123456789abcdef", FiledSize/16)), FiledSize)
		return []wire.Part{wire.URIPart("file://"+name, "", "out.bin")}, errors.Join(err, f.Close())
	})
	return e
}

// wordsServer holds words, and tells what its box lets it do.
func wordsServer() *env.Env {
	var mu sync.Mutex
	words := []string{}
	e := env.New(os.Getenv("ENVIRONMENT_NAME"))
	e.OnReset(func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		words = []string{}
		return nil
	})
	e.OnAdd(func(ctx context.Context, in []*env.Input) error {
		var d struct{ Words []string }
		if err := in[0].Decode(ctx, &d); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		words = append(words, d.Words...)
		return nil
	})
	e.OnGet(func(context.Context) ([]wire.Part, error) {
		mu.Lock()
		defer mu.Unlock()
		b, err := json.Marshal(map[string]any{"words": words})
		return []wire.Part{{Kind: wire.KindData, Data: b}}, err
	})
	type none struct{}
	name := e.Name() + "_"
	env.AddTool(e, name+"words", "All words.", func(context.Context, none) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(words, " "), nil
	})
	env.AddTool(e, name+"role", "Who calls.", func(ctx context.Context, _ none) (string, error) { return env.CallFrom(ctx).Role, nil })
	env.AddTool(e, name+"vars", "The variables of the server.", func(context.Context, none) (string, error) {
		return fmt.Sprint(strings.Join(os.Environ(), "\n"), "\nuid=", os.Getuid()), nil
	})
	type size struct {
		Bytes int `json:"bytes"`
	}
	env.AddTool(e, name+"big", "A long text.", func(_ context.Context, in size) (string, error) {
		return "begin" + strings.Repeat("x", in.Bytes) + "end", nil
	})
	type query struct {
		SQL string `json:"sql"`
	}
	env.AddTool(e, name+"sql", "Run SQL in the server's database.", func(ctx context.Context, in query) (string, error) {
		c, err := pgx.Connect(ctx, os.Getenv("DATABASE_URL"))
		if err != nil {
			return "", err
		}
		defer func() { _ = c.Close(ctx) }()
		out, err := c.PgConn().Exec(ctx, in.SQL).ReadAll()
		if err != nil {
			return "failed: " + err.Error(), nil
		}
		var text []string
		for _, r := range out {
			for _, row := range r.Rows {
				text = append(text, string(bytes.Join(row, []byte("|"))))
			}
		}
		return strings.Join(text, "\n"), nil
	})
	env.AddTool(e, name+"fetch", "What a URL answers from inside.", fetchInside)
	return e
}

// asking is what a server sends to a URL, claiming a role.
type asking struct {
	URL  string `json:"url"`
	Role string `json:"role"`
	Body string `json:"body"`
}

func fetchInside(ctx context.Context, r asking) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	verb := http.MethodGet
	if r.Body != "" {
		verb = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, verb, r.URL, bytes.NewReader([]byte(r.Body)))
	if err != nil {
		return "", err
	}
	req.Header.Set(wire.RoleHeader, r.Role)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "refused: " + err.Error(), nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	return fmt.Sprint(resp.StatusCode, " ", string(body)), err
}

// frontend serves pages, one of which it has from its backend by URL and one by name.
func frontend(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "<h1>words</h1>") })
	pass := func(base string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, base+"/api/words", nil)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer resp.Body.Close()
			_, _ = io.Copy(w, resp.Body)
		}
	}
	mux.HandleFunc("GET /words", pass(os.Getenv("BACKEND_URL")))
	mux.HandleFunc("GET /named", pass("http://"+os.Getenv("ENVIRONMENT_NAME")+"-website-backend:8000"))
	web := &http.Server{Addr: net.JoinHostPort("127.0.0.1", os.Getenv("PORT")), Handler: mux, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	return web.ListenAndServe()
}
