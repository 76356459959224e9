package hostside

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/sandbox"
)

// A slot is a box's file on the host: the lease's end, which PID 1 writes, then a record as one line of JSON. PID 1 holds a POSIX lock on it
// while it lives; whoever makes or removes the box holds a flock.

// LeaseSize is how many bytes of a slot are the lease's, of guest.LeaseFormat.
const LeaseSize = 21

// ValidID keeps a box's id from being a path, or anything but ours where others have names too.
func ValidID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

// WriteRecord replaces a slot's record. The lease before it is PID 1's.
func WriteRecord(slot *os.File, record any) error {
	b, err := json.Marshal(record)
	if err != nil {
		return err
	}
	b = append(b, '\n')
	if _, err := slot.WriteAt(b, LeaseSize); err != nil {
		return fmt.Errorf("record the sandbox: %w", err)
	}
	if err := slot.Truncate(int64(LeaseSize + len(b))); err != nil {
		return fmt.Errorf("record the sandbox: %w", err)
	}
	return nil
}

// Taken tells whether somebody makes or removes the box of a slot.
func Taken(slot *os.File) bool {
	fd := int(slot.Fd())
	if unix.Flock(fd, unix.LOCK_SH|unix.LOCK_NB) != nil {
		return true
	}
	unix.Flock(fd, unix.LOCK_UN)
	return false
}

// whyLimit is how long the kernel may take to end a box whose connections have ended already.
const whyLimit = 100 * time.Millisecond

// Why says in words why a box died, which read tells of; "" when it lives.
func Why(read func() sandbox.Info) string {
	for until := time.Now().Add(whyLimit); ; time.Sleep(time.Millisecond) {
		i := read()
		if i.State == sandbox.StateDead {
			return sandbox.Why(i.Cause)
		}
		if time.Now().After(until) {
			return ""
		}
	}
}

// Wall is a moment of the boot clock, in nanoseconds, on the wall clock.
func Wall(at int64) (time.Time, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Time{}, err
	}
	return time.Now().Add(time.Duration(at - ts.Nano())).UTC().Round(time.Millisecond), nil
}

// HostName is a box's name as its machine's: what names may hold, at most 63 bytes.
func HostName(name, id string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name)
	clean = strings.Trim(clean[:min(len(clean), 63)], "-")
	if clean == "" {
		return id[:min(len(id), 63)]
	}
	return clean
}
