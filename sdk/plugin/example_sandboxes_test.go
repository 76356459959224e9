//go:build unix

package plugin_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"agentenv.internal/agentenv/sdk/plugin"
)

// folders is a provider whose sandboxes are folders of this machine: commands run there as processes of the user, isolated from nothing, which its abilities say.
// They die with the process, so it has no leases; a provider of real machines lists what its service knows.
type folders struct {
	root string
	mu   sync.Mutex
	all  []plugin.SandboxInfo // newest first
}

func openFolders(context.Context, *plugin.Host) (plugin.SandboxProvider, error) {
	root, err := os.MkdirTemp("", "folders-")
	return &folders{root: root}, err
}

func (p *folders) Create(_ context.Context, s plugin.SandboxSpec) (plugin.SandboxInfo, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, i := range p.all {
		if s.Key != "" && i.Key == s.Key {
			return i, nil
		}
	}
	i := plugin.SandboxInfo{
		ID: fmt.Sprintf("f%d", len(p.all)+1), Name: s.Name, Key: s.Key, Run: s.Run, State: "running", Tied: true, Created: time.Now(), Expires: time.Now().Add(s.Lease()),
		Network: s.Network, Labels: s.Labels, Isolation: plugin.SandboxIsolation{Level: "none"},
	}
	p.all = append([]plugin.SandboxInfo{i}, p.all...)
	return i, os.Mkdir(filepath.Join(p.root, i.ID), 0o700)
}

func (p *folders) Connect(_ context.Context, id string) (plugin.Sandbox, error) {
	if !filepath.IsLocal(id) {
		return nil, plugin.ErrNoSandbox
	}
	at := filepath.Join(p.root, id)
	if _, err := os.Stat(at); err != nil {
		return nil, plugin.ErrNoSandbox
	}
	return folder(at), nil
}

func (p *folders) List(context.Context) ([]plugin.SandboxInfo, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]plugin.SandboxInfo{}, p.all...), nil
}

func (p *folders) Destroy(_ context.Context, id string) error {
	if !filepath.IsLocal(id) {
		return nil
	}
	p.mu.Lock()
	for n := range p.all {
		if p.all[n].ID == id {
			p.all[n].State, p.all[n].Cause = "dead", "removed"
		}
	}
	p.mu.Unlock()
	return os.RemoveAll(filepath.Join(p.root, id))
}

func (p *folders) Sweep(context.Context) ([]string, error) { return nil, nil }
func (p *folders) Close() error                            { return os.RemoveAll(p.root) }

// folder is one sandbox.
type folder string

func (f folder) at(path string) string { return filepath.Join(string(f), filepath.Join("/", path)) }

// Exec gives the command pipes, whose ends the plugin carries, so that what it leaves behind may go on writing.
func (f folder) Exec(ctx context.Context, c plugin.SandboxExec, stdio plugin.Stdio) (plugin.SandboxExit, error) {
	pipes, err := stdio.Pipes()
	if err != nil {
		return plugin.SandboxExit{}, err
	}
	if t := c.Timeout(); t > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, t)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
	cmd.Dir, cmd.Env = f.at(c.Dir), append(os.Environ(), c.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the end of ctx ends all that it started
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	if in := pipes.Files[0]; in != nil {
		cmd.Stdin = in
	}
	if out := pipes.Files[1]; out != nil {
		cmd.Stdout = out
	}
	if out := pipes.Files[2]; out != nil {
		cmd.Stderr = out
	}
	began := time.Now()
	err = cmd.Start()
	pipes.Started()
	if err != nil {
		pipes.Drain()
		return plugin.SandboxExit{}, err
	}
	err = cmd.Wait()
	pipes.Drain()
	out := plugin.SandboxExit{Code: cmd.ProcessState.ExitCode(), TimedOut: ctx.Err() != nil, ElapsedUS: time.Since(began).Microseconds()}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		out.Code, out.Signal = 0, int(ws.Signal())
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return out, err
	}
	return out, nil
}

func (f folder) ReadFile(_ context.Context, path string, max int64) ([]byte, error) {
	file, err := os.Open(f.at(path))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, max+1))
	if int64(len(b)) > max {
		return nil, plugin.ErrTooBig
	}
	return b, err
}

func (f folder) Stat(_ context.Context, path string) (fs.FileInfo, error) { return os.Stat(f.at(path)) }

// What the abilities leave out is never called.

func (folder) Dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.ErrUnsupported
}

func (folder) Listen(context.Context, string, string) (net.Listener, error) {
	return nil, errors.ErrUnsupported
}

func (folder) Tree(context.Context, string) (io.ReadCloser, error) {
	return nil, errors.ErrUnsupported
}

func (folder) Extract(context.Context, string, io.Reader) error { return errors.ErrUnsupported }
func (folder) Renew(context.Context, time.Duration) error       { return errors.ErrUnsupported }
func (folder) Close() error                                     { return nil }

// foldersPlugin is the whole plugin: `agent-env sandbox create --sandbox folders` uses it when its wheel is installed.
func foldersPlugin() *plugin.Plugin {
	return &plugin.Plugin{
		Name: "folders-plugin", Version: "1.0.0",
		Sandboxes: []plugin.Sandboxes{{
			Name: "folders", Description: "Folders of this machine, isolated from nothing",
			Can:  plugin.SandboxAbilities{Isolation: "none", Networks: []string{"allow_all"}},
			Open: openFolders,
		}},
	}
}

// A provider of sandboxes, and what the host asks of it: one is made, used and destroyed.
func ExampleSandboxes() {
	ctx := context.Background()
	p, err := foldersPlugin().Sandboxes[0].Open(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer p.Close()
	made, err := p.Create(ctx, plugin.SandboxSpec{Key: "k", Name: "box", Network: "allow_all", Isolation: "none", Tied: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	box, err := p.Connect(ctx, made.ID)
	if err != nil {
		fmt.Println(err)
		return
	}
	var said written
	exit, err := box.Exec(ctx, plugin.SandboxExec{Argv: []string{"sh", "-c", "echo hello >greeting; cat greeting; exit 3"}}, plugin.Stdio{Out: &said})
	fmt.Print(said.String())
	fmt.Println(made.State, exit.Code, err)
	err = p.Destroy(ctx, made.ID)
	_, gone := p.Connect(ctx, made.ID)
	fmt.Println(err, errors.Is(gone, plugin.ErrNoSandbox))
	// Output:
	// hello
	// running 3 <nil>
	// <nil> true
}

// written keeps what a command wrote.
type written struct{ strings.Builder }

func (*written) Close() error { return nil }
