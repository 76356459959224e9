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

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/sandbox/hostside"
	"agentenv.internal/agentenv/internal/subid"
)

// child is the PID 1 of a box that this process started.
type child struct {
	pid   int
	proc  *hostside.Process
	birth *guest.Conn // a tied box lives while it is open
	tied  bool
	ended chan struct{}
}

// fork starts the guest program as PID 1 of new namespaces. base is where the box's ids begin outside.
// ids, where the caller has a range of them, are given to the box; nil: see base.
func (p *Provider) fork(ctx context.Context, base int, ids *subid.Range, log *os.File) (*child, error) {
	near, far, err := hostside.SocketPair()
	if err != nil {
		return nil, err
	}
	defer near.Close()
	defer far.Close()
	conn, err := net.FileConn(near)
	if err != nil {
		return nil, fmt.Errorf("open the birth socket: %w", err)
	}
	l := &guest.Launch{UID: base, GID: base, Size: idRange}
	if !p.host.wide {
		l = &guest.Launch{UID: p.host.uid, GID: p.host.gid, Size: 1}
	}
	l.Unmapped = ids != nil
	pid, proc, err := p.launcher.Fork(ctx, l, far, log)
	if err != nil {
		conn.Close()
		if failed := (*hostside.LaunchError)(nil); errors.As(err, &failed) {
			return nil, namespaceError(failed.Err)
		}
		return nil, err
	}
	if ids != nil {
		err := ids.Map(ctx, pid)
		if err == nil {
			_, err = conn.Write([]byte{1})
		}
		if err != nil {
			conn.Close() // which ends it
			proc.Close()
			return nil, fmt.Errorf("give the sandbox its ids: %w", err)
		}
	}
	return &child{pid: pid, proc: proc, birth: guest.NewConn(conn.(*net.UnixConn)), ended: make(chan struct{})}, nil
}

// boot tells the child what to be, and answers its word and the TUN that it made, if any. files stay the caller's.
func (c *child) boot(ctx context.Context, b *guest.Boot, files []*os.File) (_ *guest.Booted, tun *os.File, _ error) {
	stop := context.AfterFunc(ctx, func() { c.birth.SetDeadline(time.Now()) })
	defer stop()
	if err := c.birth.SendJSON(guest.FrameRequest, guest.Request{Op: guest.OpBoot, Boot: b}, files...); err != nil {
		return nil, nil, fmt.Errorf("send the boot message: %w", err)
	}
	var reply guest.Reply
	if err := c.birth.RecvJSON(guest.FrameReply, &reply); err != nil {
		if ctx.Err() != nil {
			return nil, nil, context.Cause(ctx)
		}
		return nil, nil, fmt.Errorf("the sandbox's init process ended early: %w", err)
	}
	if err := reply.Fault.Err(); err != nil {
		return nil, nil, err
	}
	if reply.Boot == nil {
		return nil, nil, errors.New("the sandbox's init process gave no answer")
	}
	if got := c.birth.TakeFiles(); len(got) > 0 {
		tun = got[0]
	}
	return reply.Boot, tun, nil
}

// watch waits for the child's end and tells by c.ended. It runs once, in a goroutine of the provider.
func (c *child) watch() {
	defer close(c.ended)
	if c.proc.Ended() != nil {
		return // let go of
	}
	c.birth.Close()
	c.proc.Close()
}

// letGo stops watching a child that is to outlive this provider.
func (c *child) letGo() {
	c.proc.LetGo()
	<-c.ended
	c.birth.Close()
	c.proc.Close()
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
