package pid1

import (
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// lease is the one deadline of the box, on the boot clock: it goes on while the machine sleeps, and no change of the date moves it.
type lease struct {
	timer *os.File // a timerfd in the poller
	fd    int      // of timer, which stays open for ever
	end   func()   // ends the box

	mu   sync.Mutex
	file *os.File // outside's copy of the deadline
	at   int64
	over bool // no renewal succeeds any more
	// marked: file tells why the box ends.
	marked bool
}

func newLease(file *os.File, d time.Duration, end func()) (*lease, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make the lease's timer: %w", err)
	}
	l := &lease{timer: os.NewFile(uintptr(fd), "lease"), fd: fd, end: end, file: file}
	if err := l.renew(d); err != nil {
		return nil, err
	}
	go l.wait()
	return l, nil
}

// wait ends the box at the deadline. The timer reads as fired only for the deadline that is armed when it is read.
func (l *lease) wait() {
	var buf [8]byte
	for {
		if _, err := l.timer.Read(buf[:]); err != nil {
			continue // the timer was set anew while it was read
		}
		l.mu.Lock()
		if now, err := bootNow(); err == nil && now < l.at {
			l.mu.Unlock() // renewed between the firing and here
			continue
		}
		l.over = true
		l.mu.Unlock()
		l.end()
		return
	}
}

// renew arms the deadline d from now and tells outside.
func (l *lease) renew(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("a lease of %s: %w", d, os.ErrInvalid)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, err := bootNow()
	if err != nil {
		return err
	}
	if l.over {
		return guest.ErrGone
	}
	at := now + int64(d)
	if at < now {
		return fmt.Errorf("a lease of %s: %w", d, os.ErrInvalid)
	}
	spec := unix.ItimerSpec{Value: unix.NsecToTimespec(at)}
	if err := unix.TimerfdSettime(l.fd, unix.TFD_TIMER_ABSTIME, &spec, nil); err != nil {
		return fmt.Errorf("arm the lease: %w", err)
	}
	l.at = at
	if _, err := l.file.WriteAt(fmt.Appendf(nil, guest.LeaseFormat, at), 0); err != nil {
		return fmt.Errorf("record the lease: %w", err)
	}
	return nil
}

// mark tells outside, in the place of the deadline, why the box ends. The first cause stays, and no renewal succeeds any more.
func (l *lease) mark(cause string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.marked {
		return
	}
	l.marked, l.over = true, true
	_, _ = l.file.WriteAt(fmt.Appendf(nil, guest.CauseFormat, cause), 0) // the end is the same without it
}

func (l *lease) deadline() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at
}

func bootNow() (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read the boot clock: %w", err)
	}
	return ts.Nano(), nil
}
