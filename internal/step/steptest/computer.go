package steptest

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/sdk/computer"
	"agentenv.internal/agentenv/sdk/computer/app"
)

// Computer is the session of a fake box: a real driver in front of real servers of apps, of a desktop without a screen.
type Computer struct {
	Home string // a folder of the test's
	// Apps are those that folders of apps stand for, by name. One that isn't among them is never served.
	Apps map[string]app.App
	// Skill is the driver's; nil: none.
	Skill *computer.Skill
	// Driver wraps what the driver serves; nil: as it is.
	Driver func(http.Handler) http.Handler

	mu   sync.Mutex
	argv []string
}

// Argv is how the session was started last.
func (c *Computer) Argv() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.argv
}

// Program is the session as a program of fake boxes: that of this program.
func (c *Computer) Program() fake.Program {
	return func(ctx context.Context, p *fake.Proc) guest.Exit {
		if err := c.serve(ctx, p); err != nil {
			_, _ = io.WriteString(p.Stderr, err.Error())
			return fake.Code(1)
		}
		return guest.Exit{Signal: 9}
	}
}

func (c *Computer) serve(ctx context.Context, p *fake.Proc) (err error) {
	c.mu.Lock()
	c.argv = p.Argv
	c.mu.Unlock()
	ctx, stop := context.WithCancel(ctx)
	var serving sync.WaitGroup
	errs := make(chan error, len(p.Argv))
	defer func() {
		stop()
		serving.Wait()
	}()
	var apps []computer.App
	for i, word := range p.Argv {
		if word != "--app" {
			continue
		}
		name, _, _ := strings.Cut(p.Argv[i+1], "=")
		socket := filepath.Join(c.Home, name+".sock")
		a, known := c.Apps[name]
		a.Name = name
		apps = append(apps, computer.App{Name: name, Socket: socket, Paths: a.Paths})
		if known {
			serving.Go(func() {
				errs <- app.Serve(ctx, a, app.Options{Home: c.Home, Socket: socket, Environ: []string{"HOME=" + c.Home}})
			})
		}
	}
	lookup := func(name string) (string, bool) { v, ok := p.Env[name]; return v, ok }
	d, err := computer.New(plain{}, computer.Options{Home: c.Home, Apps: apps, Lookup: lookup, Skill: c.Skill})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close(context.WithoutCancel(ctx))) }()
	h, err := d.Handler()
	if err != nil {
		return err
	}
	if c.Driver != nil {
		h = c.Driver(h)
	}
	l, err := p.Listen(ctx, "tcp", p.Env["MCP_HOST"]+":"+p.Env["MCP_PORT"])
	if err != nil {
		return err
	}
	web := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	after := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer after()
	serving.Go(func() {
		select {
		case <-errs:
			_ = web.Close() // an app that can't be served
		case <-ctx.Done():
		}
	})
	_ = web.Serve(l)
	return nil
}

// plain is a black screen that takes every input.
type plain struct{}

const plainWidth, plainHeight = 40, 30

func (plain) Features() computer.Features { return computer.Features{} }

func (plain) Display(context.Context) (computer.Display, error) {
	return computer.Display{Width: plainWidth, Height: plainHeight, Scale: 1}, nil
}

func (plain) Capture(context.Context) (computer.Image, error) {
	return computer.Image{Format: computer.BGRX, Width: plainWidth, Height: plainHeight, Data: make([]byte, 4*plainWidth*plainHeight)}, nil
}

func (plain) Click(context.Context, computer.Click) (*computer.Effect, error)   { return nil, nil }
func (plain) Drag(context.Context, computer.Drag) (*computer.Effect, error)     { return nil, nil }
func (plain) Scroll(context.Context, computer.Scroll) (*computer.Effect, error) { return nil, nil }

func (plain) Type(context.Context, string, computer.Timing) (*computer.Effect, error) {
	return nil, nil
}

func (plain) Press(context.Context, []computer.Key, computer.Timing) (*computer.Effect, error) {
	return nil, nil
}

// PutFolder stores an environment of one of the types that computers are composed of, as a bundle with that folder would. more are members of its document
// besides its name.
func (r *Rig) PutFolder(id, typ, name string, more map[string]any, files ...File) {
	r.T.Helper()
	universe := ref.Derived(id, "files")
	if len(files) > 0 {
		r.PutUniverse(universe, files...)
	}
	fields := map[string]any{"environment_name": name, "service_name": name, "metadata": map[string]any{}}
	if len(files) > 0 {
		fields[env.Files] = map[string]any{"id": universe, "version": 1, "type": artifact.FileUniverse}
	}
	maps.Copy(fields, more)
	r.PutEnvDoc(id, typ, fields)
}

// EnvPin is a reference to the first version of an environment, as documents have it.
func EnvPin(id, typ string) map[string]any {
	return map[string]any{"id": id, "version": 1, "type": typ}
}

// PutTree stores a universe of environments, whose files are called as given: "<environment>/<file>".
func (r *Rig) PutTree(id string, files ...File) {
	r.T.Helper()
	r.put(func(s store.Stage) []artifact.Document {
		var parts []artifact.Bytes
		for _, f := range files {
			parts = append(parts, r.bytes(s, f))
		}
		return artifact.NewUniverse(artifact.Pin{ID: id, Version: 1}, parts, nil, first)
	})
}
