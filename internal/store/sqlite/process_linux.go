package sqlite

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// place names the boot and the pid namespace; "" when they can't be read.
func place() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + ns
}

// startTime is when a process started, in ticks since boot. A zombie isn't alive. A process that /proc hides is, from an unknown time.
func startTime(pid int) (ticks int64, alive bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, true
	}
	_, rest, ok := bytes.Cut(b, []byte(") ")) // the name before may hold anything but is cut at its first ") "
	if i := bytes.LastIndex(b, []byte(") ")); i >= 0 {
		rest, ok = b[i+2:], true
	}
	f := strings.Fields(string(rest))
	if !ok || len(f) < 20 {
		return 0, true
	}
	ticks, _ = strconv.ParseInt(f[19], 10, 64)
	return ticks, f[0] != "Z" && f[0] != "X"
}
