package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// process says which process made or drives a run, so that another one on this machine can tell whether it is gone.
type process struct {
	host    string
	pid     int
	started int64  // in the machine's own ticks; 0 where it can't be told
	boot    string // the machine's boot and the pid namespace: pids of two places mean nothing to each other
}

func self() process {
	host, _ := os.Hostname()
	p := process{host: host, pid: os.Getpid(), boot: place()}
	p.started, _ = startTime(p.pid)
	return p
}

// gone tells for sure that p has ended, as seen from the process me. Of processes elsewhere it knows nothing.
func (p process) gone(me process) bool {
	if p.boot == "" || p.boot != me.boot || p.host != me.host || p.pid <= 0 {
		return false
	}
	if errors.Is(unix.Kill(p.pid, 0), unix.ESRCH) {
		return true
	}
	started, alive := startTime(p.pid)
	return !alive || p.started != 0 && started != 0 && started != p.started
}
