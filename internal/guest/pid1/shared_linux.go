package pid1

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Shared memory that no file has belongs to no process: what was written to it stays while anything maps a part of it, whatever the page
// tables still show. So PID 1 counts it by piece. What is mapped, filled and unmapped but for its beginning between two looks stays unseen.

// pieces adds the shared memory of no file that a process has mapped, in the text of its maps file: how far each piece reaches, in bytes,
// by the kernel's number of it. It answers the sum of what the process maps.
func pieces(maps []byte, into map[string]int64) (sum int64) {
	for line := range bytes.Lines(maps) {
		f := bytes.Fields(line) // from-to, modes, offset, device, number, name
		if len(f) < 6 || len(f[1]) != 4 || f[1][3] != 's' || !bytes.Equal(f[5], []byte("/dev/zero")) {
			continue
		}
		lo, hi, ok := bytes.Cut(f[0], []byte("-"))
		from, err1 := strconv.ParseUint(string(lo), 16, 64)
		to, err2 := strconv.ParseUint(string(hi), 16, 64)
		at, err3 := strconv.ParseUint(string(f[2]), 16, 63)
		if !ok || err1 != nil || err2 != nil || err3 != nil || to <= from || to > 1<<62 || at > 1<<62 {
			continue
		}
		size := int64(to - from)
		sum = min(sum+size, 1<<62)
		key := string(f[3]) + " " + string(f[4])
		into[key] = max(into[key], size+int64(at))
	}
	return sum
}

// segment is a piece of System V shared memory.
type segment struct {
	id   int
	size int64 // bytes of memory that it takes, swapped ones among them
	used bool  // a process has it mapped
}

// segments reads /proc/sysvipc/shm of the box's IPC namespace.
func segments() []segment {
	b, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return nil // a kernel without them
	}
	return parseSegments(b)
}

func parseSegments(b []byte) (list []segment) {
	_, b, _ = bytes.Cut(b, []byte("\n")) // the heading
	for line := range bytes.Lines(b) {
		f := bytes.Fields(line) // key id perms size cpid lpid nattch uid gid cuid cgid atime dtime ctime rss swap
		if len(f) < 16 {
			continue
		}
		id, err := strconv.Atoi(string(f[1]))
		rss, err1 := strconv.ParseInt(string(f[14]), 10, 62)
		swap, err2 := strconv.ParseInt(string(f[15]), 10, 62)
		if err == nil && err1 == nil && err2 == nil && id >= 0 && rss >= 0 && swap >= 0 {
			list = append(list, segment{id: id, size: min(rss+swap, 1<<62), used: string(f[6]) != "0"})
		}
	}
	return list
}

// dropUnused removes the System V memory that no process has mapped, since no end of a process would, and tells whether there was any.
func dropUnused() (any bool) {
	for _, s := range segments() {
		if !s.used && s.size > 0 {
			_, err := unix.SysvShmCtl(s.id, unix.IPC_RMID, nil)
			any = any || err == nil
		}
	}
	return any
}
