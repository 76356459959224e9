package guest

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"time"
)

// Size is a terminal's, in characters.
type Size struct{ Rows, Cols uint16 }

// opened hands the one file to Open.
func (t *TTY) opened(files []*os.File) error {
	if len(files) != 1 || t.Open == nil {
		closeAll(files)
		return errFrame
	}
	t.Open(files[0])
	return nil
}

// recvReply reads the reply, and before it the descriptor that early takes, if it is set.
func (c *Conn) recvReply(reply *Reply, early func([]*os.File) error) error {
	for {
		kind, payload, err := c.Recv()
		switch {
		case err != nil:
			return err
		case kind == FrameFile && early != nil:
			if err := early(c.TakeFiles()); err != nil {
				return err
			}
			early = nil
		case kind == FrameReply:
			if err := json.Unmarshal(payload, reply); err != nil {
				return errors.Join(errFrame, err)
			}
			return nil
		default:
			return errFrame
		}
	}
}

// Terminal is the caller's side of a command with a terminal.
type Terminal struct {
	In    *os.File    // keys, from the read end of a pipe, so that a read can be ended; nil: none are ever pressed
	Out   io.Writer   // what the command shows
	Size  Size        // at the start
	Sizes <-chan Size // later sizes; nil: none
}

// Attach runs c with a terminal in b and connects it with t until the command has ended and what it wrote is shown.
func Attach(ctx context.Context, b Box, c Command, t Terminal) (Exit, error) {
	a := &attached{t: t, ended: make(chan struct{})}
	c.TTY = &TTY{Rows: t.Size.Rows, Cols: t.Size.Cols, Open: a.open}
	exit, err := b.Exec(ctx, c, [3]*os.File{})
	close(a.ended)
	if a.master == nil {
		return exit, err
	}
	until := time.Now().Add(drainGrace) // a daemon may hold the terminal
	if err != nil {
		until = time.Now()
	}
	a.master.SetReadDeadline(until)
	<-a.shown
	if a.t.In != nil {
		a.t.In.SetReadDeadline(time.Now())
	}
	a.master.SetWriteDeadline(time.Now())
	a.others.Wait()
	a.master.Close()
	return exit, err
}

type attached struct {
	t      Terminal
	master *os.File
	ended  chan struct{}
	shown  chan struct{}
	others sync.WaitGroup // keys and sizes
}

func (a *attached) open(master *os.File) {
	a.master = pollable(master)
	a.shown = make(chan struct{})
	go func() {
		defer close(a.shown)
		_, _ = io.Copy(struct{ io.Writer }{a.t.Out}, struct{ io.Reader }{a.master}) // its end is an error of the device
	}()
	a.others.Go(a.resize)
	if a.t.In != nil {
		a.t.In.SetReadDeadline(time.Time{}) // an earlier command may have ended a read
		a.others.Go(func() { _, _ = io.Copy(struct{ io.Writer }{a.master}, struct{ io.Reader }{a.t.In}) })
	}
}

func (a *attached) resize() {
	for {
		select {
		case <-a.ended:
			return
		case s, ok := <-a.t.Sizes:
			if !ok {
				return
			}
			_ = Resize(a.master, s) // it has gone with the command, or takes it
		}
	}
}
