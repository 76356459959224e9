package steptest

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/agent"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/env"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/sandbox/fake"
	"agentenv.internal/agentenv/internal/store"
)

// PutAgent stores an agent whose server is started as processTOML says ("" leaves that to an image), from a folder of those files beside it.
func (r *Rig) PutAgent(id, processTOML string, files ...File) {
	r.T.Helper()
	image := ref.Derived(id, "agent_image")
	if !slices.ContainsFunc(files, func(f File) bool { return f.Path == "Dockerfile" }) {
		files = append(files, File{Path: "Dockerfile", Text: "FROM scratch\n"})
	}
	if processTOML != "" {
		files = append(files, File{Path: env.ProcessFile, Text: processTOML})
	}
	r.PutImage(image, "Dockerfile", files...)
	s, err := r.Store.Begin(r.T.Context())
	if err != nil {
		r.T.Fatal(err)
	}
	d := artifact.Document{Pin: first(id), Type: agent.A2A, Fields: map[string]any{
		"docker_image_artifact": map[string]any{"id": image, "version": 1, "type": artifact.DockerImage},
	}}
	s.Doc(store.Doc{Kind: store.Agent, ID: id, Version: 1, Type: d.Type, Body: d.Body(time.Now())}, store.Absent)
	if err := s.Commit(r.T.Context()); err != nil {
		r.T.Fatal(err)
	}
}

// AgentProgram serves what make makes where an agent listens in a fake box. inside reaches what others serve in the box. done, which may be nil, is
// called when the program ends.
func AgentProgram(make func(ctx context.Context, p *fake.Proc, inside *http.Client) (h http.Handler, done func())) fake.Program {
	return func(ctx context.Context, p *fake.Proc) guest.Exit {
		l, err := p.Listen(ctx, "tcp", p.Env["A2A_HOST"]+":"+p.Env["A2A_PORT"])
		if err != nil {
			return fake.Code(1)
		}
		way := &http.Transport{DialContext: p.Dial}
		h, done := make(ctx, p, &http.Client{Transport: way})
		web := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
		stop := context.AfterFunc(ctx, func() { _ = web.Close() })
		err = web.Serve(l)
		stop()
		_ = web.Close()
		if done != nil {
			done()
		}
		way.CloseIdleConnections()
		if ctx.Err() == nil && !errors.Is(err, http.ErrServerClosed) {
			return fake.Code(1)
		}
		return guest.Exit{Signal: 9}
	}
}
