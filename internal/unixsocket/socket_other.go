//go:build !linux

package unixsocket

import (
	"context"
	"net"
)

// Listen listens at a path, where no file may be.
func Listen(ctx context.Context, path string) (net.Listener, error) {
	return new(net.ListenConfig).Listen(ctx, "unix", path)
}

// Dial connects to what listens at a path.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", path)
}
