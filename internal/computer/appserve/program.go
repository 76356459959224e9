package appserve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"time"

	"agentenv.internal/agentenv/internal/computer/appdir"
	"agentenv.internal/agentenv/internal/sleep"
	"agentenv.internal/agentenv/internal/subprocess"
	"agentenv.internal/agentenv/sdk/computer/app"
	"agentenv.internal/agentenv/sdk/wire"
)

const (
	killAfter = 10 * time.Second      // SIGTERM's grace
	pipeTime  = time.Second           // for which output of a program that ended is waited for
	askEvery  = 20 * time.Millisecond // at first, then ever more seldom
	askSeldom = 500 * time.Millisecond
	cardTime  = 5 * time.Second
)

// command is a program of an app's folder, which it starts in.
func command(ctx context.Context, folder string, argv, environ []string) (*exec.Cmd, error) {
	program, err := app.FindProgram(folder, argv[0])
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), program)
	cmd.Args, cmd.Dir, cmd.Env, cmd.WaitDelay = argv, folder, environ, pipeTime
	subprocess.Own(cmd)
	return cmd, nil
}

// run runs a program to its end. When ctx ends first, its group is told to end, and killed when it doesn't; either way nothing of the group is left.
func run(ctx context.Context, cmd *exec.Cmd) error {
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s can't be started: %w", cmd.Args[0], errors.Unwrap(err))
	}
	done := make(chan struct{})
	var how error
	go func() { // run waits for it
		how = subprocess.Wait(cmd)
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		subprocess.Stop(cmd, done, 0, killAfter)
		return ctx.Err()
	}
	if errors.Is(how, exec.ErrWaitDelay) { // it ended well, and somebody holds its output
		return nil
	}
	return how
}

// serveOwn runs the server that an app brings, at the app's socket, until ctx ends.
func serveOwn(ctx context.Context, a *appdir.App, c Config) error {
	if c.Port >= 0 {
		return fmt.Errorf("serve the app %s: its own server serves at a socket alone", a.Name)
	}
	if err := app.FreeSocket(ctx, c.Socket); err != nil {
		return fmt.Errorf("serve the app %s: %w", a.Name, err)
	}
	cmd, err := command(ctx, c.Folder, a.Server, append(environ(a, c), app.SocketVariable+"="+c.Socket))
	if err != nil {
		return fmt.Errorf("serve the app %s: %w", a.Name, err)
	}
	cmd.Stdout, cmd.Stderr = c.Output, c.Output
	asking, stop := context.WithCancel(ctx)
	asked := make(chan struct{})
	go func() { // ends with the server, or when it answers
		defer close(asked)
		if answers(asking, c.Socket) {
			c.Serving("unix:" + c.Socket)
		}
	}()
	err = run(ctx, cmd)
	stop()
	<-asked
	if ctx.Err() != nil {
		return nil
	}
	if err == nil {
		err = errors.New("it ended by itself")
	}
	return fmt.Errorf("the app %s's own server: %w", a.Name, err)
}

// answers waits until a server answers its card at a socket, or ctx ends.
func answers(ctx context.Context, socket string) bool {
	t := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}
	defer t.CloseIdleConnections()
	for wait := askEvery; ; wait = min(2*wait, askSeldom) {
		if card(ctx, t) {
			return true
		}
		if sleep.For(ctx, wait) != nil {
			return false
		}
	}
}

func card(ctx context.Context, t http.RoundTripper) bool {
	ctx, cancel := context.WithTimeout(ctx, cardTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+wire.CardPath, nil)
	if err != nil {
		return false
	}
	resp, err := t.RoundTrip(r)
	if err != nil {
		return false
	}
	_ = resp.Body.Close() // its status is enough
	return resp.StatusCode == http.StatusOK
}
