// Package app is for writing servers of computer apps: programs on a desktop whose data are loaded, exported and reset by name, as those of any
// environment. The driver of the desktop stands in front of them.
//
//	err := app.Serve(ctx, app.App{Name: "notes", Paths: []string{"Notes"}, Launch: []string{"./notes"}}, app.Options{})
//
// An author says where the app keeps its data, and the server does the rest: a load writes files below those paths and nowhere else, an export returns
// them, a reset makes them as they were when the server first started. Hooks replace any of the three. Whichever it is, the server holds a contract:
//
//   - data calls, launches and stops come one after another, first come first served;
//   - a load and a reset stop the running app first and launch it again afterwards; one that didn't run stays stopped;
//   - a load that fails, or that a server's death cut off, is followed by a reset;
//   - a call that takes longer than Timeout fails then, while its reset and launch wait until its work has ended.
//
// The words: the initial copy is what the paths held when the server first started since the machine did; a turn is the time in which one call has the app to
// itself. What the server keeps stands in the home's .agentenv. The package draws nothing and authenticates nobody: the socket is the user's alone.
package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"agentenv.internal/agentenv/sdk/computer/home"
	"agentenv.internal/agentenv/sdk/env"
	"agentenv.internal/agentenv/sdk/wire"
)

// URN is the extension that tells of the app as a program, launches and stops it.
const URN = wire.URNComputerApp

// DefaultTimeout is how long a data call may take unless an App says otherwise.
const DefaultTimeout = 300 * time.Second

// Variables of the environment.
const (
	SocketVariable = "AGENTENV_APP_SOCKET" // where a server listens
	NameVariable   = "AGENTENV_APP"        // set for the app and its hooks: the app's name
	HomeVariable   = "AGENTENV_HOME"       // set for the app and its hooks: the home
)

// App is what an author says of an app. Only Name is needed; an app without paths and hooks keeps no data.
type App struct {
	Name    string        // of the environment: a-z, 0-9, - and _, at most 63, a letter or digit first
	Paths   []string      // where the data are, relative to the home; none overlaps with another
	Launch  []string      // argv of the app; nil: there is no process
	Dir     string        // folder that Launch starts in and a relative program is found in; "" is the home
	Timeout time.Duration // of a data call; 0 is DefaultTimeout
	Skill   *Skill        // nil: none

	// Add loads parts, in place of writing files below Paths. ctx ends with the call's time; a hook that goes on nevertheless is waited for.
	Add func(ctx context.Context, parts []*Part) error
	// Get exports the data, in place of the files below Paths. to is nil unless the caller grants a place to upload to. It runs beside the running app.
	Get func(ctx context.Context, to *env.Namespace) ([]wire.Part, error)
	// Reset makes the data as installed, in place of putting the initial copy back.
	Reset func(ctx context.Context) error
}

// Skill is what agents should know to use the app.
type Skill struct {
	Name, Description string
	Folder            fs.FS // holds SKILL.md
}

// Options are what Open is given beside an App. The zero value works.
type Options struct {
	Home    string                      // of the session's user; "" is $HOME
	Socket  string                      // of Serve; "" is SocketVariable's value, or .agentenv/apps/<name>.sock in the home
	Log     *slog.Logger                // nil: tells nothing
	Lookup  func(string) (string, bool) // nil: os.LookupEnv
	Environ []string                    // of the app; nil: this process's
	Client  *http.Client                // that fetches parts, and reads and writes what grants lead to; nil: one that follows redirects to https alone, for at most 60 s
}

// Server is an app that is served. Its methods may be called at the same time.
type Server struct {
	app     App
	home    string // links resolved
	root    *os.Root
	socket  string
	environ []string
	client  *http.Client
	log     *slog.Logger
	env     *env.Env

	lock  *os.File // held as long as the server lives
	turns chan struct{}
	over  chan struct{}  // closed when Close begins
	work  sync.WaitGroup // calls under way
	apps  sync.WaitGroup // launched processes
	once  sync.Once
	ended error
	grace time.Duration // from SIGTERM to SIGKILL
}

// check tells everything that is wrong with what an author says.
func (a *App) check() error {
	var errs []error
	if !wire.IsAppName(a.Name) {
		errs = append(errs, fmt.Errorf("%q can't be the name of an app: lower-case letters, digits, - and _, at most 63, a letter or digit first", a.Name))
	}
	for i, p := range a.Paths {
		if err := wire.CheckPath(p); err != nil {
			errs = append(errs, fmt.Errorf("paths: %q: %w", p, err))
		} else if wire.Below(p, home.Private) {
			errs = append(errs, fmt.Errorf("paths: %s is where servers keep what is theirs", p))
		}
		for _, o := range a.Paths[:i] {
			if wire.Overlap(p, o) {
				errs = append(errs, fmt.Errorf("paths: %s overlaps with %s", p, o))
			}
		}
	}
	if a.Launch != nil && (len(a.Launch) == 0 || a.Launch[0] == "") {
		errs = append(errs, errors.New("launch: it must begin with a program"))
	}
	if a.Timeout < 0 {
		errs = append(errs, errors.New("the time of a data call is negative"))
	}
	return errors.Join(errs...)
}

// Open makes an app ready to be served: it makes the initial copy where there is none of this boot, and resets the data where an earlier server died
// in the middle of changing them. One server has an app of a home at a time. It tells everything that is wrong with the App. Who calls it calls Close.
func Open(ctx context.Context, a App, o Options) (*Server, error) {
	s := &Server{app: a, socket: o.Socket, environ: o.Environ, client: o.Client, log: o.Log, turns: make(chan struct{}, 1), over: make(chan struct{}), grace: stopGrace}
	err := s.open(ctx, o)
	if err == nil {
		err = s.recover(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the app %s: %w", a.Name, err), s.release())
	}
	return s, nil
}

func (s *Server) open(ctx context.Context, o Options) error {
	lookup := o.Lookup
	if lookup == nil {
		lookup = os.LookupEnv
	}
	if s.app.Timeout == 0 {
		s.app.Timeout = DefaultTimeout
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.client == nil {
		s.client = home.Client()
	}
	if s.environ == nil {
		s.environ = os.Environ()
	}
	if err := s.app.check(); err != nil {
		return err
	}
	dir := o.Home
	if dir == "" {
		dir, _ = lookup("HOME")
	}
	if dir == "" {
		return errors.New("HOME is not set: which home?")
	}
	if err := s.openHome(dir); err != nil {
		return err
	}
	if s.socket == "" {
		s.socket, _ = lookup(SocketVariable)
	}
	s.socket = cmp.Or(s.socket, filepath.Join(s.home, filepath.FromSlash(s.file(".sock"))))
	s.environ = append(slices.Clip(s.environ), "HOME="+s.home, HomeVariable+"="+s.home, NameVariable+"="+s.app.Name)
	if err := s.keep(ctx); err != nil {
		return err
	}
	return s.serveAs(lookup)
}

// openHome opens the home and takes hold of the app in it.
func (s *Server) openHome(dir string) error {
	var err error
	if s.home, err = filepath.Abs(dir); err == nil {
		s.home, err = filepath.EvalSymlinks(s.home)
	}
	if err != nil {
		return fmt.Errorf("the home: %w", err)
	}
	if s.root, err = os.OpenRoot(s.home); err != nil {
		return fmt.Errorf("the home: %w", err)
	}
	for _, d := range []string{appsDir, initialDir} {
		if err := s.root.MkdirAll(d, 0o700); err != nil {
			return fmt.Errorf("the home: %w", err)
		}
	}
	if s.lock, err = s.root.OpenFile(s.file(".lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("the home: %w", err)
	}
	if err := tryLock(s.lock); err != nil {
		return fmt.Errorf("another server has the app %s of this home: %w", s.app.Name, err)
	}
	return nil
}

// serveAs puts the environment together that the app is served as.
func (s *Server) serveAs(lookup func(string) (string, bool)) error {
	// ENVIRONMENT_NAME is the computer's.
	s.env = env.New(s.app.Name, env.WithLog(s.log), env.WithHTTPClient(home.Granted(s.client)), env.WithLookup(func(name string) (string, bool) {
		if name == wire.NameVariable {
			return "", false
		}
		return lookup(name)
	}))
	s.addData()
	s.addProgram()
	if k := s.app.Skill; k != nil {
		s.env.ServeSkill(k.Name, k.Description, k.Folder)
	}
	return nil
}

// Name is the app's.
func (s *Server) Name() string { return s.app.Name }

// Home is the home, links resolved.
func (s *Server) Home() string { return s.home }

// Socket is where Serve listens.
func (s *Server) Socket() string { return s.socket }

// Handler is the app over HTTP. Call it, or Serve, once.
func (s *Server) Handler() (http.Handler, error) { return s.env.Handler() }

// Close ends what is under way (a load is undone), stops the app and lets go of the home. It may be called again.
func (s *Server) Close(ctx context.Context) error {
	s.once.Do(func() {
		err := s.env.Close(ctx)
		close(s.over)
		s.work.Wait()
		if serr := s.stop(context.WithoutCancel(ctx)); serr != nil {
			err = errors.Join(err, serr)
		} else {
			s.apps.Wait()
		}
		s.ended = errors.Join(err, s.release())
	})
	return s.ended
}

func (s *Server) release() error {
	var errs []error
	if s.lock != nil {
		errs = append(errs, unlock(s.lock))
	}
	if s.root != nil {
		errs = append(errs, s.root.Close())
	}
	return errors.Join(errs...)
}
