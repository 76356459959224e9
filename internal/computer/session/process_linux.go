package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"agentenv.internal/agentenv/sdk/computer/app"
)

const stopTime = 5 * time.Second // between asking a process to end and killing it

// process is one that the session looks after.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // once done
}

// program is what is started on the desktop.
type program struct {
	path  string // "": found by the PATH
	argv  []string
	dir   string     // where it starts; "": in the home, where there is one
	vars  []string   // over those of the desktop
	files []*os.File // its descriptors from 3 on
}

func (s *desktop) spawn(p program) (*process, error) {
	if p.path == "" {
		var err error
		if p.path, err = app.FindProgram(p.dir, p.argv[0]); err != nil {
			return nil, err
		}
	}
	cmd := &exec.Cmd{Path: p.path, Args: p.argv, Env: append(s.environ(), p.vars...), Dir: cmp.Or(p.dir, s.folder()), Stdout: s.config.Output, Stderr: s.config.Output, ExtraFiles: p.files}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	return start(cmd)
}

func start(cmd *exec.Cmd) (*process, error) {
	cmd.WaitDelay = time.Second // its children may hold the output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, done: make(chan struct{})}
	go func() { // stop waits for it
		p.err = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// ended is closed when the process ended; nil, which never is, when there is none.
func (p *process) ended() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.done
}

// said is how it ended.
func (p *process) said() error {
	if p.err == nil {
		return errors.New("without an error")
	}
	return p.err
}

// stop ends the process and waits for it.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // one that is gone is gone
	t := time.NewTimer(stopTime)
	defer t.Stop()
	select {
	case <-p.done:
	case <-t.C:
		_ = p.cmd.Process.Kill() // likewise
		<-p.done
	}
}

// RunAs is Run as an ordinary user, for a process of root's: this program is started again as that user, a name or number. In a namespace that knows
// no other user than root, that is a user of a namespace of its own; where none may be made, as in sandboxes of ordinary users, it is that one user,
// who is no root outside.
func RunAs(ctx context.Context, who string, c Config) error {
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: os.Args, Stdin: nil, Stdout: c.Output, Stderr: c.Output}
	id, home, err := find(who, c.Home)
	if err != nil {
		return err
	}
	if err := ensure(home, id, c.OwnHome); err != nil {
		return fmt.Errorf("the home of the desktop's user: %w", err)
	}
	cmd.Env = append(slices.DeleteFunc(slices.Clone(c.Environ), func(v string) bool {
		return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "USER=") || strings.HasPrefix(v, "LOGNAME=") || strings.HasPrefix(v, "XDG_RUNTIME_DIR=")
	}), "HOME="+home, "USER="+id.name, "LOGNAME="+id.name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Credential: &syscall.Credential{Uid: id.uid, Gid: id.gid, Groups: id.groups}}
	p, err := start(cmd)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EPERM) {
		again := &exec.Cmd{Path: cmd.Path, Args: cmd.Args, Stdout: cmd.Stdout, Stderr: cmd.Stderr, Env: cmd.Env}
		again.SysProcAttr = &syscall.SysProcAttr{
			Setpgid: true, Pdeathsig: syscall.SIGTERM, Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: int(id.uid), HostID: 0, Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: int(id.gid), HostID: 0, Size: 1}},
		}
		p, err = start(again)
	}
	if err != nil && alone() {
		c.Log.WarnContext(ctx, "there is no user but this one here, who is root inside alone: the desktop runs as it")
		c.Home, c.Environ = home, cmd.Env
		return run(ctx, c)
	}
	if err != nil {
		return fmt.Errorf("start the desktop as %s: %w", who, err)
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		p.stop()
	}
	if p.err != nil && ctx.Err() == nil {
		return errQuiet{p.err}
	}
	return nil
}

// errQuiet is the end of a process that told why itself.
type errQuiet struct{ error }

// identity is whom the desktop runs as.
type identity struct {
	uid, gid uint32
	groups   []uint32
	name     string
}

func find(who, home string) (identity, string, error) {
	u, err := user.Lookup(who)
	if err != nil {
		u, err = user.LookupId(who)
	}
	if err != nil {
		n, err := strconv.ParseUint(who, 10, 31)
		if err != nil || n == 0 {
			return identity{}, "", fmt.Errorf("there is no user %s that is not root", who)
		}
		if home == "" {
			return identity{}, "", fmt.Errorf("there is no user %s: name another with --user, or say with --home which folder is its home", who)
		}
		return identity{uid: uint32(n), gid: uint32(n), name: "user"}, home, nil
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return identity{}, "", fmt.Errorf("the user %s: %w", who, err)
	}
	if uid == 0 {
		return identity{}, "", errors.New("a desktop doesn't run as root: name another user with --user")
	}
	id := identity{uid: uint32(uid), gid: uint32(gid), name: u.Username}
	groups, err := u.GroupIds()
	if err != nil {
		return identity{}, "", fmt.Errorf("the user %s: %w", who, err)
	}
	for _, g := range groups {
		if n, err := strconv.ParseUint(g, 10, 32); err == nil {
			id.groups = append(id.groups, uint32(n))
		}
	}
	return id, cmp.Or(home, u.HomeDir), nil
}

// alone tells whether root is the only user of this namespace, and an ordinary one outside.
func alone() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && onlyUser(string(b))
}

// onlyUser reads a map of ids: lines of the first inside, the first outside, and how many.
func onlyUser(ids string) bool {
	f := strings.Fields(ids)
	return len(f) == 3 && f[0] == "0" && f[1] != "0" && f[2] == "1"
}

// ensure makes a home that isn't there, or gives one that is, with all in it, to the user when that is wanted.
func ensure(home string, id identity, own bool) error {
	err := os.Mkdir(home, 0o700)
	switch {
	case err == nil:
		return give(home, id)
	case !errors.Is(err, os.ErrExist):
		return err
	case !own:
		return nil
	}
	root, err := os.OpenRoot(home) // what links in it lead to stays whose it is
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return errors.Join(give(home, id), fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return unknown(root.Lchown(path, int(id.uid), int(id.gid)))
	}))
}

func give(home string, id identity) error { return unknown(os.Lchown(home, int(id.uid), int(id.gid))) }

// unknown leaves out what a namespace says that doesn't know the user: root's files are the user's there.
func unknown(err error) error {
	if errors.Is(err, syscall.EINVAL) {
		return nil
	}
	return err
}
