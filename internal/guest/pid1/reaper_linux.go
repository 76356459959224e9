package pid1

import (
	"errors"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ending is how a child ended.
type ending struct {
	status syscall.WaitStatus
	cpu    time.Duration // of the child and of all descendants that were waited for
}

// reaper waits for every child of PID 1: its own commands and the orphans that the kernel hands it. It sleeps in the kernel.
type reaper struct {
	mu      sync.Mutex // held while a child is started, so that none is reaped before it is known
	waiting map[int]chan ending
	wake    chan struct{} // a child was started
}

func newReaper() *reaper {
	return &reaper{waiting: map[int]chan ending{}, wake: make(chan struct{}, 1)}
}

// start runs fork, which answers the new child's pid, and answers the channel that gets its end.
func (r *reaper) start(fork func() (int, error)) (int, <-chan ending, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return 0, nil, err
	}
	ch := make(chan ending, 1)
	r.waiting[pid] = ch
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return pid, ch, nil
}

// loop reaps for ever.
func (r *reaper) loop() {
	for {
		pid, err := peek()
		switch {
		case errors.Is(err, unix.ECHILD):
			<-r.wake // nothing to wait for until a command starts: orphans come from commands
		case err == nil:
			r.reap(pid)
		}
	}
}

func (r *reaper) reap(pid int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var status syscall.WaitStatus
	var usage syscall.Rusage
	// A child whose program couldn't be started is waited for by the fork itself: then there is nothing here.
	got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, &usage)
	if err != nil || got != pid {
		return
	}
	if ch := r.waiting[pid]; ch != nil {
		delete(r.waiting, pid)
		ch <- ending{status, time.Duration(usage.Utime.Nano() + usage.Stime.Nano())}
	}
}

// peek sleeps until some child has ended, and leaves it as a zombie.
func peek() (int, error) {
	for {
		var info struct {
			signo, errno, code, _ int32
			pid                   int32
			_                     [108]byte
		}
		err := unix.Waitid(unix.P_ALL, 0, (*unix.Siginfo)(unsafe.Pointer(&info)), unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return int(info.pid), err
		}
	}
}
