package pid1

import (
	"fmt"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's, on the machines that the guest is built for.
type sigaction struct {
	handler, flags, restorer uintptr
	mask                     uint64
}

// lastSignal is the highest signal number.
const lastSignal = 64

// deaf makes PID 1 deaf to signals of its box. The kernel keeps signals without a handler from the first process of a namespace, but Go
// installs a handler for every one, most of which end the process. Those that the runtime itself needs stay; they are harmless.
// Commands start with the default of every signal: exec resets those that Go handles, and what the maker of the box ignored is undone
// here, 32 and 33 included, which C libraries keep for themselves and some launchers leave ignored.
func deaf() error {
	for sig := 1; sig <= lastSignal; sig++ {
		switch unix.Signal(sig) {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGURG:
			continue
		}
		// The runtime forgets its handler first: each command that is started would undo it otherwise, signal by signal.
		signal.Ignore(unix.Signal(sig))
		var a sigaction
		if _, _, e := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&a)), 0, unsafe.Sizeof(a.mask), 0, 0); e != 0 {
			return fmt.Errorf("unhandle signal %d: %w", sig, e)
		}
	}
	return nil
}
