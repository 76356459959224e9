package pid1

import (
	"errors"
	"fmt"
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
	mu      sync.Mutex           // held while a child is started, so that none is reaped before it is known
	waiting map[int]func(ending) // who is told of a child's end; nil: nobody
	idle    bool                 // there is no child to wait for
	// started tells that one was started. It wakes just the thread that sleeps in the kernel for it, where a channel would have the runtime wake
	// another to look for work.
	started counting
}

func newReaper() (*reaper, error) {
	started, err := newCounting()
	if err != nil {
		return nil, err
	}
	return &reaper{waiting: map[int]func(ending){}, started: started}, nil
}

// start runs fork, which answers the new child's pid. over, which may be nil, is called by the reaper when the child has ended.
func (r *reaper) start(fork func() (int, error), over func(ending)) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := fork()
	if err != nil {
		return 0, err
	}
	r.waiting[pid] = over
	if r.idle {
		r.idle = false
		r.started.add()
	}
	return pid, nil
}

// loop reaps for ever.
func (r *reaper) loop() {
	for {
		pid, err := peek()
		switch {
		case errors.Is(err, unix.ECHILD):
			r.rest()
		case err == nil:
			r.reap(pid)
		}
	}
}

// rest sleeps until a child is started: orphans come from such.
func (r *reaper) rest() {
	r.mu.Lock()
	if r.idle = len(r.waiting) == 0; !r.idle {
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	r.started.await()
}

func (r *reaper) reap(pid int) {
	if over, e := r.take(pid); over != nil {
		over(e)
	}
}

// take waits for a child that has ended, and answers who is told of it.
func (r *reaper) take(pid int) (func(ending), ending) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var status syscall.WaitStatus
	var usage syscall.Rusage
	// A child whose program couldn't be started is waited for by the fork itself: then there is nothing here.
	got, err := syscall.Wait4(pid, &status, syscall.WNOHANG, &usage)
	if err != nil || got != pid {
		return nil, ending{}
	}
	over := r.waiting[pid]
	delete(r.waiting, pid)
	return over, ending{status, time.Duration(usage.Utime.Nano() + usage.Stime.Nano())}
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

// counting is an event counter of the kernel's.
type counting int

func newCounting() (counting, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return -1, fmt.Errorf("make an event counter: %w", err)
	}
	return counting(fd), nil
}

// add lets one await go on. It can't fail: the counter never comes near its end.
func (c counting) add() {
	one := [8]byte{0: 1} // all machines here are little endian
	for {
		if _, err := unix.Write(int(c), one[:]); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// await sleeps in the kernel until add has been called.
func (c counting) await() {
	var n [8]byte
	for {
		if _, err := unix.Read(int(c), n[:]); !errors.Is(err, unix.EINTR) {
			return
		}
	}
}
