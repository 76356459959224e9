package owner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
)

// errAlone is the cause of an end that nobody asked for.
var errAlone = errors.New("the command that waited for it is gone")

// Caller is who ordered a deployment and waits for it.
type Caller struct {
	Status io.Writer // is told once what became of it
	// Life ends when the caller is gone. Own closes it.
	Life io.ReadCloser
}

// Descriptors that Start gives an owner.
const (
	statusFD = 3
	lifeFD   = 4
)

// Parent is the caller of a process that Start has started.
func Parent() (*Caller, error) {
	if err := syscall.SetNonblock(lifeFD, true); err != nil { // so that reading it can be ended
		return nil, fmt.Errorf("this is a command that others start: %w", err)
	}
	return &Caller{os.NewFile(statusFD, "status"), os.NewFile(lifeFD, "life")}, nil
}

// leash ends what is under way when the caller is gone.
type leash struct {
	c     *Caller
	mu    sync.Mutex
	loose bool
	wg    sync.WaitGroup
}

// hold ends what stop ends when the caller goes before the deployment is told of: nobody would know of it.
func (c *Caller) hold(stop context.CancelCauseFunc) *leash {
	l := &leash{c: c}
	l.wg.Go(func() {
		_, _ = io.Copy(io.Discard, c.Life) // nothing comes: it ends
		l.mu.Lock()
		defer l.mu.Unlock()
		if !l.loose {
			stop(errAlone)
		}
	})
	return l
}

// let goes on alone from now.
func (l *leash) let() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.loose = true
}

func (l *leash) drop() {
	l.let()
	_ = l.c.Life.Close()
	l.wg.Wait()
}
