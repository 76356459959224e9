package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"
)

// maxSocket is how many bytes the path of a Unix socket may have.
const maxSocket = 107

// Serve opens an app and serves it at its socket until ctx ends.
func Serve(ctx context.Context, a App, o Options) error {
	s, err := Open(ctx, a, o)
	if err != nil {
		return err
	}
	l, err := s.Listen(ctx)
	if err != nil {
		return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
	}
	return s.ServeListener(ctx, l)
}

// Listen listens at the app's socket, which only the user can reach. A socket that nobody answers at is replaced.
func (s *Server) Listen(ctx context.Context) (net.Listener, error) {
	l, err := listen(ctx, s.socket)
	if err != nil {
		return nil, fmt.Errorf("serve the app %s: %w", s.app.Name, err)
	}
	return l, nil
}

func listen(ctx context.Context, socket string) (net.Listener, error) {
	if err := FreeSocket(ctx, socket); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(socket, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// FreeSocket makes a place ready for a server's socket: its folder is there, and what an earlier server left is not. One that somebody answers at is an
// error, and so is a path that no socket can have, or a file.
func FreeSocket(ctx context.Context, socket string) error {
	if len(socket) > maxSocket {
		return fmt.Errorf("%s has more than the %d bytes that the path of a socket may have: set %s to a shorter one", socket, maxSocket, SocketVariable)
	}
	if err := os.MkdirAll(filepath.Dir(socket), 0o700); err != nil {
		return err
	}
	st, err := os.Lstat(socket)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if st.Mode().Type() != os.ModeSocket {
		return fmt.Errorf("%s is there and no socket", socket)
	}
	if c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", socket); err == nil {
		_ = c.Close() // nothing was said
		return fmt.Errorf("another server answers at %s", socket)
	}
	return os.Remove(socket)
}

// ServeListener is Serve of an app that is open, on a listener, which it closes as it closes the app.
func (s *Server) ServeListener(ctx context.Context, l net.Listener) error {
	err := s.env.ServeListener(ctx, l)
	return errors.Join(err, s.Close(context.WithoutCancel(ctx)))
}
