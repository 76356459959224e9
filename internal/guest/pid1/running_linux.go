package pid1

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"agentenv.internal/agentenv/internal/guest"
)

// running is a command under way, from its start to the answer. Its end, its time-out and the end of its client each come from a goroutine of
// their own; the first one decides how it is answered. Most commands just end: then it is the reaper that answers, with nothing woken for it.
type running struct {
	s        *server
	c        *guest.Conn
	request  *guest.Request
	run      started
	begin    time.Time
	kills    int64 // of the box before it
	refused  int64
	timeout  *guest.Call   // nil: it has none
	end      chan ending   // for who stops it
	ended    atomic.Bool   // by itself
	answered chan struct{} // closed once its client has been told

	mu       sync.Mutex // held while it is being started, too
	stopping bool       // somebody kills it
}

// start starts the command. files are its stdio, which it has then. Where x is stopping after an error, it runs and is to be killed.
func (x *running) start(p *program, files *[]*os.File, term *terminal) (err error) {
	c := x.request.Command
	x.mu.Lock()
	defer x.mu.Unlock()
	x.s.still.RLock()
	x.run, err = x.s.spawner.start(p, x.over)
	x.s.still.RUnlock()
	if err != nil {
		if err := p.as.refused(err); err != nil {
			return err
		}
		return &fs.PathError{Op: "start", Path: c.Argv[0], Err: err}
	}
	x.s.limit(x.run.pid)
	// The command holds them now; a copy here would keep its readers from the end of file.
	for _, f := range *files {
		f.Close()
	}
	*files = nil
	if term != nil {
		if err := term.handOver(x.c); err != nil { // nobody is there to see it
			x.stopping = true
			return err
		}
	}
	if c.Timeout > 0 {
		x.timeout = x.s.later.After(c.Timeout, x.expire)
	}
	return nil
}

// over is called by the reaper when the command has ended.
func (x *running) over(e ending) {
	x.mu.Lock()
	if x.stopping {
		x.mu.Unlock()
		x.end <- e
		return
	}
	x.ended.Store(true)
	x.mu.Unlock()
	if x.timeout != nil {
		x.timeout.Stop()
	}
	if !x.request.Command.KillTree && e.status.Exited() && e.status.ExitStatus() == 0 {
		x.tell(e, &guest.Exit{})
		return
	}
	go func() { // it may take a while to look for what it left, and at the disk
		exit := &guest.Exit{}
		if x.request.Command.KillTree {
			exit.Left = x.s.mustKill(&x.run)
		}
		x.tell(e, exit)
	}()
}

// stop tells whether the caller is to end the command: nobody does, and it hasn't ended.
func (x *running) stop() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.stopping || x.ended.Load() {
		return false
	}
	x.stopping = true
	return true
}

// kill ends the command and all that it started.
func (x *running) kill() {
	x.s.mustKill(&x.run)
	<-x.end
	x.run.mark.close()
}

// expire ends the command when its time is up.
func (x *running) expire() {
	if !x.stop() {
		return
	}
	n := x.s.mustKill(&x.run)
	x.tell(<-x.end, &guest.Exit{TimedOut: true, Left: max(n-1, 0)}) // all but the command itself
}

// hangup ends the command when its client has gone, and waits until it is answered.
func (x *running) hangup() {
	if !x.stop() {
		<-x.answered
		return
	}
	if x.timeout != nil {
		x.timeout.Stop()
	}
	x.kill()
	_ = x.c.SendJSON(guest.FrameReply, &guest.Reply{Fault: guest.FaultOf(errors.New("stopped by its caller"))}) // for one that only ended its half
}

// tell answers the client, who may have gone.
func (x *running) tell(e ending, exit *guest.Exit) {
	x.run.mark.close()
	exit.CPU = e.cpu
	if e.status.Signaled() {
		exit.Signal = int(e.status.Signal())
	} else {
		exit.Code = e.status.ExitStatus()
	}
	exit.Elapsed = time.Since(x.begin)
	exit.OOM, exit.PidsFull = x.s.memory.kills() > x.kills, x.s.refused.read() > x.refused
	exit.DiskFull = !exit.OK() && diskFull()
	x.ended.Store(true) // the client may ask for more as soon as it is told
	_ = x.c.SendJSON(guest.FrameReply, &guest.Reply{Exit: exit, Kept: x.request.Keep})
	close(x.answered)
}
