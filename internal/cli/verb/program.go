package verb

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"

	"agentenv.internal/agentenv/internal/app"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/term"
)

// Program is what the commands of one command line share.
type Program struct {
	Streams *term.Streams
	Env     func(string) (string, bool) // as os.LookupEnv
	// Install installs distributions into the plugin environment, asking nothing and telling people what it does; nil where nothing can be installed.
	Install func(ctx context.Context, requirements []string) error

	mu     sync.Mutex
	app    *app.App
	abort  func() []string
	cancel func()

	asking chan struct{} // holds one while a person is asked
}

// NewProgram opens nothing.
func NewProgram(s *term.Streams, env func(string) (string, bool)) *Program {
	return &Program{Streams: s, Env: env, asking: make(chan struct{}, 1)}
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
		return nil, fmt.Errorf("the current folder can't be used (%w); change to one that exists", err)
	}
	p.app = app.New(app.Options{Env: p.Env, Dir: dir, Log: p.Logger(), Ask: p.askPerson})
	return p.app, nil
}

// Ready is App for a command that acts: a configuration with errors is refused, and its warnings are told.
func (p *Program) Ready() (*app.App, error) {
	a, err := p.App()
	if err != nil {
		return nil, err
	}
	l := a.ConfigProblems()
	if err := l.Err(); err != nil {
		return nil, err
	}
	for _, w := range l.Of(diag.Warning) {
		p.Streams.Problem("Warning: %s", w)
	}
	return a, nil
}

// Sweep removes what dead sandboxes left and says so. What can't be swept now is tried again by the next command.
func (p *Program) Sweep(ctx context.Context, a *app.App) {
	swept, err := a.SweepBoxes(ctx)
	if err != nil {
		p.Streams.Detail("sweep dead sandboxes: %v", err)
	}
	if len(swept) > 0 {
		p.Streams.Note("Swept what was left of %s: %s", diag.Count(len(swept), "dead sandbox"), strings.Join(swept, ", "))
	}
}

// Logger shows warnings as everything else that people are told, and the whole log under --verbose.
func (p *Program) Logger() *slog.Logger {
	if p.Streams.Verbose {
		return slog.New(slog.NewTextHandler(p.Streams.Err, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	return slog.New(warnings{streams: p.Streams})
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

// OnCancel sets what is called before a first signal cancels the command, whose work still goes on then. f must not block.
func (p *Program) OnCancel(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cancel = f
}

// Cancelled calls what OnCancel has set.
func (p *Program) Cancelled() {
	p.mu.Lock()
	f := p.cancel
	p.mu.Unlock()
	if f != nil {
		f()
	}
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
