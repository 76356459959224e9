package pid1

import (
	"errors"
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Landlock's errata are bits: signals between threads of one process are let through by a scope only
// where this one is fixed, and Go's runtime sends such.
const (
	erratumSignalScope = 1 << 1
)

// accessBy is what each version of Landlock can hold back of files.
var accessBy = []uint64{
	1: unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR |
		unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_DIR |
		unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK |
		unix.LANDLOCK_ACCESS_FS_MAKE_SYM,
	2: unix.LANDLOCK_ACCESS_FS_REFER,
	3: unix.LANDLOCK_ACCESS_FS_TRUNCATE,
	5: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
}

// Versions of Landlock that matter beyond files.
const (
	abiIoctl  = 5
	abiScopes = 6
)

// ruleset is the kernel's landlock_ruleset_attr.
type ruleset struct{ files, ports, scoped uint64 }

// fence confines this thread and all that it starts by Landlock: files below the box's root alone, whatever descriptor of others may
// have leaked; no device nodes; no signals and abstract sockets to what is outside, PID 1 included. It leaves ports alone, which are
// the network's. It answers the kernel's version, 0 where there is none. The thread must not gain privileges any more.
func fence() (int, error) {
	abi, err := landlock(unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPERM) { // the last is an engine's filter
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("ask for Landlock's version: %w", err)
	}
	var all uint64
	for v, access := range accessBy[:min(abi+1, len(accessBy))] {
		if v <= abi {
			all |= access
		}
	}
	attr := ruleset{files: all}
	size := unsafe.Offsetof(attr.ports) // what the first versions know
	if abi >= abiScopes {
		size = unsafe.Sizeof(attr)
		attr.scoped = unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		if fixed, err := landlock(unix.LANDLOCK_CREATE_RULESET_ERRATA); err == nil && fixed&erratumSignalScope != 0 {
			attr.scoped |= unix.LANDLOCK_SCOPE_SIGNAL
		}
	}
	fd, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if e != 0 {
		return 0, fmt.Errorf("make a ruleset: %w", e)
	}
	defer unix.Close(int(fd))
	nodes := uint64(unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK)
	devices := all & unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	if err := allowBelow(int(fd), "/", all&^nodes&^devices); err != nil {
		return 0, err
	}
	if abi >= abiIoctl {
		if err := allowBelow(int(fd), "/dev", devices); err != nil {
			return 0, err
		}
	}
	if _, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); e != 0 {
		return 0, fmt.Errorf("restrict the thread: %w", e)
	}
	return abi, nil
}

func landlock(flags uintptr) (int, error) {
	v, _, e := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, flags)
	if e != 0 {
		return 0, e
	}
	return int(v), nil
}

func allowBelow(ruleset int, name string, access uint64) error {
	dir, err := unix.Open(name, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", name, err)
	}
	defer unix.Close(dir)
	rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(dir)}
	if _, _, e := unix.RawSyscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(ruleset), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0); e != 0 {
		return fmt.Errorf("allow what is below %s: %w", name, e)
	}
	return nil
}

// openOutside is a descriptor of the root that PID 1 was born in. The caller closes it before any command starts.
func openOutside() (*os.File, error) {
	fd, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the host's root: %w", err)
	}
	return os.NewFile(uintptr(fd), "outside"), nil
}
