package owner

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

	"agentenv.internal/agentenv/internal/unixsocket"
)

// Start starts an owner of its own session, which outlives this process, and reads into started what that tells when the deployment of an id stands. exe is
// this program, args the command that calls Own with the order from its standard input and Parent as its caller; order makes the order, as JSON, for the
// deployment's key. working, which may be nil, gets what the owner tells of work until then, as JSON. When ctx ends first the owner is told to end, and
// waited for.
func (f *Folder[R, P]) Start(
	ctx context.Context, exe string, args []string, id string, order func(key string) any, working func(json.RawMessage), started any,
) error {
	key, err := f.newKey(id)
	if err != nil {
		return fmt.Errorf("make the deployment's folder: %w", err)
	}
	text, err := json.Marshal(order(key))
	if err != nil {
		return err
	}
	log, err := os.OpenFile(f.At(key, logFile), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	status, far, err := os.Pipe()
	if err != nil {
		return err
	}
	defer status.Close()
	near, life, err := os.Pipe() // the owner sees its end when this process is gone, however it went
	if err != nil {
		far.Close()
		return err
	}
	defer life.Close()
	cmd := &exec.Cmd{
		Path: exe, Args: append([]string{"agent-env"}, args...), Stdin: bytes.NewReader(text), Stdout: log, Stderr: log, ExtraFiles: []*os.File{far, near},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = cmd.Start()
	far.Close()
	near.Close()
	if err != nil {
		return errors.Join(fmt.Errorf("start the deployment's owner: %w", err), os.RemoveAll(filepath.Join(f.path, key)))
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	defer stop()
	var bad failed
	raw, err := await(status, working)
	if err == nil {
		err = errors.Join(json.Unmarshal(raw, &bad), json.Unmarshal(raw, started))
	}
	switch {
	case ctx.Err() != nil:
		return errors.Join(ctx.Err(), ignoreExit(cmd.Wait()))
	case err != nil:
		werr := cmd.Wait()
		return fmt.Errorf("the deployment's owner ended (%w): %s", werr, lastLog(log))
	case bad.Error != "":
		_ = cmd.Wait() // it has said why, and takes down what it made
		return errors.New(bad.Error)
	}
	return cmd.Process.Release()
}

// await reads what an owner says until it says what became of its order.
func await(status io.Reader, working func(json.RawMessage)) (json.RawMessage, error) {
	for said := json.NewDecoder(status); ; {
		var raw json.RawMessage
		if err := said.Decode(&raw); err != nil {
			return nil, err
		}
		var w struct {
			Work json.RawMessage `json:"under_way"`
		}
		if json.Unmarshal(raw, &w) != nil || w.Work == nil {
			return raw, nil
		}
		if working != nil {
			working(w.Work)
		}
	}
}

func ignoreExit(err error) error {
	if _, ok := errors.AsType[*exec.ExitError](err); ok {
		return nil
	}
	return err
}

// lastLog is the end of what an owner wrote, by its open file: the folder may be gone.
func lastLog(log *os.File) string {
	const told = 2000
	info, err := log.Stat()
	if err != nil {
		return "it wrote nothing that can be read"
	}
	b := make([]byte, told)
	n, err := log.ReadAt(b, max(0, info.Size()-told))
	if text := strings.TrimSpace(string(b[:n])); text != "" {
		return text
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "it wrote nothing that can be read"
	}
	return "it wrote nothing"
}

// Client speaks to the owner of a deployment.
type Client struct {
	head  Head
	noun  string
	alive func() bool
	http  *http.Client
}

// Client answers one for a living deployment. Close it.
func (f *Folder[R, P]) Client(r R) *Client {
	h := *P(&r).head()
	return &Client{h, f.words.Noun, func() bool { return f.alive(h.key) }, &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return unixsocket.Dial(ctx, f.At(h.key, socketFile))
		},
	}}}
}

// Close drops the connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Stop ends the deployment and waits until nothing of it is left.
func (c *Client) Stop(ctx context.Context) error {
	err := c.Ask(ctx, http.MethodPost, "stop", nil, nil)
	// An owner that ends at once may take its answer with it.
	ending := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	if err != nil && !ending && c.alive() {
		return err
	}
	for c.alive() {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Ask sends a request to the owner: what Handle serves at a path. in and out may be nil.
func (c *Client) Ask(ctx context.Context, verb, what string, in, out any) error {
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
			return fmt.Errorf("%s %s %w any more", c.noun, c.head.Instance, ErrNotFound)
		}
		return fmt.Errorf("ask the owner of %s: %w", c.head.Instance, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("ask the owner of %s: %w", c.head.Instance, err)
	}
	if resp.StatusCode != http.StatusOK {
		var e failed
		if json.Unmarshal(b, &e) != nil || e.Error == "" {
			e.Error = fmt.Sprintf("the owner of %s answered status %d", c.head.Instance, resp.StatusCode)
		}
		return errors.New(e.Error)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(b, out)
}
