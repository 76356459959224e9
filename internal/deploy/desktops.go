package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/gateway/child"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/sdk/computer"
)

// Labels of a box with a computer in it, by which other processes of this machine find the computer.
const (
	labelComputer = "agentenv.computer"      // its environment name
	labelEnv      = "agentenv.computer-env"  // the id of the environment that was deployed
	labelStep     = "agentenv.computer-step" // that deployed it; missing where none did
	labelPort     = "agentenv.computer-port" // where its driver listens in the box
)

// tellOf adds to labels what Desktops reads. The map that it is given stays as it is.
func tellOf(labels map[string]string, r EnvRequest, name string, port int) map[string]string {
	labels = maps.Clone(labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelComputer], labels[labelEnv], labels[labelPort] = name, r.Env.ID, strconv.Itoa(port)
	if r.Step != "" {
		labels[labelStep] = r.Step
	}
	return labels
}

// Desktop is a computer that stands on this machine, whichever process deployed it.
type Desktop struct {
	ID       string    // of its sandbox
	Provider string    // of its sandbox
	Name     string    // environment_name
	Env      string    // id of the environment
	Run      string    // that it belongs to
	Step     string    // that deployed it; "" where none did
	Created  time.Time // with its sandbox: its desktop may still be starting
	Expires  time.Time
	port     int
}

// Desktops lists the computers that stand, newest first by provider. A provider that can't be asked is told of in the error, beside the others' computers.
func (d *Deployments) Desktops(ctx context.Context) ([]Desktop, error) {
	out := []Desktop{}
	var errs []error
	for e := range d.providers.All() {
		infos, err := e.Value.List(ctx)
		if err != nil {
			errs = append(errs, fmt.Errorf("list the sandboxes of %s: %w", e.Name, err))
			continue
		}
		for _, i := range infos {
			port, err := strconv.ParseUint(i.Labels[labelPort], 10, 16)
			if i.State != sandbox.StateRunning || i.Labels[labelComputer] == "" || err != nil {
				continue
			}
			out = append(out, Desktop{
				ID: i.ID, Provider: e.Name, Name: i.Labels[labelComputer], Env: i.Labels[labelEnv], Run: i.Run, Step: i.Labels[labelStep], Created: i.Created, Expires: i.Expires, port: int(port),
			})
		}
	}
	return out, errors.Join(errs...)
}

// OpenDesktop reaches a computer by the id of its sandbox; sandbox.ErrNotFound where none stands. hands is the folder of EnvOptions.Hands. The caller closes it.
func (d *Deployments) OpenDesktop(ctx context.Context, id, hands string) (*Screen, error) {
	all, err := d.Desktops(ctx)
	for _, k := range all {
		if k.ID != id {
			continue
		}
		p, ok := d.providers.Get(k.Provider)
		if !ok {
			break
		}
		box, err := p.Value.Connect(ctx, id)
		if err != nil {
			return nil, err
		}
		return newScreen(k, box, hands), nil
	}
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("computer %s: %w", diag.Repr(id), sandbox.ErrNotFound)
}

// Screen is one computer as a person watches it. Watching goes past the gateway, so that neither roles nor records of its run have to do with it; what the
// person does goes through it, and is in both.
type Screen struct {
	box   guest.Box
	base  string
	way   *http.Transport
	hatch string

	mu     sync.Mutex
	hand   *hatchClient // nil until the first Call
	closed bool
}

func newScreen(k Desktop, box guest.Box, hands string) *Screen {
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(k.port))
	return &Screen{
		box: box, base: "http://" + at, hatch: hatchPath(hands, k.ID),
		way: child.Transport(func(ctx context.Context, _, _ string) (net.Conn, error) { return box.Dial(ctx, "tcp", at) }),
	}
}

// Follow is computer.Follow of it.
func (s *Screen) Follow(ctx context.Context, fps float64) iter.Seq2[computer.Piece, error] {
	return computer.Follow(ctx, &http.Client{Transport: s.way}, s.base, fps)
}

// Call calls a tool of its driver, a screenshot or an input, and answers the MCP result. All calls until Close are one person's hand, which the first begins and
// Close ends; the log of the deployment's calls has it, and so has the record of the run that it is of. ErrNoHand where nothing would have it on record.
func (s *Screen) Call(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, net.ErrClosed
	}
	if err := ctx.Err(); err != nil { // of who gave up while others had their turn: that is no reason to give the computer back
		return nil, err
	}
	if s.hand == nil {
		var err error
		if s.hand, err = dialHatch(ctx, s.hatch); err != nil {
			return nil, err
		}
	}
	out, broken, err := s.hand.call(ctx, tool, arguments)
	if broken {
		_ = s.hand.c.Close()
		s.hand = nil
	}
	return out, err
}

// Close lets go of it, once a call that is under way has ended.
func (s *Screen) Close() error {
	s.mu.Lock()
	hand := s.hand
	s.closed, s.hand = true, nil
	s.mu.Unlock()
	if hand != nil {
		_ = hand.c.Close()
	}
	s.way.CloseIdleConnections()
	return s.box.Close()
}
