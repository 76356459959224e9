package pid1

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

func testLease(t *testing.T, d time.Duration) (*lease, <-chan struct{}, string) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "slot")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	var once atomic.Int32
	l, err := newLease(f, d, func() {
		if once.Add(1) > 1 {
			t.Error("the lease ended twice")
			return
		}
		close(ended)
	})
	if err != nil {
		t.Fatal(err)
	}
	return l, ended, name
}

// However renewals and the end race, a lease ends exactly once, never before the deadline that was armed last, and no renewal succeeds after it.
func TestRenewalsRaceTheEnd(t *testing.T) {
	rounds := 500
	if testing.Short() {
		rounds = 100
	}
	if os.Getenv("AGENTENV_SOAK") != "" {
		rounds = 10_000
	}
	for range rounds {
		l, ended, _ := testLease(t, time.Duration(rand.IntN(1500)+1)*time.Microsecond)
		for range 10 {
			time.Sleep(time.Duration(rand.IntN(600)) * time.Microsecond)
			err := l.renew(time.Duration(rand.IntN(1500)+1) * time.Microsecond)
			if errors.Is(err, guest.ErrGone) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			oneDeadline(t, l)
		}
		at := l.deadline()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal("the lease never ended")
		}
		now, err := bootNow()
		if err != nil {
			t.Fatal(err)
		}
		if now < at {
			t.Fatalf("it ended %s early", time.Duration(at-now))
		}
		if err := l.renew(time.Hour); !errors.Is(err, guest.ErrGone) {
			t.Fatalf("renewed after its end: %v", err)
		}
		l.timer.Close()
		l.file.Close()
	}
}

// oneDeadline looks at the kernel's timer: it is armed for the one deadline that the lease has, unless that has passed.
func oneDeadline(t *testing.T, l *lease) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var left unix.ItimerSpec
	if err := unix.TimerfdGettime(l.fd, &left); err != nil {
		t.Fatal(err)
	}
	now, err := bootNow()
	if err != nil {
		t.Fatal(err)
	}
	armed := unix.TimespecToNsec(left.Value)
	if armed == 0 && now >= l.at {
		return // it has fired
	}
	if off := now + armed - l.at; off < 0 || off > int64(time.Second) { // as much as passed between the two looks
		t.Fatalf("the timer is armed for %s beside the deadline", time.Duration(off))
	}
	if left.Interval != (unix.Timespec{}) {
		t.Fatal("the timer is armed for more than one deadline")
	}
}

// A box that ends for another reason tells that one, whatever its lease does meanwhile, and tells the first of several.
func TestCauseIsKept(t *testing.T) {
	l, _, name := testLease(t, time.Hour)
	l.mark(guest.CauseDisk)
	l.mark(guest.CauseRemoved)
	if err := l.renew(time.Hour); !errors.Is(err, guest.ErrGone) {
		t.Errorf("renewed after its end: %v", err)
	}
	if b, err := os.ReadFile(name); err != nil || len(b) != 21 || strings.TrimSpace(string(b)) != guest.CauseDisk {
		t.Errorf("%q, %v", b, err)
	}
}

func TestLeaseIsWritten(t *testing.T) {
	l, _, name := testLease(t, time.Hour)
	for _, d := range []time.Duration{time.Minute, 10 * 365 * 24 * time.Hour, time.Hour} {
		if err := l.renew(d); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(name)
		if err != nil || len(b) != 21 {
			t.Fatalf("%q, %v", b, err)
		}
		at, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil || at != l.deadline() {
			t.Errorf("written %q, armed %d", b, l.deadline())
		}
	}
	for _, d := range []time.Duration{0, -time.Second} {
		if err := l.renew(d); !errors.Is(err, os.ErrInvalid) {
			t.Errorf("a lease of %s: %v", d, err)
		}
	}
	if l.deadline() == 0 {
		t.Error("a refused renewal changed the deadline")
	}
}
