package owner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
)

// Standing is a deployment that stands.
type Standing[R any] struct {
	Record  R
	Started any          // what status is told
	Control http.Handler // what the socket serves from now on, beside /stop
	Outside http.Handler // what is served at the listener that up was given; nil closes that
}

// failed is what status is told of a deployment that could not be made.
type failed struct {
	Error string `json:"error"`
}

// Own is the life of the process that holds the deployment of a key. up makes it, and is given a listener of the loopback; Own tells the caller's Status of it and holds it
// until it is told to stop, its time is up or ctx ends, and ends too when the caller goes before it was told. down takes down what up made, also when that failed. The error is that of the deployment, which status
// was told too, or of its end.
func (f *Folder[R, P]) Own(ctx context.Context, key string, c *Caller, up func(ctx context.Context, outside net.Addr) (Standing[R], error), down func(ctx context.Context)) error {
	lock, err := atomicfile.NewHeldLock(f.At(key, lockFile)) // whoever lists deployments looks by locking
	if err != nil {
		return fmt.Errorf("hold the deployment's folder: %w", err)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	leash := c.hold(stop)
	defer leash.drop()
	defer func() {
		down(ctx)
		_ = os.Remove(f.At(key, recordFile)) // first: what has no lock and a record counts as left behind
		_ = os.RemoveAll(f.At(key, "."))
		_ = lock.Unlock()
	}()
	control := desk{words: f.words, stop: func() { stop(errStopped) }}
	closeDesk, err := control.open(ctx, f.At(key, socketFile))
	if err != nil {
		return errors.Join(err, c.tell(failed{err.Error()}))
	}
	defer closeDesk()
	outside, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(err, c.tell(failed{err.Error()}))
	}
	s, err := up(ctx, outside.Addr())
	if cause := context.Cause(ctx); errors.Is(cause, errStopped) || errors.Is(cause, errAlone) {
		err = cause
	}
	if err == nil && s.Outside != nil {
		defer serve(outside, s.Outside)()
	} else {
		outside.Close()
	}
	if err != nil {
		return errors.Join(err, c.tell(failed{err.Error()}))
	}
	control.ready.Store(&s.Control)
	leash.let()
	if err := errors.Join(f.Write(key, s.Record), c.tell(s.Started)); err != nil {
		return err
	}
	end := time.NewTimer(time.Until(P(&s.Record).head().Expires))
	defer end.Stop()
	select {
	case <-ctx.Done():
	case <-end.C:
	}
	return nil
}

// headerTimeout bounds how long a client may take to send the head of a request.
const headerTimeout = 10 * time.Second

// maxOrder bounds what the socket takes.
const maxOrder = 64 << 20

// Handle is what a socket does with the JSON of an In; the answer is that of an Out, or {"error": text} with another status than 200.
func Handle[In, Out any](f func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		var in In
		if err := json.NewDecoder(http.MaxBytesReader(rw, r.Body, maxOrder)).Decode(&in); err != nil {
			Answer(rw, nil, errors.New("the request can't be read"))
			return
		}
		out, err := f(r.Context(), in)
		Answer(rw, out, err)
	}
}

// Answer writes the answer of a socket.
func Answer(rw http.ResponseWriter, v any, err error) {
	rw.Header().Set("Content-Type", "application/json")
	if err != nil {
		rw.WriteHeader(http.StatusBadRequest)
		v = failed{err.Error()}
	}
	_ = json.NewEncoder(rw).Encode(v) // who asked may be gone
}
