package pid1

import (
	"bytes"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// watchEvery is how often the box's memory is summed where no cgroup holds it.
const watchEvery = 250 * time.Millisecond

// memory tells whether processes of the box were killed for memory, by the kernel or, where no cgroup holds the box, by PID 1 itself.
type memory struct {
	events *counter // nil without a cgroup
	limit  int64    // bytes that PID 1 watches; 0: it doesn't
	own    atomic.Int64
}

// kills is how many processes were killed for memory since the box began.
func (m *memory) kills() int64 {
	return m.own.Load() + m.events.read()
}

// counter is a line of a cgroup's file: a word and a number.
type counter struct {
	file *os.File
	word string // with the blank after it
}

// ownCounter is a line of the first of those files of the cgroup that the box itself sees, of version 2 or 1; nil: it sees none.
func ownCounter(word string, names ...string) *counter {
	for _, name := range names {
		if f, err := os.Open("/sys/fs/cgroup/" + name); err == nil {
			return &counter{f, word}
		}
	}
	return nil
}

// read is the number; 0 for a nil counter.
func (c *counter) read() int64 {
	if c == nil {
		return 0
	}
	var buf [512]byte
	got, err := c.file.ReadAt(buf[:], 0)
	if err != nil && got == 0 {
		return 0
	}
	for line := range bytes.Lines(buf[:got]) {
		if v, ok := bytes.CutPrefix(line, []byte(c.word)); ok {
			n, _ := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			return n
		}
	}
	return 0
}

// watch kills the largest process of the box while all of them together are above the limit.
func (m *memory) watch() {
	for range time.Tick(watchEvery) {
		sum, largest := usage()
		if sum <= m.limit {
			continue
		}
		if dropUnused() || largest > 0 && unix.Kill(largest, unix.SIGKILL) == nil {
			m.own.Add(1)
		}
	}
}

// usage sums what the box's processes use, shared pages in shares, with the shared memory of no file, and names the largest process.
func usage() (sum int64, largest int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return 0, 0
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var most, mapped, shared int64
	all := map[string]int64{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == 1 {
			continue
		}
		own, shmem := proportional(name)
		sum, mapped = sum+own, mapped+shmem
		maps, _ := os.ReadFile("/proc/" + name + "/maps")
		if own += max(shmem, pieces(maps, all)); own > most {
			most, largest = own, pid
		}
	}
	for _, size := range all {
		shared = min(shared+size, 1<<62)
	}
	for _, s := range segments() {
		shared = min(shared+s.size, 1<<62)
	}
	return sum + max(mapped, shared), largest
}

// proportional is what a process uses, shared pages in shares: what it has of files and for itself, and what of memory that others may map.
func proportional(pid string) (own, shmem int64) {
	b, err := os.ReadFile("/proc/" + pid + "/smaps_rollup")
	if err != nil {
		return 0, 0
	}
	shmem = kilobytes(b, "\nPss_Shmem:")
	return max(kilobytes(b, "\nPss:")-shmem, 0), shmem
}

// kilobytes is the number of a line, in bytes.
func kilobytes(b []byte, head string) int64 {
	_, rest, ok := bytes.Cut(b, []byte(head))
	if !ok {
		return 0
	}
	line, _, _ := bytes.Cut(rest, []byte("kB"))
	kb, _ := strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	return kb << 10
}
