package console

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/workspace"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// route is one method and path of the API.
type route struct {
	pattern string // as http.ServeMux takes it
	limit   time.Duration
	changes bool // it fetches or changes: few run at once
	bare    bool // it has nothing to do with plugins
	do      func(ctx context.Context, c *call) (any, error)
}

// call is one request of a route.
type call struct {
	*http.Request
	body    *body
	plugins *gitplugins.Plugins // nil of a bare route
}

// Failure is an error with the status that it is answered with.
type Failure struct {
	Status int
	Code   string // a word for programs
	Detail string // a text for people
	cause  error
}

func (f *Failure) Error() string { return f.Detail }

func (f *Failure) Unwrap() error { return f.cause }

func badRequest(format string, args ...any) error {
	return &Failure{Status: http.StatusBadRequest, Code: "request", Detail: fmt.Sprintf(format, args...)}
}

// fail answers an error, in the one shape that all of them have.
func fail(w http.ResponseWriter, status int, code, detail string) {
	reply(w, status, struct {
		Detail string `json:"detail"`
		Code   string `json:"code"`
	}{detail, code})
}

func reply(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		status, b = http.StatusInternalServerError, []byte(`{"detail":"the answer can't be written","code":"internal"}`)
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n')) // who asked may be gone
}

// route finds the route of a request that may use the API.
func (s *Server) route(w http.ResponseWriter, r *http.Request) {
	h, pattern := s.mux.Handler(r)
	if pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	why := &noRoute{header: http.Header{}}
	h.ServeHTTP(why, r)
	if why.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", why.header.Get("Allow"))
		fail(w, why.status, "method", fmt.Sprintf("%s is not for %s", r.URL.Path, r.Method))
		return
	}
	fail(w, http.StatusNotFound, "route", "there is no "+diag.Repr(r.URL.Path))
}

// noRoute keeps what the mux says of a request that no route is for.
type noRoute struct {
	header http.Header
	status int
}

func (n *noRoute) Header() http.Header         { return n.header }
func (n *noRoute) WriteHeader(status int)      { n.status = status }
func (n *noRoute) Write(b []byte) (int, error) { return len(b), nil }

var (
	errLate     = errors.New("it took too long and was ended; nothing was changed")
	errStopping = errors.New("the console is being stopped; nothing was changed")
)

// serve is the handler of a route: it reads the body, opens the workspace, and answers what came of it.
func (s *Server) serve(r route) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		ctx, cancel := context.WithTimeoutCause(req.Context(), r.limit, errLate)
		defer cancel()
		began := s.o.Now()
		defer func() {
			if v := recover(); v != nil {
				id := strings.ToLower(rand.Text()[:8])
				s.o.Log.Error("a route of the console crashed", "id", id, "route", r.pattern, "panic", v)
				fail(w, http.StatusInternalServerError, "internal", "something went wrong in agent-env; its log says more of "+id)
			}
			s.o.Log.Debug("console", "route", r.pattern, "took", s.o.Now().Sub(began))
		}()
		b, err := readBody(w, req)
		if err != nil {
			answerError(ctx, w, err)
			return
		}
		if r.changes {
			select {
			case s.slots <- struct{}{}:
				defer func() { <-s.slots }()
			case <-ctx.Done():
				answerError(ctx, w, context.Cause(ctx))
				return
			}
		}
		c := &call{req.WithContext(ctx), b, nil}
		if !r.bare {
			p, done, err := s.o.Open(ctx)
			if err != nil {
				answerError(ctx, w, &Failure{http.StatusInternalServerError, "configuration", err.Error(), err})
				return
			}
			defer s.letGo(ctx, "close the workspace", done)
			c.plugins = p
		}
		out, err := r.do(ctx, c)
		if err != nil {
			answerError(ctx, w, err)
			return
		}
		reply(w, http.StatusOK, out)
	}
}

// letGo ends what was opened for a request; what is how the log calls that.
func (s *Server) letGo(ctx context.Context, what string, done func(context.Context) error) {
	if err := done(ctx); err != nil {
		s.o.Log.Warn(what, "error", err)
	}
}

// answerError answers what is wrong.
func answerError(ctx context.Context, w http.ResponseWriter, err error) {
	if ack, ok := errors.AsType[*gitplugins.NeedsAck](err); ok {
		reply(w, http.StatusOK, needsAck(ack))
		return
	}
	if open, ok := errors.AsType[*gitplugins.Unanswered](err); ok {
		reply(w, http.StatusBadRequest, unanswered(open))
		return
	}
	f := failure(ctx, err)
	fail(w, f.Status, f.Code, f.Detail)
}

// failure says how an error is answered.
func failure(ctx context.Context, err error) *Failure {
	as := func(status int, code string) *Failure { return &Failure{status, code, err.Error(), err} }
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	if cause := context.Cause(ctx); cause != nil {
		if errors.Is(cause, errLate) {
			return &Failure{http.StatusGatewayTimeout, "timeout", errLate.Error(), err}
		}
		return &Failure{http.StatusServiceUnavailable, "stopping", errStopping.Error(), err}
	}
	if g, ok := errors.AsType[*git.Failure](err); ok && g.Timeout {
		return as(http.StatusGatewayTimeout, "timeout")
	}
	if _, ok := errors.AsType[*workspace.Late](err); ok {
		return as(http.StatusGatewayTimeout, "timeout")
	}
	if _, ok := errors.AsType[*gitplugins.Absent](err); ok {
		return as(http.StatusNotFound, "absent")
	}
	if _, ok := errors.AsType[*git.Refused](err); ok {
		return as(http.StatusBadRequest, "refused")
	}
	if c, ok := errors.AsType[*git.Conflict](err); ok {
		return &Failure{http.StatusBadRequest, "conflict", strings.ReplaceAll(err.Error(), c.Error(), c.Text()+"; force takes its place"), err}
	}
	if errors.Is(err, folder.ErrNone) {
		return as(http.StatusConflict, "workspace")
	}
	return as(http.StatusBadRequest, "failed")
}

// readBody reads the JSON object that a request sends; nothing is an empty one.
func readBody(w http.ResponseWriter, r *http.Request) (*body, error) {
	src, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, &Failure{http.StatusRequestEntityTooLarge, "request", fmt.Sprintf("the body has more than %d KiB", maxBody>>10), err}
		}
		return nil, &Failure{http.StatusBadRequest, "request", "the body can't be read", err}
	}
	if len(src) == 0 {
		return parseBody(nil)
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return nil, &Failure{http.StatusUnsupportedMediaType, "request", "the body has to be application/json", err}
	}
	return parseBody(src)
}
