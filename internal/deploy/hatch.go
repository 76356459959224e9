package deploy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/gateway/front"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sleep"
	"agentenv.internal/agentenv/internal/unixsocket"
)

// TakeOver is a person's hand on a computer of a run, as an Observer is told of it: when it begins, and again when it ends.
type TakeOver struct {
	ID       string // of this one, within its run
	Env      string
	Instance string
	Name     string // environment_name of the computer
	By       string // front.Console
	Ended    bool
	Inputs   int64 // that were done; of one that has ended
}

// ErrNoHand: nothing can put on record what a person does on a computer, so nobody may do anything there.
var ErrNoHand = errors.New("can only be watched now: it is still starting, or what deployed it is gone or of an older version, and nothing would have what you do on record")

// hatch is where consoles reach the mouse and the keyboard of one computer: a unix socket in a folder of the user's own, outside of every sandbox. A connection
// is one person's hand, from its first line to its end. Each line is a call, {"tool", "arguments"}, and each answer one, {"result"} or {"error"}.
type hatch struct {
	envs   *Envs
	env    *Env
	server *Server
	path   string
	limit  time.Duration // of a call
	l      net.Listener
	ctx    context.Context //nolint:containedctx // the hatch's life
	stop   context.CancelFunc
	wg     sync.WaitGroup
}

// hatchPath is the socket of a computer's sandbox.
func hatchPath(dir, box string) string { return filepath.Join(dir, fileName(box)) }

// openHatches opens those of an environment's computers. A computer without one can only be watched, so a fault is told and ends nothing.
func (e *Envs) openHatches(ctx context.Context, v *Env) {
	dir := e.maker.options.Hands
	for _, s := range v.Servers {
		if s.computer == nil || s.away != nil || dir == "" {
			continue
		}
		h, err := e.openHatch(ctx, v, s, dir)
		if err != nil {
			e.log.Warn("a computer can only be watched", "env", v.ID, "computer", s.Name, "error", err)
			continue
		}
		v.hatches = append(v.hatches, h)
	}
}

func (e *Envs) openHatch(ctx context.Context, v *Env, s *Server, dir string) (*hatch, error) {
	if err := atomicfile.MkdirAll(dir); err != nil {
		return nil, err
	}
	sweepHatches(ctx, dir)
	h := &hatch{envs: e, env: v, server: s, path: hatchPath(dir, s.Box.ID), limit: handTime}
	h.ctx, h.stop = context.WithCancel(context.WithoutCancel(ctx))
	var err error
	if h.l, err = unixsocket.Listen(h.ctx, h.path); err != nil {
		h.stop()
		return nil, err
	}
	if err = os.Chmod(h.path, 0o600); err != nil {
		h.close()
		return nil, err
	}
	h.wg.Go(h.serve)
	return h, nil
}

// hatchGrace is how young a socket must be to be taken for one that isn't listened at yet.
const hatchGrace = time.Minute

// sweepHatches removes sockets that killed processes left.
func sweepHatches(ctx context.Context, dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		info, err := e.Info()
		if err != nil || e.Type() != fs.ModeSocket || time.Since(info.ModTime()) < hatchGrace {
			continue
		}
		if c, err := unixsocket.Dial(ctx, path); err == nil {
			_ = c.Close()
		} else if errors.Is(err, syscall.ECONNREFUSED) { // whatever else keeps this process from it says nothing of who listens
			_ = os.Remove(path)
		}
	}
}

func (h *hatch) serve() {
	for {
		c, err := h.l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, for one: that passes
			if sleep.For(h.ctx, acceptPause) != nil {
				return
			}
			continue
		}
		h.wg.Go(func() {
			defer c.Close()
			stop := context.AfterFunc(h.ctx, func() { _ = c.Close() })
			defer stop()
			h.hold(c)
		})
	}
}

// close ends the hands that are under way, and waits until that is on record. The gateway must still stand.
func (h *hatch) close() {
	h.stop()
	_ = h.l.Close()
	h.wg.Wait()
	_ = os.Remove(h.path)
}

// Lines of a hatch.
type (
	hatchCall struct {
		Tool      string          `json:"tool"`
		Arguments json.RawMessage `json:"arguments"`
	}
	hatchAnswer struct {
		Result json.RawMessage `json:"result,omitempty"`
		Error  string          `json:"error,omitempty"`
	}
)

const (
	mostLine    = 1 << 20          // of a call
	handTime    = 30 * time.Second // of a call, as long as a console waits: nothing is done for who has given up, and no agent waits for it longer
	acceptPause = 50 * time.Millisecond
)

// hold is one person's hand.
func (h *hatch) hold(c net.Conn) {
	in := bufio.NewScanner(c)
	in.Buffer(nil, mostLine)
	out := json.NewEncoder(c)
	var hand *front.Hand
	t := TakeOver{Env: h.env.ID, Instance: h.env.Instance, Name: h.server.Name, By: front.Console}
	defer func() {
		if hand != nil {
			h.release(hand, t)
		}
	}()
	for in.Scan() {
		if hand == nil { // whoever only looks whether there is a hatch takes nothing over
			var err error
			if hand, err = h.take(&t); err != nil {
				_ = out.Encode(hatchAnswer{Error: err.Error()})
				return
			}
		}
		var call hatchCall
		err := json.Unmarshal(in.Bytes(), &call)
		if err != nil {
			err = errors.New("the call can't be read")
		}
		var a hatchAnswer
		if err == nil {
			ctx, cancel := context.WithTimeout(h.ctx, h.limit)
			a.Result, err = hand.Call(ctx, call.Tool, call.Arguments)
			cancel()
		}
		if err != nil {
			a = hatchAnswer{Error: err.Error()}
		}
		if out.Encode(a) != nil {
			return
		}
	}
}

// take begins a hand, once that is on record in the run too.
func (h *hatch) take(t *TakeOver) (*front.Hand, error) {
	hand, err := h.env.Gateway.TakeOver(h.server.Name, t.By)
	if err != nil {
		return nil, err
	}
	t.ID = h.env.Instance + " " + hand.ID()
	if o := h.envs.boxes.policy(h.env.Run).Observer; o != nil {
		if err := o.EnvTaken(h.env.Step, *t); err != nil {
			_, endErr := hand.End()
			return nil, errors.Join(fmt.Errorf("the run can't have on record that a person takes over: %w", err), endErr)
		}
	}
	h.envs.log.Warn("a person takes over a computer: what comes of it isn't the agent's alone", "env", t.Env, "computer", t.Name, "by", t.By)
	return hand, nil
}

func (h *hatch) release(hand *front.Hand, t TakeOver) {
	var err error
	t.Ended = true
	if t.Inputs, err = hand.End(); err != nil {
		h.envs.log.Warn("the log of calls doesn't have that a person gave a computer back", "env", t.Env, "computer", t.Name, "error", err)
	}
	if o := h.envs.boxes.policy(h.env.Run).Observer; o != nil {
		if err := o.EnvTaken(h.env.Step, t); err != nil {
			h.envs.log.Warn("the run doesn't have on record that a person gave a computer back", "env", t.Env, "computer", t.Name, "error", err)
		}
	}
}

// hatchClient is a console's side of a connection. One call at a time.
type hatchClient struct {
	c   net.Conn
	in  *json.Decoder
	out *json.Encoder
}

func dialHatch(ctx context.Context, path string) (*hatchClient, error) {
	c, err := unixsocket.Dial(ctx, path)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("the computer %w", ErrNoHand)
	}
	return &hatchClient{c, json.NewDecoder(bufio.NewReader(c)), json.NewEncoder(c)}, nil
}

// call calls a tool; broken tells that the connection is of no use any more.
func (k *hatchClient) call(ctx context.Context, tool string, args json.RawMessage) (result json.RawMessage, broken bool, err error) {
	stop := context.AfterFunc(ctx, func() { _ = k.c.Close() })
	defer stop()
	var a hatchAnswer
	err = k.out.Encode(hatchCall{tool, args})
	if err == nil {
		err = k.in.Decode(&a)
	}
	switch {
	case err != nil && ctx.Err() != nil:
		return nil, true, ctx.Err()
	case err != nil:
		return nil, true, fmt.Errorf("the computer's gateway is gone: %w", sandbox.ErrNotFound)
	case a.Error != "":
		return nil, false, errors.New(diag.Clean(a.Error))
	}
	return a.Result, false, nil
}
