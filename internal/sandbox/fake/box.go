package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// home is where commands run whose Dir is empty.
const home = "/root"

// handle is one connection to a Machine.
type handle struct {
	m      *Machine
	closed atomic.Bool
}

var _ guest.Box = (*handle)(nil)

func (h *handle) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if h.closed.Load() {
		return fmt.Errorf("%s: %w", h.m.id, net.ErrClosed)
	}
	if h.m.dead() {
		return fmt.Errorf("%s: %w", h.m.id, guest.ErrGone)
	}
	return nil
}

// Exec runs the program of c and waits for it.
func (h *handle) Exec(ctx context.Context, c guest.Command, stdio [3]*os.File) (guest.Exit, error) {
	if err := h.check(ctx); err != nil {
		return guest.Exit{}, err
	}
	if c.TTY != nil || c.User != "" && c.User != "root" {
		return guest.Exit{}, fmt.Errorf("terminals and users in a sandbox in memory: %w", errors.ErrUnsupported)
	}
	p, run, err := h.m.prepare(c, stdio)
	if err != nil {
		return guest.Exit{}, err
	}
	cctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.Timeout > 0 {
		var stop context.CancelFunc
		cctx, stop = context.WithTimeout(cctx, c.Timeout)
		defer stop()
	}
	start := time.Now()
	var exit guest.Exit
	done := make(chan struct{})
	if !h.m.begin() {
		return guest.Exit{}, fmt.Errorf("%s: %w", h.m.id, guest.ErrGone)
	}
	go func() {
		defer h.m.procs.Done()
		defer close(done)
		exit = run(cctx, p)
	}()
	select {
	case <-done:
	case <-h.m.gone:
		cancel()
		<-done
	}
	exit.Elapsed = time.Since(start)
	switch {
	case h.m.dead():
		return guest.Exit{}, fmt.Errorf("%s: %w", h.m.id, guest.ErrGone)
	case ctx.Err() != nil:
		return guest.Exit{}, ctx.Err()
	case cctx.Err() != nil:
		exit.TimedOut, exit.Signal = true, int(syscall.SIGKILL)
	}
	return exit, nil
}

func (m *Machine) prepare(c guest.Command, stdio [3]*os.File) (*Proc, Program, error) {
	if len(c.Argv) == 0 {
		return nil, nil, fmt.Errorf("a command needs at least its program: %w", fs.ErrInvalid)
	}
	m.mu.Lock()
	m.cmds = append(m.cmds, c)
	m.mu.Unlock()
	programs := Builtins()
	maps.Copy(programs, m.opts.Programs)
	name := path.Base(c.Argv[0])
	run := programs[name]
	if _, own := m.opts.Programs[name]; !own && m.opts.Any != nil {
		run = m.opts.Any
	}
	if run == nil {
		return nil, nil, &fs.PathError{Op: "start", Path: c.Argv[0], Err: fs.ErrNotExist}
	}
	dir := c.Dir
	if dir == "" {
		dir = home
	} else if info, err := m.Files.Stat(dir); err != nil {
		return nil, nil, err
	} else if !info.IsDir() {
		return nil, nil, &fs.PathError{Op: "chdir", Path: dir, Err: syscall.ENOTDIR}
	}
	env := map[string]string{"PATH": "/usr/bin:/bin", "HOME": home, "LANG": "C.UTF-8"}
	for _, kv := range append(append([]string{}, m.spec.Env...), c.Env...) {
		k, v, _ := strings.Cut(kv, "=")
		env[k] = v
	}
	p := &Proc{Argv: c.Argv, Env: env, Dir: dir, Machine: m, Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard}
	if stdio[0] != nil {
		p.Stdin = stdio[0]
	}
	if stdio[1] != nil {
		p.Stdout = stdio[1]
	}
	if stdio[2] != nil {
		p.Stderr = stdio[2]
	}
	return p, run, nil
}

// ReadFile reads a regular file of at most max bytes.
func (h *handle) ReadFile(ctx context.Context, name string, max int64) ([]byte, error) {
	if err := h.check(ctx); err != nil {
		return nil, err
	}
	b, err := h.m.Files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > max {
		return nil, &fs.PathError{Op: "read", Path: name, Err: guest.ErrTooBig}
	}
	return b, nil
}

// Stat follows links.
func (h *handle) Stat(ctx context.Context, name string) (fs.FileInfo, error) {
	if err := h.check(ctx); err != nil {
		return nil, err
	}
	return h.m.Files.Stat(name)
}

// Tree is a tar of name.
func (h *handle) Tree(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := h.check(ctx); err != nil {
		return nil, err
	}
	return h.m.Files.tar(name)
}

// Extract unpacks a tar under name.
func (h *handle) Extract(ctx context.Context, name string, r io.Reader) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	return h.m.Files.untar(name, r)
}

// Renew moves the lease's end.
func (h *handle) Renew(ctx context.Context, d time.Duration) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if !h.m.timer.Stop() {
		return fmt.Errorf("%s: %w", h.m.id, guest.ErrGone)
	}
	h.m.timer.Reset(d)
	h.m.end = time.Now().Add(d)
	return nil
}

// Close drops the handle; the box lives on, since its provider holds it.
func (h *handle) Close() error {
	h.closed.Store(true)
	return nil
}
