package pid1

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// namespaces are what a box has of its own.
const namespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWNET |
	unix.CLONE_NEWCGROUP

// runtimeEnv is what the guest's Go runtime is told: an init mostly waits, its heap is small, and it has to cost little on large machines.
var runtimeEnv = []string{"GOMAXPROCS=2", "GOGC=50", "GODEBUG=adaptivestackstart=1"}

// launch starts PID 1s for a provider until that ends. A fork into a new user namespace copies the forking process's page tables, which
// this process has next to none of, while a provider's may be large.
func launch() error {
	runtime.LockOSThread() // boxes that are tied die with the thread that forked them
	conn, err := birthConn()
	if err != nil {
		return err
	}
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	r, err := newReaper()
	if err != nil {
		return err
	}
	go r.loop()
	for {
		var req guest.Request
		err := conn.RecvJSON(guest.FrameRequest, &req)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		files := conn.TakeFiles()
		var reply guest.Reply
		var out []*os.File
		var fd int
		if reply.PID, fd, err = forkInit(r, &req, null, files); err == nil {
			out = append(out, os.NewFile(uintptr(fd), "pidfd"))
		}
		reply.Fault = guest.FaultOf(err)
		err = conn.SendJSON(guest.FrameReply, &reply, out...)
		for _, f := range append(files, out...) {
			f.Close()
		}
		if err != nil {
			return err
		}
	}
}

// forkInit starts one PID 1 and answers its pid and a descriptor of it.
func forkInit(r *reaper, req *guest.Request, null *os.File, files []*os.File) (pid, fd int, err error) {
	l := req.Launch
	if req.Op == guest.OpLaunch && l != nil && l.Host && len(files) == 3 {
		return forkHost(r, l, null, files)
	}
	if req.Op != guest.OpLaunch || l == nil || len(files) != 2 {
		return 0, -1, fmt.Errorf("operation %q: %w", req.Op, errors.ErrUnsupported)
	}
	ids := func(outside int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: 0, HostID: outside, Size: l.Size}}
	}
	sys := &syscall.SysProcAttr{
		Cloneflags: namespaces, Setsid: true, PidFD: &fd,
		UidMappings: ids(l.UID), GidMappings: ids(l.GID),
	}
	if l.Size > 1 { // its ids aren't the caller's, who has no name in there: it becomes the box's root
		sys.GidMappingsEnableSetgroups = true
		sys.Credential = &syscall.Credential{}
	}
	name := guest.Argv0
	if l.Unmapped {
		sys.UidMappings, sys.GidMappings, sys.Credential = nil, nil, nil
		name = guest.WaitingArgv0
	}
	attr := &syscall.ProcAttr{Dir: "/", Env: runtimeEnv, Files: []uintptr{null.Fd(), null.Fd(), files[1].Fd(), files[0].Fd()}, Sys: sys}
	pid, err = r.start(func() (int, error) { return syscall.ForkExec("/proc/self/exe", []string{name}, attr) }, nil)
	return pid, fd, err
}

// forkHost starts a network host, whose program is the third file. It stays in the host's namespaces, with as little power there as it can
// do with.
func forkHost(r *reaper, l *guest.Launch, null *os.File, files []*os.File) (pid, fd int, err error) {
	sys := &syscall.SysProcAttr{Setsid: true, PidFD: &fd}
	if l.Size > 1 {
		sys.Credential = &syscall.Credential{Uid: uint32(l.UID), Gid: uint32(l.GID)}
	}
	program := "/proc/self/fd/" + strconv.Itoa(int(files[2].Fd()))
	attr := &syscall.ProcAttr{Dir: "/", Env: hostEnv, Files: []uintptr{null.Fd(), null.Fd(), files[1].Fd(), files[0].Fd()}, Sys: sys}
	pid, err = r.start(func() (int, error) { return syscall.ForkExec(program, []string{guest.HostArgv0}, attr) }, nil)
	return pid, fd, err
}

// hostEnv is what the Go runtime of a network host is told: a box may make it busy, not large.
var hostEnv = []string{"GOMAXPROCS=2", "GOMEMLIMIT=256MiB"}
