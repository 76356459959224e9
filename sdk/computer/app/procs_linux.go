package app

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// process is one of the system.
type process struct {
	pid, group, session int
	start               uint64 // in ticks since the boot
	dead                bool   // it has ended, and nobody has asked how
}

// read is a process as the system tells of it now; false when it is gone.
func read(pid int) (process, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	// The name may hold anything, and is the only thing that may hold a parenthesis.
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 20 {
		return process{}, false
	}
	p := process{pid: pid, dead: f[0][0] == 'Z' || f[0][0] == 'X'}
	var errs [3]error
	p.group, errs[0] = strconv.Atoi(string(f[2]))
	p.session, errs[1] = strconv.Atoi(string(f[3]))
	p.start, errs[2] = strconv.ParseUint(string(f[19]), 10, 64)
	return p, errs == [3]error{}
}

// started is when a process began, in ticks since the boot.
func started(pid int) (uint64, error) {
	p, ok := read(pid)
	if !ok {
		return 0, fmt.Errorf("there is no process %d", pid)
	}
	return p.start, nil
}

// members are the groups in which something of the launch runs: its own and those that its session has beside it.
func (l *launched) members() []int {
	if p, ok := read(l.PID); ok && p.start != l.Start {
		return nil // the number is another's now, which it could become only after the group had ended
	}
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer func() { _ = d.Close() }() // only read
	names, _ := d.Readdirnames(-1)   // what was read counts
	var groups []int
	seen := map[int]bool{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		p, ok := read(pid)
		if ok && !p.dead && (p.group == l.Group || p.session == l.Group) && !seen[p.group] {
			seen[p.group] = true
			groups = append(groups, p.group)
		}
	}
	return groups
}
