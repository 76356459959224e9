package pid1

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// home is where commands run that name no folder.
const home = "/root"

// exec starts one command, which answers its client when it has ended, and when it has been killed, if the client hangs up before.
func (s *server) exec(c *guest.Conn, r *guest.Request, files *[]*os.File) (*running, error) {
	if r.Command == nil || len(r.Command.Argv) == 0 || r.Command.Argv[0] == "" {
		return nil, fmt.Errorf("a command needs at least its program: %w", fs.ErrInvalid)
	}
	p, err := s.prepare(r, *files)
	if err != nil {
		return nil, err
	}
	var term *terminal
	if r.Command.TTY != nil {
		if term, err = openTerminal(r.Command.TTY, p); err != nil {
			return nil, err
		}
		defer term.close()
	}
	x := &running{
		s: s, c: c, request: r, begin: time.Now(), kills: s.memory.kills(), refused: s.refused.read(),
		end: make(chan ending, 1), answered: make(chan struct{}),
	}
	if err := x.start(p, files, term); err != nil {
		if x.stopping {
			x.kill()
		}
		return nil, err
	}
	return x, nil
}

// mustKill kills all that the command started. If it can't, the box ends: nothing outlives its limits.
func (s *server) mustKill(r *started) int {
	n, err := r.mark.kill()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox: end the box:", err)
		s.die(guest.CauseLimit)
	}
	return n
}

// limit lowers what a command may take. It runs right after the start; what forked before is still held by the box's own limits.
func (s *server) limit(pid int) {
	if s.pids > 0 {
		l := unix.Rlimit{Cur: s.pids, Max: s.pids}
		_ = unix.Prlimit(pid, unix.RLIMIT_NPROC, &l, nil) // fails where it has ended already, or where it has less
	}
	if s.memory.limit > 0 {
		l := unix.Rlimit{Cur: uint64(s.memory.limit), Max: uint64(s.memory.limit)}
		_ = unix.Prlimit(pid, unix.RLIMIT_DATA, &l, nil)
	}
	// When memory is short a command goes before PID 1, whose end would take the whole box.
	_ = writeOver("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", "300")
}

func (s *server) prepare(r *guest.Request, files []*os.File) (*program, error) {
	p := &program{argv: r.Command.Argv, dir: r.Command.Dir}
	base, from := s.env, home
	if user := cmp.Or(r.Command.User, s.user); user != "" {
		var err error
		if p.as, err = lookUser(user); err != nil {
			return nil, err
		}
		base, from = mergeEnv(base, p.as.env()), p.as.folder()
	}
	from = cmp.Or(s.dir, from)
	p.env = mergeEnv(base, r.Command.Env)
	if !path.IsAbs(p.dir) {
		p.dir = path.Join(from, p.dir)
	}
	if info, err := os.Stat(p.dir); err != nil {
		return nil, err
	} else if !info.IsDir() {
		return nil, &fs.PathError{Op: "chdir", Path: p.dir, Err: syscall.ENOTDIR}
	}
	var err error
	if p.path, err = lookPath(p.argv[0], p.dir, p.env); err != nil {
		return nil, err
	}
	for i := range p.stdio {
		p.stdio[i] = s.null.Fd()
		if !r.Stdio[i] {
			continue
		}
		if len(files) == 0 {
			return nil, fmt.Errorf("the command's descriptors are missing: %w", fs.ErrInvalid)
		}
		p.stdio[i] = files[0].Fd()
		files = files[1:]
		if _, err := unix.IoctlGetTermios(int(p.stdio[i]), unix.TCGETS); err == nil {
			return nil, fmt.Errorf("a terminal is not handed into a sandbox: %w", fs.ErrInvalid)
		}
	}
	return p, nil
}

// mergeEnv adds b to a; a later entry of a name wins, in the place of the first.
func mergeEnv(a, b []string) []string {
	env := make([]string, 0, len(a)+len(b))
	at := make(map[string]int, len(a)+len(b))
	for _, list := range [][]string{a, b} {
		for _, kv := range list {
			name, _, ok := strings.Cut(kv, "=")
			if !ok || name == "" || strings.ContainsRune(kv, 0) {
				continue
			}
			if i, seen := at[name]; seen {
				env[i] = kv
				continue
			}
			at[name] = len(env)
			env = append(env, kv)
		}
	}
	return env
}

// lookPath finds a program as a shell of the box would.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') {
		full := name
		if !path.IsAbs(full) {
			full = path.Join(dir, full)
		}
		return full, executable(name, full)
	}
	var search string
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	if search == "" {
		return "", &fs.PathError{Op: "start", Path: name, Err: syscall.ENOENT}
	}
	var denied error
	for folder := range strings.SplitSeq(search, ":") {
		if folder == "" {
			folder = "."
		}
		full := path.Join(folder, name)
		if !path.IsAbs(full) {
			full = path.Join(dir, full)
		}
		err := executable(name, full)
		if err == nil {
			return full, nil
		}
		if errors.Is(err, fs.ErrPermission) && denied == nil {
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &fs.PathError{Op: "start", Path: name, Err: syscall.ENOENT}
}

func executable(name, full string) error {
	info, err := os.Stat(full)
	switch {
	case err != nil:
		return &fs.PathError{Op: "start", Path: name, Err: errors.Unwrap(err)}
	case info.IsDir():
		return &fs.PathError{Op: "start", Path: name, Err: syscall.EISDIR}
	case info.Mode()&0o111 == 0:
		return &fs.PathError{Op: "start", Path: name, Err: syscall.EACCES}
	}
	return nil
}
