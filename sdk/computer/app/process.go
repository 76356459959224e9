package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"agentenv.internal/agentenv/sdk/env"
)

const (
	stopGrace = 10 * time.Second      // from SIGTERM to SIGKILL
	stopPoll  = 50 * time.Millisecond // between looks at who is left
	killGrace = 5 * time.Second       // from SIGKILL to giving up
)

// launched is what is written down of a launch. Group is that of the process and the id of its session; Start is when the process began, which tells it from
// another of the same number.
type launched struct {
	PID   int    `json:"pid"`
	Group int    `json:"group"`
	Start uint64 `json:"start"`
	Boot  string `json:"boot"`
}

// Status is whether the app runs.
type Status struct {
	Running bool `json:"running"`
	PID     int  `json:"pid,omitempty"` // of what was launched first, as long as anything of it runs
}

type none struct{}

func (s *Server) addProgram() {
	about := env.ExtensionDescription("Tells whether the app runs, launches and stops it.")
	paths := s.app.Paths
	if paths == nil {
		paths = []string{}
	}
	env.AddExtension(s.env, URN, "status", func(context.Context, none) (Status, error) { return s.Status() }, env.Op(), env.Verb(http.MethodGet), about,
		env.ExtensionParam("data_timeout_s", s.app.Timeout.Seconds()), env.ExtensionParam("paths", paths))
	env.AddExtension(s.env, URN, "launch", func(ctx context.Context, _ none) (none, error) { return none{}, s.Launch(ctx) }, env.Op())
	env.AddExtension(s.env, URN, "stop", func(ctx context.Context, _ none) (none, error) { return none{}, s.Stop(ctx) }, env.Op())
}

// Status tells whether the app runs now. It takes no turn.
func (s *Server) Status() (Status, error) {
	pid, err := s.running()
	return Status{pid != 0, pid}, err
}

// Launch launches the app, in a turn; one that runs is left as it is.
func (s *Server) Launch(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.launch(context.WithoutCancel(ctx))
}

// Stop stops the app and all that it started, in a turn.
func (s *Server) Stop(ctx context.Context) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.leave()
	return s.stop(context.WithoutCancel(ctx))
}

// record is what is written down of the last launch; nil when there is none.
func (s *Server) record() (*launched, error) {
	b, err := s.root.ReadFile(s.file(".pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	l := &launched{}
	if json.Unmarshal(b, l) != nil || l.Group <= 1 || l.Boot != boot() {
		return nil, nil // of no use, or of an earlier boot
	}
	return l, nil
}

// running is the pid of the launch of which something runs; 0 for none.
func (s *Server) running() (int, error) {
	l, err := s.record()
	if err != nil || l == nil || len(l.members()) == 0 {
		return 0, err
	}
	return l.PID, nil
}

// launch starts the app in a session of its own. What it says goes into its log file.
func (s *Server) launch(ctx context.Context) error {
	if s.app.Launch == nil {
		return env.Fail("unsupported", "the app %s has nothing to launch", s.app.Name).WithStatus(http.StatusNotImplemented)
	}
	if pid, err := s.running(); err != nil || pid != 0 {
		return err
	}
	cmd, err := s.command()
	if err != nil {
		return err
	}
	out, err := s.root.OpenFile(s.file(".log"), os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }() // the app has its own
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%s can't be started: %w", s.app.Launch[0], plain(err))
	}
	l := &launched{PID: cmd.Process.Pid, Group: cmd.Process.Pid, Boot: boot()}
	l.Start, _ = started(l.PID) // it isn't waited for yet, so it is there
	b, err := json.Marshal(l)
	if err == nil {
		err = s.write(s.file(".pid"), b)
	}
	s.apps.Go(func() { _ = cmd.Wait() }) // how it ends is its own affair
	if err != nil {
		return errors.Join(fmt.Errorf("write the app's pid down: %w", err), l.end(ctx, s.grace))
	}
	return nil
}

func plain(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func (s *Server) command() (*exec.Cmd, error) {
	dir := s.app.Dir
	if dir == "" {
		dir = s.home
	}
	program, err := FindProgram(dir, s.app.Launch[0])
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{Path: program, Args: s.app.Launch, Dir: dir, Env: s.environ, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}, nil
}

// FindProgram is the file that the first word of a command names: in PATH when the word has no slash, and relative to dir when it isn't absolute.
func FindProgram(dir, word string) (string, error) {
	switch {
	case !strings.Contains(word, "/"):
		found, err := exec.LookPath(word)
		if err != nil {
			return "", fmt.Errorf("there is no program %s", word)
		}
		return found, nil
	case !filepath.IsAbs(word):
		return filepath.Join(dir, filepath.FromSlash(word)), nil
	}
	return word, nil
}

// stop ends all that runs of the last launch.
func (s *Server) stop(ctx context.Context) error {
	l, err := s.record()
	if err != nil || l == nil {
		return err
	}
	if err := l.end(ctx, s.grace); err != nil {
		return fmt.Errorf("stop the app %s: %w", s.app.Name, err)
	}
	err = s.root.Remove(s.file(".pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// end sends SIGTERM, and SIGKILL to what is left after its grace; it returns when nothing is left.
func (l *launched) end(ctx context.Context, grace time.Duration) error {
	told := map[int]bool{} // groups that know: who handles SIGTERM isn't disturbed again
	done, err := l.until(ctx, grace, func(group int) {
		if !told[group] {
			told[group] = true
			_ = syscall.Kill(-group, syscall.SIGTERM) // one that is gone is gone
		}
	})
	if done || err != nil {
		return err
	}
	done, err = l.until(ctx, killGrace, func(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) })
	if !done && err == nil {
		err = errors.New("what it started goes on after SIGKILL")
	}
	return err
}

// until sends to the groups that are left, again and again, until none is (true) or grace is over.
func (l *launched) until(ctx context.Context, grace time.Duration, send func(group int)) (bool, error) {
	over := time.NewTimer(grace)
	defer over.Stop()
	again := time.NewTicker(stopPoll)
	defer again.Stop()
	for {
		left := l.members()
		if len(left) == 0 {
			return true, nil
		}
		for _, g := range left {
			send(g)
		}
		select {
		case <-again.C:
		case <-over.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// tryLock takes hold of a file until unlock, or the end of the process.
func tryLock(f *os.File) error {
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// unlock lets go of a file and closes it. Closing alone would leave it to a program that this process is about to start, which has copies of all open files
// until it runs.
func unlock(f *os.File) error {
	return errors.Join(syscall.Flock(int(f.Fd()), syscall.LOCK_UN), f.Close())
}
