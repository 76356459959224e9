package deploy

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
)

const (
	// toldOutput is how much of a server's last output its errors repeat, in bytes.
	toldOutput = 4 << 10
	// stopGrace is how long a server that is stopped may take before its box takes it down.
	stopGrace = 5 * time.Second
)

// server is one program that serves in a box, started and, when it dies, started again. The last of its output is kept for errors, and more of it in the
// log of its box.
type server struct {
	name string
	box  guest.Box
	cmd  guest.Command
	out  tail
	log  *outputLog // nil: it is kept nowhere else

	mu      sync.Mutex
	cancel  context.CancelFunc // of the process that runs; nil when none does
	ended   chan struct{}      // closed when that process has ended
	why     error              // how the last one ended; nil before
	began   time.Time
	stopped bool
	over    chan struct{} // closed by stop
	watcher sync.WaitGroup
}

// newServer answers a server that isn't started.
func newServer(name string, box guest.Box, cmd guest.Command) *server {
	return &server{name: name, box: box, cmd: cmd, over: make(chan struct{})}
}

// start begins the program. It answers at once: whether the program serves is for its card to tell. The program outlives ctx; stop ends it.
func (s *server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return fmt.Errorf("server %s was stopped", diag.Repr(s.name))
	}
	if s.running() {
		return nil
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	s.cancel, s.ended, s.why, s.began = cancel, ended, nil, time.Now()
	go func() {
		defer close(ended)
		// What a pipe of Output keeps is not looked at: the tail sees both streams in the order they came.
		r, err := guest.Output(run, s.box, s.cmd, guest.Limits{Stdout: 1, Stderr: 1, Live: func(_ bool, p []byte) { s.wrote(p) }})
		s.mu.Lock()
		defer s.mu.Unlock()
		s.why = ending(r.Exit, err)
		cancel()
	}()
	return nil
}

// wrote keeps what the program has written.
func (s *server) wrote(p []byte) {
	s.out.add(p)
	if s.log != nil {
		_, _ = s.log.Write(p) // it never fails
	}
}

// running is called with mu held.
func (s *server) running() bool {
	if s.ended == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// ending says in words how a process ended.
func ending(e guest.Exit, err error) error {
	switch {
	case err != nil:
		return err
	case e.OOM:
		return errors.New("it was killed because the sandbox ran out of memory")
	case e.Signal != 0:
		return fmt.Errorf("it was ended by signal %d", e.Signal)
	default:
		return fmt.Errorf("it ended with exit code %d", e.Code)
	}
}

// dead is closed when the program that was started last has ended; why tells how then.
func (s *server) dead() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// Pauses between the starts of a program that dies again and again, and how long one has to live to count as sound.
const (
	firstPause = time.Second
	maxPause   = 30 * time.Second
	soundAfter = time.Minute
)

// keepUp starts the program again whenever it dies, at once the first time, until stop. Call it once, when the server has answered.
func (s *server) keepUp(ctx context.Context, died func(why error)) {
	ctx = context.WithoutCancel(ctx)
	s.watcher.Go(func() {
		var pause time.Duration
		for {
			select {
			case <-s.dead():
			case <-s.over:
				return
			}
			s.mu.Lock()
			why, lived := s.why, time.Since(s.began)
			s.mu.Unlock()
			died(why)
			if lived >= soundAfter {
				pause = 0
			}
			if !s.sleep(pause) || s.start(ctx) != nil {
				return
			}
			pause = min(max(2*pause, firstPause), maxPause)
		}
	})
}

// sleep is false when stop came first.
func (s *server) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.over:
		return false
	}
}

// startGrace is how long a program that was just started is left alone although it does not answer yet.
const startGrace = 30 * time.Second

// restart ends a program that runs and does not answer, so that keepUp starts it again. One that was started a moment ago is left alone, and so is a dead one.
func (s *server) restart(ctx context.Context) error {
	s.mu.Lock()
	cancel, ended, young := s.cancel, s.ended, time.Since(s.began) < startGrace
	s.mu.Unlock()
	if cancel == nil || young {
		return nil
	}
	cancel()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// stop ends the program for good and waits for it, at most for stopGrace: the end of its box is its own in any case.
func (s *server) stop() {
	s.mu.Lock()
	again := s.stopped
	s.stopped = true
	s.mu.Unlock()
	if !again {
		close(s.over)
	}
	s.watcher.Wait()
	s.mu.Lock()
	cancel, ended := s.cancel, s.ended
	s.mu.Unlock()
	if cancel == nil {
		if s.log != nil {
			_ = s.log.Close()
		}
		return
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(stopGrace):
	}
	if s.log != nil {
		_ = s.log.Close() // what can't be written is not kept
	}
}

// trouble is err, about this server, with how it ended and the last that it wrote.
func (s *server) trouble(err error) error {
	s.mu.Lock()
	why := s.why
	s.mu.Unlock()
	if why != nil {
		err = why
		if errors.Is(why, context.Canceled) {
			err = errors.New("it was stopped")
		}
	}
	text := s.out.last(toldOutput)
	if text == "" {
		return fmt.Errorf("server %s: %w; it wrote nothing", diag.Repr(s.name), err)
	}
	return fmt.Errorf("server %s: %w; the last that it wrote:\n%s", diag.Repr(s.name), err, text)
}

// tail keeps the newest bytes that are added, at least toldOutput of them. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	buf []byte
	cut bool
}

func (t *tail) add(p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - toldOutput; over > 0 && len(t.buf) > 2*toldOutput {
		t.buf, t.cut = append(t.buf[:0], t.buf[over:]...), true
	}
}

// last is the end of what was added, at most n bytes, in whole lines where it was cut.
func (t *tail) last(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, cut := t.buf, t.cut
	if len(b) > n {
		b, cut = b[len(b)-n:], true
	}
	text := strings.ToValidUTF8(string(b), "�")
	if _, rest, ok := strings.Cut(text, "\n"); cut && ok {
		text = rest
	}
	return strings.TrimSpace(text)
}
