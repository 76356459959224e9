package computer

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// drain is how long output of a command that ended is waited for: what it left in the background may hold its pipes.
const drain = time.Second

// session runs commands as children of this process, each in a session of its own.
type session struct {
	home    string
	work    *sync.WaitGroup // readers of pipes that background children hold
	closing <-chan struct{} // closed: commands are killed, pipes are read no more
}

func newSession(home string, work *sync.WaitGroup, closing <-chan struct{}) *session {
	return &session{home, work, closing}
}

// Run runs a command to its end, or kills all of its process group when its time is over.
func (s *session) Run(_ context.Context, c Command) (CommandResult, error) {
	cmd, err := s.prepare(c)
	if err != nil {
		return CommandResult{}, err
	}
	out, errs, err := s.start(cmd, c.MaxOutput)
	if err != nil {
		return CommandResult{}, err
	}
	exited := make(chan struct{})
	go func() { // ends with the command
		_ = cmd.Wait() // its state tells
		close(exited)
	}()
	var r CommandResult
	t := time.NewTimer(c.Timeout)
	defer t.Stop()
	select {
	case <-exited:
	case <-t.C:
		r.TimedOut = true
	case <-s.closing:
	}
	if killed := r.TimedOut || isClosed(s.closing); killed {
		// An error is one of a group that is gone.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-exited
	}
	if !r.TimedOut {
		code := exitCode(cmd.ProcessState)
		r.ExitCode = &code
	}
	late := time.NewTimer(drain)
	defer late.Stop()
	for _, o := range []*output{out, errs} {
		select {
		case <-o.ended:
		case <-late.C:
			late.Reset(0) // the other one has had its time as well
		}
	}
	var more [2]bool
	r.Stdout, more[0] = out.taken()
	r.Stderr, more[1] = errs.taken()
	r.Truncated = more[0] || more[1]
	return r, nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return -int(ws.Signal())
	}
	return s.ExitCode()
}

func (s *session) prepare(c Command) (*exec.Cmd, error) {
	dir := s.home
	if c.Dir != "" {
		if dir = c.Dir; !filepath.IsAbs(dir) {
			dir = filepath.Join(s.home, dir)
		}
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, Fail(InvalidArgument, "cwd: %s is no folder of this computer", cmp.Or(c.Dir, "the home"))
	}
	vars := os.Environ()
	for name, v := range c.Env {
		vars = slices.DeleteFunc(vars, func(one string) bool { return strings.HasPrefix(one, name+"=") })
		vars = append(vars, name+"="+v)
	}
	program := c.Argv[0]
	if !strings.Contains(program, "/") {
		if program = find(program, vars); program == "" {
			return nil, Fail(InvalidArgument, "argv: there is no program %q", c.Argv[0])
		}
	}
	for _, a := range slices.Concat(c.Argv, vars) {
		if strings.Contains(a, "\x00") {
			return nil, Fail(InvalidArgument, "argv and env can't hold NUL")
		}
	}
	return &exec.Cmd{Path: program, Args: c.Argv, Dir: dir, Env: vars, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}, nil
}

// find is where a program is by the PATH of an environment; "" when it is nowhere.
func find(name string, vars []string) string {
	for _, v := range vars {
		path, ok := strings.CutPrefix(v, "PATH=")
		if !ok {
			continue
		}
		for _, dir := range filepath.SplitList(path) {
			p := filepath.Join(cmp.Or(dir, "."), name)
			if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
				return p
			}
		}
	}
	return ""
}

func (s *session) start(cmd *exec.Cmd, limit int) (out, errs *output, err error) {
	var ends [4]*os.File
	for i := 0; i < 4; i += 2 {
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			closeAll(ends[:])
			return nil, nil, err
		}
	}
	cmd.Stdout, cmd.Stderr = ends[1], ends[3]
	if err := cmd.Start(); err != nil {
		closeAll(ends[:])
		if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) {
			return nil, nil, Fail(LimitExceeded, "the command can't be started: %v", err)
		}
		return nil, nil, Fail(InvalidArgument, "argv: %q can't be started: %v", cmd.Args[0], errors.Unwrap(err))
	}
	closeAll([]*os.File{ends[1], ends[3]})
	return s.read(ends[0], limit), s.read(ends[2], limit), nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// output is what a stream said so far.
type output struct {
	ended chan struct{}
	mu    sync.Mutex
	kept  []byte
	more  bool
}

func (o *output) taken() ([]byte, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.kept, o.more
}

// read takes a stream in until nobody holds its other end; what is beyond the limit is dropped. A child in the background never meets a closed pipe.
func (s *session) read(f *os.File, limit int) *output {
	o := &output{ended: make(chan struct{})}
	s.work.Go(func() {
		stop := make(chan struct{})
		var stopped sync.WaitGroup
		stopped.Go(func() {
			select {
			case <-stop:
			case <-s.closing:
				f.Close() // ends a read
			}
		})
		buf := make([]byte, 32<<10)
		for {
			n, err := f.Read(buf)
			o.mu.Lock()
			keep := min(n, limit-len(o.kept))
			o.kept = append(o.kept, buf[:keep]...)
			o.more = o.more || keep < n
			o.mu.Unlock()
			if err != nil {
				break // io.EOF, or closed
			}
		}
		close(stop)
		stopped.Wait()
		f.Close()
		close(o.ended)
	})
	return o
}
