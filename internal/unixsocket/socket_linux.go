package unixsocket

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// maxSocket is the longest path that an address of a unix socket holds.
const maxSocket = 107

// short runs f with a path to the same file that an address can hold, however deep the state root is.
func short[T any](path string, f func(path string) (T, error)) (T, error) {
	if len(path) <= maxSocket {
		return f(path)
	}
	var none T
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return none, err
	}
	defer dir.Close()
	return f(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
}

// Listen listens at a path, where no file may be.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	return short(path, func(path string) (net.Listener, error) {
		l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
		if u, ok := l.(*net.UnixListener); ok {
			u.SetUnlinkOnClose(false) // who made it removes it, and a short path may not lead there any more
		}
		return l, err
	})
}

// Dial connects to what listens at a path.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	return short(path, func(path string) (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "unix", path) })
}
