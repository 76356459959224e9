package console

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sleep"
	"agentenv.internal/agentenv/sdk/computer"
)

// Computers are those that stand on this machine.
type Computers interface {
	Desktops(ctx context.Context) ([]deploy.Desktop, error)
	// Open reaches one by its id; sandbox.ErrNotFound where none stands. The caller closes it.
	Open(ctx context.Context, id string) (Screen, error)
}

// Screen is a computer that is watched, and maybe driven.
type Screen interface {
	Follow(ctx context.Context, fps float64) iter.Seq2[computer.Piece, error]
	Call(ctx context.Context, tool string, arguments json.RawMessage) (json.RawMessage, error)
	Close() error
}

const (
	mostScreens = 8 // that are watched at once
	screenFPS   = 8
	pieceTime   = 20 * time.Second // for a watcher to take a picture; one that doesn't is let go
)

func (s *Server) computerRoutes() []route {
	return []route{
		{pattern: "GET /api/computers", limit: quick, bare: true, do: s.computers},
		{pattern: "POST /api/computers/{id}/input", limit: quick, bare: true, do: s.input},
	}
}

// standing is a computer in a list.
type standing struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	Env      string    `json:"env_id"`
	Run      string    `json:"run_id,omitempty"`
	Step     string    `json:"step_id,omitempty"`
	ByHand   bool      `json:"by_hand"` // deployed by a command, not by a run
	Provider string    `json:"provider"`
	Created  time.Time `json:"created"`
	Expires  time.Time `json:"expires"`
}

// byHand begins the runs of deployments that commands made.
const byHand = "env/"

// computers lists what can be watched.
func (s *Server) computers(ctx context.Context, c *call) (any, error) {
	if err := c.body.done(); err != nil {
		return nil, err
	}
	all, done, err := s.o.Computers(ctx)
	if err != nil {
		return nil, err
	}
	defer s.letGo(ctx, "let go of the computers", done)
	found, err := all.Desktops(ctx)
	out := struct {
		TakeOver  bool       `json:"take_over"`
		Computers []standing `json:"computers"`
		Warnings  []string   `json:"warnings"`
	}{s.o.TakeOver, []standing{}, []string{}}
	if err != nil {
		out.Warnings = append(out.Warnings, diag.Clean(err.Error()))
	}
	for _, d := range found {
		v := standing{ID: d.ID, Name: d.Name, Env: d.Env, Run: d.Run, Step: d.Step, Provider: d.Provider, Created: d.Created.UTC(), Expires: d.Expires.UTC()}
		if strings.HasPrefix(d.Run, byHand) {
			v.Run, v.ByHand = "", true
		}
		out.Computers = append(out.Computers, v)
	}
	return out, nil
}

// Lines of a stream: each is a JSON object and a line feed, and after a picture's come its bytes.
type (
	beginLine struct {
		Watch    string `json:"watch"` // names this stream to the route of inputs
		TakeOver bool   `json:"take_over"`
	}
	pictureLine struct {
		X, Y          int // where the picture belongs on the screen
		Width, Height int // of the screen
		Bytes         int // of the PNG that follows
	}
	endLine struct {
		End    string `json:"end"` // gone: the computer stands no more; broken: it does; stopping: the console doesn't
		Detail string `json:"detail"`
	}
)

// MarshalJSON writes the names that pages read.
func (p pictureLine) MarshalJSON() ([]byte, error) {
	return fmt.Appendf(nil, `{"x":%d,"y":%d,"width":%d,"height":%d,"bytes":%d}`, p.X, p.Y, p.Width, p.Height, p.Bytes), nil
}

// screen streams the screen of a computer until the watcher leaves, the computer goes or the console stops.
func (s *Server) screen(w http.ResponseWriter, r *http.Request) {
	select {
	case s.watching <- struct{}{}:
		defer func() { <-s.watching }()
	default:
		fail(w, http.StatusTooManyRequests, "watchers", fmt.Sprintf("%d screens are watched already, which is as many as the console shows", mostScreens))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	all, done, err := s.o.Computers(ctx)
	if err != nil {
		answerError(ctx, w, err)
		return
	}
	defer s.letGo(ctx, "let go of the computers", done)
	id := r.PathValue("id")
	k, err := all.Open(ctx, id)
	if err != nil {
		answerError(ctx, w, gone(err))
		return
	}
	defer func() {
		if err := k.Close(); err != nil {
			s.o.Log.Debug("let go of a computer", "error", err)
		}
	}()
	next, stop := iter.Pull2(k.Follow(ctx, screenFPS))
	defer stop()
	p, err, ok := next()
	if err == nil && !ok {
		err = errors.New("it ended before it showed anything")
	}
	if err != nil {
		answerError(ctx, w, &Failure{http.StatusBadGateway, "computer", "the computer shows nothing: " + diag.Clean(err.Error()), err})
		return
	}
	h := s.hands.add(id, k)
	defer s.hands.remove(h)
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	out := stream{w: w, c: http.NewResponseController(w)}
	_ = out.c.SetReadDeadline(time.Time{}) // that of a request would end the stream; a writer without one needs none
	if out.line(beginLine{h.watch, s.o.TakeOver}, nil) != nil {
		return // the watcher left
	}
	for ; ok && err == nil; p, err, ok = next() {
		if out.line(pictureLine{p.Place.X, p.Place.Y, p.Screen.Width, p.Screen.Height, len(p.PNG)}, p.PNG) != nil {
			return // the watcher left
		}
	}
	_ = out.line(s.why(ctx, all, id, err), nil) // to a watcher who may have left
}

// How often, and how long, what ended a stream is looked at again.
const (
	settling = 20
	settle   = 100 * time.Millisecond
)

// why says how a stream ended.
func (s *Server) why(ctx context.Context, all Computers, id string, err error) endLine {
	if ctx.Err() != nil {
		return endLine{"stopping", "The console was stopped."}
	}
	found, listErr := all.Desktops(ctx)
	same := func(d deploy.Desktop) bool { return d.ID == id }
	// A driver that ends with its computer is gone first.
	for range settling {
		if listErr != nil || !slices.ContainsFunc(found, same) || sleep.For(ctx, settle) != nil {
			break
		}
		found, listErr = all.Desktops(ctx)
	}
	for _, d := range found {
		if d.ID == id {
			detail := "The computer's driver ended the stream."
			if err != nil {
				detail = diag.Clean(err.Error())
			}
			return endLine{"broken", detail}
		}
	}
	if listErr != nil {
		return endLine{"broken", diag.Clean(listErr.Error())}
	}
	return endLine{"gone", "The computer is gone: it was taken down, or its time was up."}
}

// gone is 404 for a computer that doesn't stand.
func gone(err error) error {
	if errors.Is(err, sandbox.ErrNotFound) {
		return &Failure{http.StatusNotFound, "computer", "there is no such computer any more", err}
	}
	return err
}

// stream writes what a watcher reads.
type stream struct {
	w io.Writer
	c *http.ResponseController
}

// line writes a line, and bytes after it.
func (o *stream) line(v any, after []byte) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_ = o.c.SetWriteDeadline(time.Now().Add(pieceTime)) // a writer without one needs none
	if _, err = o.w.Write(append(append(b, '\n'), after...)); err != nil {
		return err
	}
	return o.c.Flush()
}

func newWatch() string { return strings.ToLower(rand.Text()) }
