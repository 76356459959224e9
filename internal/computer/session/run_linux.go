package session

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/computer/x11"
	"agentenv.internal/agentenv/internal/sleep"
)

const (
	displayTime = 20 * time.Second // for the X server to say its display
	managerTime = 10 * time.Second // for the window manager to answer
	restarts    = 5                // in restartTime, of a server that dies
	restartTime = time.Minute

	restartPause = 200 * time.Millisecond // after a start that failed
)

// Run brings a session up and holds it until ctx ends, or the driver does, which is an error. It must not run as root.
func Run(ctx context.Context, c Config) error {
	if os.Geteuid() == 0 {
		return errors.New("a desktop doesn't run as root")
	}
	return run(ctx, c)
}

func run(ctx context.Context, c Config) (err error) {
	scratch, err := atomicfile.NewScratch("agent-env-session")
	if err != nil {
		return fmt.Errorf("start a session: %w", err)
	}
	defer func() { err = errors.Join(err, scratch.Remove()) }()
	s := &desktop{config: c, auth: filepath.Join(scratch.Dir, "Xauthority"), ended: make(chan string), over: make(chan struct{})}
	if err := s.authority(); err != nil {
		return fmt.Errorf("start a session: %w", err)
	}
	// Programs of the desktop that lose their parent become children of this process, which ends them.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("start a session: %w", err)
	}
	defer s.stopAll()
	if err := s.start(ctx); err != nil {
		return fmt.Errorf("start a session: %w", err)
	}
	return s.hold(ctx)
}

// desktop is a session that stands.
type desktop struct {
	config  Config
	auth    string // file that holds what clients of the display show
	display string // ":N"; "" before the X server said it

	x, manager, driver, command *process
	installing                  *process      // of an app
	apps                        []*process    // in the order of the configuration's
	ended                       chan string   // names of apps whose servers ended
	over                        chan struct{} // closed once nobody listens to ended
	died                        map[string][]time.Time
}

// authority makes the secret without which nobody else on this machine sees the display.
func (s *desktop) authority() error {
	secret := make([]byte, 16)
	_, _ = rand.Read(secret) // it never fails: the program ends before
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	const local, wild = 256, 65535
	// For this machine's name, since not all clients know of wild ones, and for any.
	return atomicfile.WriteBytes(s.auth, 0o600, permit(permit(nil, local, host, secret), wild, "", secret))
}

// permit appends an entry of an authority file, for any display of an address.
func permit(to []byte, family uint16, address string, secret []byte) []byte {
	to = binary.BigEndian.AppendUint16(to, family)
	for _, field := range [][]byte{[]byte(address), nil, []byte("MIT-MAGIC-COOKIE-1"), secret} {
		to = binary.BigEndian.AppendUint16(to, uint16(len(field)))
		to = append(to, field...)
	}
	return to
}

func (s *desktop) start(ctx context.Context) error {
	if err := s.startX(ctx); err != nil {
		return err
	}
	if err := s.startManager(); err != nil {
		return err
	}
	if err := s.startDriver(); err != nil { // before the apps: it answers while they are installed, and isn't ready
		return fmt.Errorf("the driver: %w", err)
	}
	s.awaitManager(ctx)
	if err := s.startApps(ctx); err != nil {
		return err
	}
	if len(s.config.Command) > 0 {
		var err error
		if s.command, err = s.spawn(program{argv: s.config.Command}); err != nil {
			return fmt.Errorf("%s: %w", s.config.Command[0], err)
		}
	}
	return nil
}

// startX starts an X server: on any display at first, later on that which everybody knows.
func (s *desktop) startX(ctx context.Context) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	argv := []string{"Xvfb"}
	if s.display != "" {
		argv = append(argv, s.display)
	}
	argv = append(argv, "-displayfd", "3", "-screen", "0", fmt.Sprintf("%dx%dx24", s.config.MaxWidth, s.config.MaxHeight), "-auth", s.auth, "-nolisten", "tcp", "-noreset")
	s.x, err = s.spawn(program{argv: argv, files: []*os.File{w}})
	w.Close()
	if err != nil {
		return fmt.Errorf("the X server: %w (Debian has it in the package xvfb)", err)
	}
	said := make(chan string, 1)
	go func() { // ends with the pipe, which the server holds, and this function closes
		b := make([]byte, 32)
		n := 0
		for n < len(b) {
			k, err := r.Read(b[n:])
			if n += k; err != nil || strings.Contains(string(b[:n]), "\n") {
				break
			}
		}
		said <- strings.TrimSpace(string(b[:n]))
	}()
	t := time.NewTimer(displayTime)
	defer t.Stop()
	number := ""
	select {
	case number = <-said:
	case <-t.C:
		err = errors.New("it doesn't say its display")
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil && number == "" {
		err = errors.New("it ended at once")
	}
	if err != nil {
		s.x.stop()
		return fmt.Errorf("the X server: %w", err)
	}
	s.display = ":" + number
	return nil
}

// startXAgain starts an X server in place of one that ended, and a window manager in place of that which ended with it.
func (s *desktop) startXAgain(ctx context.Context) error {
	if err := s.startX(ctx); err != nil || s.manager == nil {
		return err
	}
	s.manager.stop()
	err := s.startManager()
	s.awaitManager(ctx)
	return err
}

func (s *desktop) startManager() (err error) {
	if len(s.config.Manager) == 0 {
		return nil
	}
	if s.manager, err = s.spawn(program{argv: s.config.Manager}); err != nil {
		return fmt.Errorf("the window manager: %w (Debian has %s in a package of that name; --window-manager none goes without)", err, s.config.Manager[0])
	}
	return nil
}

// awaitManager waits until the window manager answers, so that no window of what is started next is left unseen.
func (s *desktop) awaitManager(ctx context.Context) {
	if s.manager == nil {
		return
	}
	var watching sync.WaitGroup
	defer watching.Wait()
	waiting, cancel := context.WithTimeout(ctx, managerTime)
	defer cancel()
	watching.Go(func() {
		select {
		case <-s.manager.done: // one that ended never answers
			cancel()
		case <-waiting.Done():
		}
	})
	if err := x11.AwaitManager(waiting, s.display, s.auth); err != nil && ctx.Err() == nil {
		s.config.Log.WarnContext(ctx, "the window manager doesn't answer, and isn't waited for", slog.Any("error", err))
	}
}

// environ is what everything on the desktop finds.
func (s *desktop) environ() []string {
	set := map[string]string{"XAUTHORITY": s.auth, "DISPLAY": s.display, "XDG_SESSION_TYPE": "x11"}
	if s.config.Home != "" {
		set["HOME"] = s.config.Home
	}
	out := slices.DeleteFunc(slices.Clone(s.config.Environ), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		_, ours := set[name]
		return ours || name == "WAYLAND_DISPLAY"
	})
	for name, v := range set {
		if v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}

// hold looks after the session until it ends.
func (s *desktop) hold(ctx context.Context) error {
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.driver.done:
			return fmt.Errorf("the driver ended: %w", s.driver.said())
		case <-s.x.done:
			if err := s.again(ctx, "the X server", s.x, s.startXAgain); err != nil {
				return err
			}
		case <-s.manager.ended():
			if isDone(s.x) {
				continue // with its X server, which comes first
			}
			if err := s.again(ctx, "the window manager", s.manager, func(ctx context.Context) error {
				err := s.startManager()
				s.awaitManager(ctx)
				return err
			}); err != nil {
				return err
			}
		case <-s.command.ended():
			s.config.Log.InfoContext(ctx, "the program on the desktop ended", slog.Any("error", s.command.err))
			s.command = nil
		case name := <-s.ended:
			if err := s.appAgain(ctx, name); err != nil {
				return err
			}
		case <-children:
			s.reap()
		}
	}
}

func isDone(p *process) bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// again starts what died, also when that fails, unless it happens all the time.
func (s *desktop) again(ctx context.Context, what string, p *process, start func(context.Context) error) error {
	how := p.said()
	for {
		s.config.Log.WarnContext(ctx, what+" ended and is started again", slog.Any("error", how))
		if s.died == nil {
			s.died = map[string][]time.Time{}
		}
		now := time.Now()
		s.died[what] = append(slices.DeleteFunc(s.died[what], func(t time.Time) bool { return now.Sub(t) > restartTime }), now)
		if n := len(s.died[what]); n > restarts {
			return fmt.Errorf("%s ended %d times in %s: %w", what, n, restartTime, how)
		}
		if how = start(ctx); how == nil || ctx.Err() != nil {
			return nil
		}
		if sleep.For(ctx, restartPause) != nil {
			return nil
		}
	}
}

// stopAll ends everything, the driver first, and then what the desktop's programs left.
func (s *desktop) stopAll() {
	close(s.over)
	for _, p := range s.processes() {
		p.stop()
	}
	const tries = 100 // each may bring up the children of those that were killed
	for range tries {
		left := orphans(nil)
		if len(left) == 0 {
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // one that is gone is gone
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}
}

// processes are those that the session looks after, in the order in which they are stopped.
func (s *desktop) processes() []*process {
	all := append([]*process{s.driver}, s.apps...)
	all = append(all, s.installing, s.command, s.manager, s.x)
	return slices.DeleteFunc(all, func(p *process) bool { return p == nil })
}

// reap buries orphans that ended.
func (s *desktop) reap() {
	var own []int
	for _, p := range s.processes() {
		own = append(own, p.cmd.Process.Pid)
	}
	for _, pid := range orphans(own) {
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil) // one that lives goes on
	}
}

// orphans are the children of this process but for those that it started.
func orphans(own []int) []int {
	var out []int
	lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is right
	for _, l := range lists {
		b, err := os.ReadFile(l)
		if err != nil {
			continue // a thread that is gone
		}
		for f := range strings.FieldsSeq(string(b)) {
			if pid, err := strconv.Atoi(f); err == nil && !slices.Contains(own, pid) {
				out = append(out, pid)
			}
		}
	}
	return out
}
