package computer

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// forget gives back the pages of the program's file that the start touched and nothing may need again: those that do come back from the file's cache,
// some at a time. A desktop's driver lives long and uses little of the program. An error is one of nothing gained.
func forget() error {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return err
	}
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	for s := bufio.NewScanner(f); s.Scan(); {
		var from, to uintptr
		var mode string
		if n, err := fmt.Sscanf(s.Text(), "%x-%x %s", &from, &to, &mode); n != 3 || err != nil {
			continue
		}
		if !strings.HasSuffix(s.Text(), " "+self) || strings.Contains(mode, "w") { // what was written isn't in the file
			continue
		}
		if _, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED); errno != 0 {
			return errno
		}
	}
	return nil
}
