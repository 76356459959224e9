// Package console is what `agent-env up` serves: pages for people, and the HTTP API that they call.
//
// Words: the console is the server; a page is a static file below page/, embedded; a route is one method and path of the API, below /api/. The token is
// what a person holds who may use the API. A view is a page of a git plugin, which the console shows in a frame and doesn't trust.
//
// Pages hold nothing that is secret and are served to whoever asks; a view's files are served to who knows the path that the API handed out; everything
// below /api/ needs the token. Every request is refused whose Host is no name of this console (a page elsewhere whose name was made to lead here), or whose
// Origin is another page; of views even the console's own. What a request changes goes through
// internal/gitplugins, as the command line's verbs do, under the configuration as it is when the request comes; an operation ends with its request.
//
// The next page: put NAME.html and NAME.js beside the others in page/ and list them in pages() with the path at which they are served; begin the script
// with what page/api.js gives (the token, call, and el, which puts everything into the page as text), and add the page to the <nav> of every page. Its
// routes go into a file of their own here, as plugins.go has them, and are listed in New; what they work on is a field of Options that internal/app
// fills. Streams (a screen, events) are read by pages with fetch: EventSource and WebSocket can't send the token.
package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"agentenv.internal/agentenv/internal/fleet"
	"agentenv.internal/agentenv/internal/gitplugins"
	"agentenv.internal/agentenv/internal/workspace"
)

// Options are what a console is made of.
type Options struct {
	Token string   // at least 22 characters; see front.NewSecret
	Names []string // host names, beside the loopback's and the addresses of this machine, that the console is asked by
	// Open answers the git plugins of the workspace under the configuration as it is now; done lets go of them.
	Open func(ctx context.Context) (p *gitplugins.Plugins, done func(context.Context) error, err error)
	// Deps installs the packages that an installed plugin declares, or only tells what would be installed; nil where nothing can be installed.
	Deps func(ctx context.Context, id string, dry bool) (Deps, error)
	// Create makes a workspace, and Workspaces lists those that there are.
	Create     func(ctx context.Context, o workspace.Order) (*workspace.Created, error)
	Workspaces func(ctx context.Context) ([]workspace.Workspace, error)
	// Remove takes a workspace away, with purge its whole folder.
	Remove func(ctx context.Context, name string, purge bool) error
	// Agents are those of workspaces that this console has started. It must not be nil where there are Workspaces.
	Agents *fleet.Fleet
	// FetchOnly keeps what is installed off until somebody turns it on, and asks for no consent to fetch it.
	FetchOnly bool
	// Computers answers the computers that stand on this machine under the configuration as it is now; done lets go of them.
	Computers func(ctx context.Context) (c Computers, done func(context.Context) error, err error)
	// TakeOver lets who holds the token use the mouse and the keyboard of computers, not only watch them.
	TakeOver bool
	Version  string
	Now      func() time.Time
	Log      *slog.Logger
}

// Deps are packages that a plugin declares, installed or to be installed.
type Deps struct {
	Packages []string // as the plugin declares them
	Left     []string // those of its declarations that are not installed
	Plan     []string // what the installer does, by its own words: "+ name==1.0"
	Changed  bool
}

// Limits of one request.
const (
	maxBody       = 1 << 20
	maxHeader     = 32 << 10
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	idleTimeout   = 2 * time.Minute
	stopTimeout   = 10 * time.Second

	quick = 30 * time.Second // reads of what is here
	asks  = 2 * time.Minute  // questions to sources
	fetch = 11 * time.Minute // one git may take ten
)

// Server is a console. Its methods may be called from several goroutines.
type Server struct {
	o      Options
	mux    *http.ServeMux
	looked looks
	views  views
	slots  chan struct{} // operations that fetch or change

	watching chan struct{} // streams of screens
	hands    hands
}

// busy is how many operations run at once; others wait for their turn.
const busy = 4

// New makes a console; nothing is opened.
func New(o Options) *Server {
	if o.Now == nil {
		o.Now = time.Now
	}
	s := &Server{o: o, mux: http.NewServeMux(), slots: make(chan struct{}, busy), looked: looks{of: map[string]look{}}, views: views{slots: make(chan struct{}, mostViews)}, watching: make(chan struct{}, mostScreens)}
	for _, rs := range [][]route{s.pluginRoutes(), s.bundleRoutes(), s.catalogRoutes(), s.fleetRoutes(), s.computerRoutes()} {
		for _, r := range rs {
			s.mux.HandleFunc(r.pattern, s.serve(r))
		}
	}
	s.mux.HandleFunc("GET /api/computers/{id}/screen", s.screen)
	return s
}

// Serve answers requests until ctx ends, then ends the operations that are under way (each leaves all or nothing) and closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, ReadTimeout: bodyTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serve the console: %w", err)
	case <-ctx.Done():
	}
	undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := srv.Shutdown(undo); err != nil {
		_ = srv.Close() // what still runs has lost its context already
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the console: %w", err)
	}
	return nil
}
