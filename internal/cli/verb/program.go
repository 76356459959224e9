package verb

import (
	"context"
	"log/slog"
	"os"
	"sync"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/term"
)

// Program is what the commands of one command line share.
type Program struct {
	Streams *term.Streams
	Env     func(string) (string, bool) // as os.LookupEnv

	mu    sync.Mutex
	app   *app.App
	abort func() []string
}

// NewProgram opens nothing.
func NewProgram(s *term.Streams, env func(string) (string, bool)) *Program {
	return &Program{Streams: s, Env: env}
}

// App is the wired program, made when a command first asks.
func (p *Program) App() (*app.App, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.app != nil {
		return p.app, nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	p.app = app.New(app.Options{Env: p.Env, Dir: dir, Log: p.logger()})
	return p.app, nil
}

// logger shows warnings, and everything under --verbose.
func (p *Program) logger() *slog.Logger {
	level := slog.LevelWarn
	if p.Streams.Verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(p.Streams.Err, &slog.HandlerOptions{Level: level}))
}

// Close closes what was made.
func (p *Program) Close(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.app == nil {
		return nil
	}
	return p.app.Close(ctx)
}

// OnAbort sets what is said when a second signal stops the command at once: what is left. f must not block.
func (p *Program) OnAbort(f func() []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.abort = f
}

// Aborted is what OnAbort says.
func (p *Program) Aborted() []string {
	p.mu.Lock()
	f := p.abort
	p.mu.Unlock()
	if f == nil {
		return nil
	}
	return f()
}
