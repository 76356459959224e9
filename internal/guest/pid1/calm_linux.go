package pid1

import (
	"os"

	"golang.org/x/sys/unix"
)

// calmSlack is how much later than asked for the runtime's watching thread may wake, in nanoseconds.
const calmSlack = "2000000"

// calm lets the thread by which Go's runtime watches over its others sleep longer, and answers the slack of timers that threads had before it.
// While one of them waits in the kernel for a command's end, that thread looks every 20 µs, which costs more than all else that PID 1 does
// for the command. What hangs on it here, that goroutines share a processor and that one is taken from a thread that waits, may come as much
// later. Where it can't be set, it stays as it is.
func calm() (slack int) {
	slack, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0)
	if err != nil {
		return 0
	}
	tasks, err := os.Open("/proc/self/task")
	if err != nil {
		return slack
	}
	defer tasks.Close()
	names, err := tasks.Readdirnames(2) // in the order of their making: the runtime makes that thread first
	if err == nil && len(names) == 2 {
		_ = writeOver("/proc/"+names[1]+"/timerslack_ns", calmSlack)
	}
	return slack
}

// exact gives this thread, and what it starts, the slack of timers that all had before calm: the watching thread may have made it, and what a thread
// makes has its own.
func exact(slack int) {
	if slack > 0 {
		_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack), 0, 0, 0)
	}
}
