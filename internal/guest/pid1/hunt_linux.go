package pid1

import (
	"bytes"
	"maps"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// process is one process of the box as /proc tells of it.
type process struct {
	parent int
	start  string // when it began, in ticks: with its pid it is unmistakable
	alive  bool
}

type table map[int]process

// processes reads them all. What ends meanwhile may be missing.
func processes() (table, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	t := table{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProcess(name); ok {
			t[pid] = p
		}
	}
	return t, nil
}

// readProcess reads a process's stat line. A zombie whose other threads go on is alive.
func readProcess(pid string) (process, bool) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return process{}, false
	}
	return parseStat(b)
}

// parseStat reads "pid (name) state ppid …"; the name may hold anything.
func parseStat(b []byte) (process, bool) {
	_, rest, ok := bytes.Cut(b, []byte(" ("))
	i := bytes.LastIndex(rest, []byte(") "))
	if !ok || i < 0 {
		return process{}, false
	}
	f := bytes.Fields(rest[i+2:])
	const state, parent, threads, start = 0, 1, 17, 19
	if len(f) <= start {
		return process{}, false
	}
	ppid, err := strconv.Atoi(string(f[parent]))
	if err != nil {
		return process{}, false
	}
	n, _ := strconv.Atoi(string(f[threads]))
	dead := len(f[state]) == 1 && (f[state][0] == 'Z' || f[state][0] == 'X') && n <= 1
	return process{parent: ppid, start: string(f[start]), alive: !dead}, true
}

// below are the living descendants of roots, without these.
func (t table) below(roots map[int]bool) map[int]process {
	in := map[int]process{}
	for grown := true; grown; {
		grown = false
		for pid, p := range t {
			_, known := in[pid]
			_, ofOurs := in[p.parent]
			if !known && !roots[pid] && (roots[p.parent] || ofOurs) {
				in[pid] = p
				grown = true
			}
		}
	}
	for pid, p := range in {
		if !p.alive {
			delete(in, pid)
		}
	}
	return in
}

// orphans are the children of PID 1 that it didn't start, with all below them.
func (r *reaper) orphans() (map[int]process, error) {
	r.mu.Lock() // none is started between the look and the judgement
	defer r.mu.Unlock()
	all, err := processes()
	if err != nil {
		return nil, err
	}
	roots := map[int]bool{}
	found := map[int]process{}
	for pid, p := range all {
		if _, ours := r.waiting[pid]; p.parent == 1 && !ours {
			roots[pid] = true
			if p.alive {
				found[pid] = p
			}
		}
	}
	maps.Copy(found, all.below(roots))
	return found, nil
}

// hunt kills what find finds until it finds nothing, and tells how many there were. They are stopped before they are killed, so that none
// forks away from its killer. between, which may be nil, is called after each kill.
func hunt(find func() (map[int]process, error), between func()) (int, error) {
	fds := map[string]int{}
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	for until := time.Now().Add(killLimit); time.Now().Before(until); {
		prey, err := find()
		if err != nil || len(prey) == 0 {
			return len(fds), err
		}
		fresh := false
		for pid, p := range prey {
			id := strconv.Itoa(pid)
			if _, known := fds[id+"/"+p.start]; known {
				continue
			}
			fd, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				continue // ended
			}
			if now, ok := readProcess(id); !ok || now.start != p.start { // the pid changed hands
				unix.Close(fd)
				continue
			}
			fds[id+"/"+p.start] = fd
			unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0)
			fresh = true
		}
		if fresh {
			continue // until a look finds nobody new
		}
		for _, fd := range fds {
			unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		if between != nil {
			between()
		}
		time.Sleep(500 * time.Microsecond)
	}
	return len(fds), errUnkillable
}
