package bundlerun

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Look tells what this machine has left, its control groups included; dir, or the nearest folder above it that exists, is where disk is looked for.
func Look(dir string) Free {
	f := Free{Memory: -1, Disk: -1, Pids: -1}
	for line := range strings.SplitSeq(text("/proc/meminfo"), "\n") {
		if v, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			if kb := number(strings.TrimSuffix(strings.TrimSpace(v), " kB")); kb >= 0 {
				f.Memory = kb << 10
			}
		}
	}
	var st unix.Statfs_t
	for ; ; dir = filepath.Dir(dir) {
		if unix.Statfs(dir, &st) == nil {
			f.Disk = int64(st.Bavail) * st.Bsize
			break
		}
		if dir == filepath.Dir(dir) {
			break
		}
	}
	if most, have := number(text("/proc/sys/kernel/threads-max")), threads(); most >= 0 && have >= 0 {
		f.Pids = most - have
	}
	f.cgroups()
	return f
}

// cgroups lowers f to what the control groups of this process allow, v2 and v1.
func (f *Free) cgroups() {
	for line := range strings.SplitSeq(strings.TrimSpace(text("/proc/self/cgroup")), "\n") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 {
			continue
		}
		switch {
		case parts[0] == "0":
			f.groups("/sys/fs/cgroup", parts[2], "memory.max", "memory.current", &f.Memory)
			f.groups("/sys/fs/cgroup", parts[2], "pids.max", "pids.current", &f.Pids)
		case parts[1] == "memory":
			f.groups("/sys/fs/cgroup/memory", parts[2], "memory.limit_in_bytes", "memory.usage_in_bytes", &f.Memory)
		case parts[1] == "pids":
			f.groups("/sys/fs/cgroup/pids", parts[2], "pids.max", "pids.current", &f.Pids)
		}
	}
}

// groups lowers to what a group and those above it leave. Page cache counts as used there, though it can be had: of memory it is taken off.
func (f *Free) groups(root, group, limit, usage string, to *int64) {
	for dir := filepath.Clean(group); ; dir = filepath.Dir(dir) {
		at := filepath.Join(root, dir)
		most, used := number(text(filepath.Join(at, limit))), number(text(filepath.Join(at, usage)))
		if most >= 0 && used >= 0 {
			if to == &f.Memory {
				used -= min(used, cache(at))
			}
			if left := max(most-used, 0); *to < 0 || left < *to {
				*to = left
			}
		}
		if dir == "/" || dir == "." {
			return
		}
	}
}

// cache is the page cache of a group that is not in use.
func cache(group string) int64 {
	for line := range strings.SplitSeq(text(filepath.Join(group, "memory.stat")), "\n") {
		for _, name := range [...]string{"inactive_file ", "total_inactive_file "} {
			if v, ok := strings.CutPrefix(line, name); ok {
				return max(number(v), 0)
			}
		}
	}
	return 0
}

// threads counts those of the machine: the second number of the fourth field of loadavg.
func threads() int64 {
	fields := strings.Fields(text("/proc/loadavg"))
	if len(fields) < 4 {
		return -1
	}
	_, all, _ := strings.Cut(fields[3], "/")
	return number(all)
}

func text(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return string(b)
}

// number is -1 for what is none, "max" among them.
func number(s string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n < 0 {
		return -1
	}
	return n
}
