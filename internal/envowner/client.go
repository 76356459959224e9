package envowner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/envstore"
)

// Start starts an owner of its own session, which outlives this process, and answers when the deployment stands. exe is this program, args the command
// that calls Own with the order from its standard input and descriptor 3 as status. When ctx ends first the owner is told to end, and waited for.
func (f *Folder) Start(ctx context.Context, exe string, args []string, o Order) (Started, error) {
	var err error
	if o.Key, err = f.newKey(o.Env); err != nil {
		return Started{}, fmt.Errorf("make the deployment's folder: %w", err)
	}
	order, err := json.Marshal(o)
	if err != nil {
		return Started{}, err
	}
	log, err := os.OpenFile(f.at(o.Key, logFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return Started{}, err
	}
	defer log.Close()
	status, far, err := os.Pipe()
	if err != nil {
		return Started{}, err
	}
	defer status.Close()
	cmd := &exec.Cmd{
		Path: exe, Args: append([]string{"agent-env"}, args...), Stdin: bytes.NewReader(order), Stdout: log, Stderr: log, ExtraFiles: []*os.File{far},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	far.Close()
	if err != nil {
		return Started{}, errors.Join(fmt.Errorf("start the deployment's owner: %w", err), os.RemoveAll(filepath.Join(f.path, o.Key)))
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	var s Started
	err = json.NewDecoder(status).Decode(&s)
	switch {
	case ctx.Err() != nil:
		return Started{}, errors.Join(ctx.Err(), ignoreExit(cmd.Wait()))
	case err != nil:
		werr := cmd.Wait()
		return Started{}, fmt.Errorf("the deployment's owner ended (%w): %s", werr, f.lastLog(log))
	case s.Error != "":
		_ = cmd.Wait() // it has said why, and takes down what it made
		return Started{}, errors.New(s.Error)
	}
	return s, cmd.Process.Release()
}

func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

// lastLog is the end of what an owner wrote; its folder may be gone.
func (f *Folder) lastLog(log *os.File) string {
	b, err := os.ReadFile(log.Name())
	if err != nil || len(bytes.TrimSpace(b)) == 0 {
		return "it wrote nothing"
	}
	return strings.TrimSpace(string(b[max(0, len(b)-2000):]))
}

// Client speaks to the owner of a deployment.
type Client struct {
	f    *Folder
	r    Record
	http *http.Client
}

// Client answers one for a living deployment. Close it.
func (f *Folder) Client(r Record) *Client {
	return &Client{f, r, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialUnix(ctx, f.at(r.key, socketFile))
		},
	}}}
}

// Close drops the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status is what the owner answered when it had started, URLs included.
func (c *Client) Status(ctx context.Context) (s Started, err error) {
	return s, c.ask(ctx, http.MethodGet, "status", nil, &s)
}

// Load gives the environments stored data: deploy.Env.Load. version 0 is the latest.
func (c *Client) Load(ctx context.Context, artifact string, version int) (l deploy.Loaded, err error) {
	return l, c.ask(ctx, http.MethodPost, "load", loadRequest{artifact, version}, &l)
}

// Reset empties the environments of these names, or all.
func (c *Client) Reset(ctx context.Context, names ...string) error {
	return c.ask(ctx, http.MethodPost, "reset", resetRequest{names}, nil)
}

// Snapshot stores the data as the next version of a universe.
func (c *Client) Snapshot(ctx context.Context, id string) (p envstore.Pin, err error) {
	return p, c.ask(ctx, http.MethodPost, "snapshot", snapshotRequest{id}, &p)
}

// Call calls a tool and answers the MCP result. role "" is the owner's.
func (c *Client) Call(ctx context.Context, tool string, arguments json.RawMessage, role string) (result json.RawMessage, err error) {
	return result, c.ask(ctx, http.MethodPost, "call", callRequest{tool, arguments, role}, &result)
}

// Stop ends the deployment and waits until nothing of it is left.
func (c *Client) Stop(ctx context.Context) error {
	err := c.ask(ctx, http.MethodPost, "stop", nil, nil)
	// An owner that ends at once may take its answer with it.
	ending := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	if err != nil && !ending && c.f.alive(c.r.key) {
		return err
	}
	for c.f.alive(c.r.key) {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ask sends a request to the owner; in and out may be nil.
func (c *Client) ask(ctx context.Context, verb, what string, in, out any) error {
	body := []byte("{}")
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(ctx, verb, "http://owner/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
			return fmt.Errorf("environment %s %w any more", c.r.Instance, ErrNotFound)
		}
		return fmt.Errorf("ask the owner of %s: %w", c.r.Instance, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("ask the owner of %s: %w", c.r.Instance, err)
	}
	if resp.StatusCode != http.StatusOK {
		var e struct{ Error string }
		if json.Unmarshal(b, &e) != nil || e.Error == "" {
			e.Error = fmt.Sprintf("the owner of %s answered status %d", c.r.Instance, resp.StatusCode)
		}
		return errors.New(e.Error)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}
