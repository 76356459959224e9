package plugin

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"

	"agentenv.internal/agentenv/sdk/plugin/stream"
)

func (b *boxServer) dial(ctx context.Context, in SandboxParams, box Sandbox) error {
	c, err := box.Dial(ctx, in.Network, in.Address)
	if err != nil {
		return err
	}
	s, err := b.streams.Take(in.Stream)
	if err != nil {
		return errors.Join(err, c.Close())
	}
	b.goes(func() { join(s, c) })
	return nil
}

func (b *boxServer) listen(ctx context.Context, in SandboxParams, box Sandbox) (string, error) {
	l, err := box.Listen(ctx, in.Network, in.Address)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	twice := b.closed || b.listeners[in.Listener] != nil
	if !twice {
		b.listeners[in.Listener] = l
	}
	b.mu.Unlock()
	if twice {
		return "", errors.Join(errors.New("the listener's name is taken"), l.Close())
	}
	b.goes(func() {
		defer func() {
			b.mu.Lock()
			delete(b.listeners, in.Listener)
			b.mu.Unlock()
		}()
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s := b.streams.Make()
			told := SandboxAccepted{Listener: in.Listener, Stream: s.Name(), Address: c.RemoteAddr().String()}
			if b.peer.Notify(NotifySandboxAccepted, told) != nil {
				s.Drop()
				_ = c.Close()
				return
			}
			b.goes(func() { join(s, c) })
		}
	})
	return l.Addr().String(), nil
}

// join carries bytes between a stream and a connection until both directions have ended, and closes both. The end of one direction is passed on.
func join(s *stream.Stream, c net.Conn) {
	half := func(c net.Conn) {
		if h, ok := c.(interface{ CloseWrite() error }); ok {
			_ = h.CloseWrite()
			return
		}
		_ = c.Close()
	}
	var work sync.WaitGroup
	work.Go(func() {
		if _, err := s.WriteTo(c); err != nil {
			_ = c.Close() // nobody is there any more
			return
		}
		half(c)
	})
	_, err := io.Copy(s, c)
	_ = s.CloseWith(streamFault(err))
	if err != nil {
		_ = s.CloseRead()
	}
	work.Wait()
	_ = errors.Join(s.Close(), c.Close())
}
