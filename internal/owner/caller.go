package owner

import (
	"context"
	"encoding/json"
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
	Status io.Writer // is told of work that is under way, and once what became of it
	// Life ends when the caller is gone. Own closes it.
	Life io.ReadCloser

	mu   sync.Mutex // of Status
	told bool       // what became of it
}

// underWay is what the caller is told of work.
type underWay struct {
	Work any `json:"under_way"`
}

// Working tells the caller of work that the deployment waits for. It may be called from several goroutines. Who has gone is told nothing, which is no error.
func (c *Caller) Working(w any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.told {
		_ = json.NewEncoder(c.Status).Encode(underWay{w})
	}
}

// tell tells the caller what became of its order.
func (c *Caller) tell(s any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = true
	return json.NewEncoder(c.Status).Encode(s)
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
	return &Caller{Status: os.NewFile(statusFD, "status"), Life: os.NewFile(lifeFD, "life")}, nil
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
