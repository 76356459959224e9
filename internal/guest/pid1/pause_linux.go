package pid1

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// pauseLimit is how long stopping everything may take.
const pauseLimit = 3 * time.Second

// hurried writes to a client for whom the box stands still: one that doesn't read any more must not hold it.
type hurried struct{ c *guest.Conn }

// readLimit is how long a client may take to read on.
const readLimit = 30 * time.Second

func (h hurried) Write(p []byte) (int, error) {
	if err := h.c.SetDeadline(time.Now().Add(readLimit)); err != nil {
		return 0, err
	}
	return guest.DataWriter{Conn: h.c}.Write(p)
}

// pause stops every process of the box, and nothing starts, or is written by PID 1 itself, until resume. What was stopped before stays so. An error says
// which process can't be stopped; then all go on.
func (s *server) pause() (resume func(), err error) {
	s.still.Lock()
	stopped := map[int]victim{}
	goOn := func() {
		for _, v := range stopped {
			_ = unix.PidfdSendSignal(v.fd, unix.SIGCONT, nil, 0) // it has ended, or goes on
			unix.Close(v.fd)
		}
		clear(stopped)
	}
	resume = func() {
		goOn()
		s.still.Unlock()
	}
	before := map[int]bool{} // stopped by somebody else
	again := time.Now().Add(pauseLimit / 10)
	for first, until := true, time.Now().Add(pauseLimit); ; first = false {
		running, err := stopAll(first, before, stopped)
		if err == nil && running == "" {
			return resume, nil
		}
		if err == nil && time.Now().After(until) {
			err = fmt.Errorf("the process %s can't be stopped now: %w", running, unix.EBUSY)
		}
		if err != nil {
			resume()
			return nil, err
		}
		if time.Now().After(again) { // one may wait for another that was stopped, as after a vfork
			goOn()
			again = time.Now().Add(pauseLimit / 10)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// stopAll looks through the box once and stops what runs. It answers some process that didn't stand still when it looked, "" for none.
func stopAll(first bool, before map[int]bool, stopped map[int]victim) (string, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return "", err
	}
	names, err := dir.Readdirnames(-1)
	dir.Close()
	if err != nil {
		return "", err
	}
	running := ""
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == 1 || before[pid] || still(name) {
			if err == nil && first && pid != 1 && stoppedState(name) {
				before[pid] = true
			}
			continue
		}
		running = name
		if comm, err := os.ReadFile("/proc/" + name + "/comm"); err == nil {
			running = name + " (" + strings.TrimSpace(string(comm)) + ")"
		}
		v, known := stopped[pid]
		if !known {
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue // gone meanwhile
			}
			v = victim{pid, fd}
			stopped[pid] = v
		}
		if err := unix.PidfdSendSignal(v.fd, unix.SIGSTOP, nil, 0); err != nil && known { // the pid is another's now
			unix.Close(v.fd)
			delete(stopped, pid)
		}
	}
	return running, nil
}

// still tells whether no thread of a process runs.
func still(pid string) bool {
	tasks, err := os.ReadDir("/proc/" + pid + "/task")
	if err != nil {
		return true // gone
	}
	for _, t := range tasks {
		switch state("/proc/" + pid + "/task/" + t.Name() + "/stat") {
		case 'T', 't', 'Z', 'X', 0:
		default:
			return false
		}
	}
	return true
}

func stoppedState(pid string) bool { return state("/proc/"+pid+"/stat") == 'T' }

// state is the letter of a thread's state, 0 when it has gone.
func state(file string) byte {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	at := bytes.LastIndexByte(b, ')') // the name before it may hold anything
	if at < 0 || at+2 >= len(b) {
		return 0
	}
	return b[at+2]
}
