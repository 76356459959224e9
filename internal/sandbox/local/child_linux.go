package local

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
)

// child is the PID 1 of a box that this process started.
type child struct {
	pid    int
	proc   *pidfd
	birth  *guest.Conn // a tied box lives while it is open
	tied   bool
	reaped chan struct{}
}

// namespaces are what a box has of its own.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET | unix.CLONE_NEWCGROUP

// fork starts the guest program as PID 1 of new namespaces. base is where the box's ids begin outside.
func (p *Provider) fork(base int, tied bool, log *os.File) (*child, error) {
	program, err := p.program.get()
	if err != nil {
		return nil, err
	}
	near, far, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	defer near.Close()
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	pidFD := -1
	sys := &syscall.SysProcAttr{Cloneflags: namespaces, Setsid: true, PidFD: &pidFD}
	if tied {
		sys.Pdeathsig = syscall.SIGKILL
	}
	if p.host.wide {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: base, Size: idRange}}
		sys.UidMappings, sys.GidMappings, sys.GidMappingsEnableSetgroups = ids, ids, true
		sys.Credential = &syscall.Credential{} // the host's root has no name in there; this is the box's
	} else {
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: p.host.uid, Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: p.host.gid, Size: 1}}
	}
	attr := &syscall.ProcAttr{Dir: "/", Env: []string{}, Files: []uintptr{null.Fd(), null.Fd(), log.Fd(), far.Fd()}, Sys: sys}
	c := &child{reaped: make(chan struct{})}
	p.forker.do(func() { c.pid, err = syscall.ForkExec(program, []string{guest.Argv0}, attr) })
	if err != nil {
		return nil, namespaceError(err)
	}
	if err := unix.SetNonblock(pidFD, true); err != nil {
		return nil, fmt.Errorf("watch the sandbox: %w", err)
	}
	c.proc = newPidfd(pidFD)
	conn, err := net.FileConn(near)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the birth socket: %w", err), c.end(pidFD))
	}
	c.birth = guest.NewConn(conn.(*net.UnixConn))
	return c, nil
}

func socketPair() (near, far *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the birth socket: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "birth"), os.NewFile(uintptr(fds[1]), "birth"), nil
}

// boot tells the child what to be, and answers its word. files stay the caller's.
func (c *child) boot(ctx context.Context, b *guest.Boot, files []*os.File) (*guest.Booted, error) {
	stop := context.AfterFunc(ctx, func() { c.birth.SetDeadline(time.Now()) })
	defer stop()
	if err := c.birth.SendJSON(guest.FrameRequest, guest.Request{Op: guest.OpBoot, Boot: b}, files...); err != nil {
		return nil, fmt.Errorf("send the boot message: %w", err)
	}
	var reply guest.Reply
	if err := c.birth.RecvJSON(guest.FrameReply, &reply); err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, fmt.Errorf("the sandbox's init process ended early: %w", err)
	}
	if err := reply.Fault.Err(); err != nil {
		return nil, err
	}
	if reply.Boot == nil {
		return nil, errors.New("the sandbox's init process gave no answer")
	}
	return reply.Boot, nil
}

// reap waits for the child's end, takes its zombie away and tells by c.reaped. It runs once, in a goroutine of the provider.
func (c *child) reap() {
	defer close(c.reaped)
	if c.proc.ended() != nil {
		return // let go of
	}
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, c.pid, &info, unix.WEXITED|unix.WNOHANG, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	c.birth.Close()
	c.proc.close()
}

// letGo stops watching a child that is to outlive this provider.
func (c *child) letGo() {
	c.proc.f.SetReadDeadline(time.Now())
	<-c.reaped
	c.birth.Close()
	c.proc.close()
}

// end kills a child that nobody watches yet.
func (c *child) end(fd int) error {
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return err
	}
	var status unix.WaitStatus
	_, err := unix.Wait4(c.pid, &status, 0, nil)
	c.proc.close()
	return err
}

// namespaceError tells which of the host's settings stands in the way.
func namespaceError(err error) error {
	if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EUSERS) && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EACCES) {
		return fmt.Errorf("start the sandbox's init process: %w", err)
	}
	hints := namespaceHints(readSetting)
	if len(hints) == 0 {
		hints = []string{"no setting that is known tells why"}
	}
	return namespaceRefusal(err, hints)
}

func namespaceRefusal(err error, hints []string) error {
	return fmt.Errorf("this host refuses to make namespaces (%w): %s; or use another sandbox provider, such as docker: %w",
		err, strings.Join(hints, "; "), sandbox.ErrUnsupported)
}

// namespaceHints are the settings that forbid namespaces, each with what to do.
func namespaceHints(read func(string) string) []string {
	var hints []string
	if read("/proc/sys/user/max_user_namespaces") == "0" {
		hints = append(hints, "user.max_user_namespaces is 0 (sysctl -w user.max_user_namespaces=15000)")
	}
	for _, kind := range []string{"mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		if read("/proc/sys/user/max_"+kind+"_namespaces") == "0" {
			hints = append(hints, fmt.Sprintf("user.max_%s_namespaces is 0 (sysctl -w user.max_%s_namespaces=15000)", kind, kind))
		}
	}
	if os.Geteuid() != 0 {
		if read("/proc/sys/kernel/unprivileged_userns_clone") == "0" {
			hints = append(hints, "kernel.unprivileged_userns_clone is 0 (sysctl -w kernel.unprivileged_userns_clone=1)")
		}
		if read("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1" {
			hints = append(hints, "kernel.apparmor_restrict_unprivileged_userns is 1 (sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile that allows userns)")
		}
	}
	return hints
}

func readSetting(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// retryLimit bounds waiting for the kernel to let go of what a dead box held.
const retryLimit = 2 * time.Second

// retry calls f until it succeeds, fails with something else than "busy", or the time is up.
func retry(f func() error) error {
	wait := time.Millisecond
	for until := time.Now().Add(retryLimit); ; wait = min(2*wait, 50*time.Millisecond) {
		err := f()
		if err == nil || !errors.Is(err, syscall.EBUSY) || time.Now().After(until) {
			return err
		}
		time.Sleep(wait)
	}
}
