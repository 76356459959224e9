package pid1

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// A mark is a uts namespace made for one command. Every descendant is born into it, no session, double fork or exec leaves it, and
// nothing in the box may make or enter another: it needs CAP_SYS_ADMIN, which only the spawner has. So who carries it is the command's.
// Its host name is that of the box, like all of them.
type mark struct {
	ns  *os.File // keeps the number from being given to another namespace
	ino uint64
}

// newMark gives the calling thread a new namespace; the children it starts until the next call carry the mark.
func newMark() (*mark, error) {
	if err := unix.Unshare(unix.CLONE_NEWUTS); err != nil {
		return nil, fmt.Errorf("mark the command: %w", err)
	}
	fd, err := unix.Open("/proc/thread-self/ns/uts", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("mark the command: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("mark the command: %w", err)
	}
	return &mark{os.NewFile(uintptr(fd), "mark"), st.Ino}, nil
}

func (m *mark) close() { m.ns.Close() }

// killLimit is how long killing may take before the whole box goes instead.
const killLimit = 3 * time.Second

// errUnkillable: processes outran their killer.
var errUnkillable = errors.New("the command's processes could not be killed")

// kill ends every process that carries the mark and tells how many there were. They are stopped before they are killed, so that none
// forks away from its killer. When it answers nil none is left.
func (m *mark) kill() (int, error) {
	var known []victim
	defer func() {
		for _, v := range known {
			unix.Close(v.fd)
		}
	}()
	seen := map[int]bool{}
	for until := time.Now().Add(killLimit); time.Now().Before(until); {
		all, err := m.carriers(seen)
		if err != nil {
			return len(known), err
		}
		if len(all.fresh) > 0 {
			for _, v := range all.fresh {
				unix.PidfdSendSignal(v.fd, unix.SIGSTOP, nil, 0)
			}
			known = append(known, all.fresh...)
			continue // until a look finds nobody new
		}
		if all.alive == 0 {
			return len(known), nil
		}
		for _, v := range known {
			unix.PidfdSendSignal(v.fd, unix.SIGKILL, nil, 0)
		}
		time.Sleep(500 * time.Microsecond)
		clear(seen) // a pid may be another process now
		for _, v := range known {
			if unix.PidfdSendSignal(v.fd, 0, nil, 0) == nil {
				seen[v.pid] = true
			}
		}
	}
	return len(known), errUnkillable
}

type victim struct{ pid, fd int }

type carriers struct {
	fresh []victim // not in seen before
	alive int
}

// carriers looks through the box for processes with the mark, and adds them to seen.
func (m *mark) carriers(seen map[int]bool) (carriers, error) {
	var c carriers
	dir, err := os.Open("/proc")
	if err != nil {
		return c, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return c, err
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == 1 || !m.on(name) {
			continue
		}
		c.alive++
		if seen[pid] {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		if !m.on(name) { // the pid changed hands
			unix.Close(fd)
			continue
		}
		seen[pid] = true
		c.fresh = append(c.fresh, victim{pid, fd})
	}
	return c, nil
}

// on tells whether the process carries the mark. A zombie carries none. A program that its user may execute but not read hides its
// namespaces even from PID 1: then it counts as marked, since nothing may outlive its command's limit.
func (m *mark) on(pid string) bool {
	var st unix.Stat_t
	err := unix.Stat("/proc/"+pid+"/ns/uts", &st)
	return err == nil && st.Ino == m.ino || errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM)
}
