package pid1

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// rule refuses one system call, always or by one of its arguments.
type rule struct {
	nr    uintptr
	errno unix.Errno // what the caller gets; 0 is EPERM
	quiet bool       // the caller is told that it worked
	on    argTest
	arg   int
	vals  []uint32
}

type argTest int

const (
	always argTest = iota
	anyBit         // some bit of vals[0] is set
	equals         // the argument is one of vals
	unless         // the argument is none of vals
)

const cloneNew = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID |
	unix.CLONE_NEWNET | unix.CLONE_NEWTIME

// rules are the refusals that all machines share; archRules adds those of one.
func rules() []rule {
	var rs []rule
	for _, nr := range []uintptr{
		unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_FSOPEN, unix.SYS_FSPICK, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG,
		unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS,
		unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
		unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER, unix.SYS_USERFAULTFD,
		unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
		unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE,
		unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_FANOTIFY_INIT, unix.SYS_LOOKUP_DCOOKIE, unix.SYS_SYSLOG, unix.SYS_ACCT,
		unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_REBOOT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
		unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_NFSSERVCTL, unix.SYS_VHANGUP, unix.SYS_VMSPLICE,
		unix.SYS_LSM_SET_SELF_ATTR, unix.SYS_LSM_GET_SELF_ATTR, unix.SYS_LSM_LIST_MODULES, unix.SYS_PROCESS_MADVISE,
		unix.SYS_MBIND, unix.SYS_MIGRATE_PAGES, unix.SYS_MOVE_PAGES, unix.SYS_GET_MEMPOLICY, unix.SYS_SET_MEMPOLICY, unix.SYS_SET_MEMPOLICY_HOME_NODE,
		unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME,
	} {
		rs = append(rs, rule{nr: nr})
	}
	return append(rs,
		rule{nr: unix.SYS_CLONE3, errno: unix.ENOSYS}, // its flags are out of a filter's sight; libraries fall back to clone
		rule{nr: unix.SYS_CLONE, on: anyBit, vals: []uint32{cloneNew}},
		rule{nr: unix.SYS_UNSHARE, on: unless, vals: []uint32{unix.CLONE_NEWUTS}}, // the spawner's marks; commands lack the capability
		rule{nr: unix.SYS_PRLIMIT64, on: unless, vals: []uint32{0}},               // PID 1 has the same id, and its limits with it; 0 is the caller
		rule{nr: unix.SYS_IOCTL, on: equals, arg: 1, vals: []uint32{unix.TIOCSTI, unix.TIOCLINUX}},
		rule{nr: unix.SYS_SOCKET, on: equals, vals: []uint32{unix.AF_ALG, unix.AF_VSOCK, unix.AF_PACKET}},
		rule{nr: unix.SYS_PERSONALITY, on: unless, vals: []uint32{0, 0x8, 0x20000, 0x20008, 0x40000, 0xffffffff}},
	)
}

// ownerRules make changes of owners look done in a box of a single id, where there is nobody else to own anything: package managers give
// up otherwise.
func ownerRules() []rule {
	rs := []rule{{nr: unix.SYS_FCHOWN, quiet: true}, {nr: unix.SYS_FCHOWNAT, quiet: true}, {nr: unix.SYS_SETGROUPS, quiet: true}}
	return append(rs, archOwnerRules()...)
}

// watchedRules are those of a box whose memory PID 1 watches: memory that a descriptor alone holds would be out of its sight. Programs
// fall back to files, as on an old kernel.
func watchedRules() []rule {
	return []rule{{nr: unix.SYS_MEMFD_CREATE, errno: unix.ENOSYS}, {nr: unix.SYS_MEMFD_SECRET, errno: unix.ENOSYS}}
}

// rulesOf are the rules that a box has beyond those of all.
func rulesOf(b *guest.Boot) (more []rule) {
	if b.OneID {
		more = ownerRules()
	}
	if b.Memory > 0 {
		more = append(more, watchedRules()...)
	}
	return more
}

// Offsets in struct seccomp_data.
const (
	offNr   = 0
	offArch = 4
	offArgs = 16
)

// newestCall is the newest system call that a box knows. Later ones are unknown to it, and programs fall back as on an older kernel; so
// are the calls of x32, which are the machine's own with a high bit.
const newestCall = unix.SYS_REMOVEXATTRAT

// assemble makes the filter: a deny list, which refuses calls of a foreign machine word (i386) and those that are too new as unknown.
func assemble(rs []rule) []unix.SockFilter {
	const (
		load = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS
		jeq  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
		jset = unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K
		jge  = unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K
		ret  = unix.BPF_RET | unix.BPF_K
	)
	refuse := func(e unix.Errno) unix.SockFilter {
		return unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ERRNO | uint32(e)}
	}
	allow := unix.SockFilter{Code: ret, K: unix.SECCOMP_RET_ALLOW}
	p := []unix.SockFilter{
		{Code: load, K: offArch},
		{Code: jeq, K: auditArch, Jt: 1},
		refuse(unix.ENOSYS),
		{Code: load, K: offNr},
	}
	p = append(p, unix.SockFilter{Code: jge, K: newestCall + 1, Jf: 1}, refuse(unix.ENOSYS))
	for _, r := range rs {
		errno := r.errno
		if errno == 0 && !r.quiet {
			errno = unix.EPERM
		}
		body := []unix.SockFilter{refuse(errno)}
		if r.on != always {
			body = []unix.SockFilter{{Code: load, K: uint32(offArgs + 8*r.arg)}} // the low half: all machines here are little endian
			for i, v := range r.vals {
				left := uint8(len(r.vals) - 1 - i)
				switch r.on {
				case anyBit:
					body = append(body, unix.SockFilter{Code: jset, K: v, Jt: left, Jf: 0})
				default:
					body = append(body, unix.SockFilter{Code: jeq, K: v, Jt: left, Jf: 0})
				}
			}
			body = testEnd(body, r, refuse(errno), allow)
		}
		p = append(p, unix.SockFilter{Code: jeq, K: uint32(r.nr), Jf: uint8(len(body))})
		p = append(p, body...)
	}
	return append(p, allow)
}

// testEnd closes an argument test: its last comparison decides between the two ends, the others jump to the first of them.
func testEnd(body []unix.SockFilter, r rule, refuse, allow unix.SockFilter) []unix.SockFilter {
	last := &body[len(body)-1]
	last.Jt, last.Jf = 0, 1
	if r.on == unless {
		return append(body, allow, refuse)
	}
	return append(body, refuse, allow)
}

// loadFilter puts the filter on this thread alone, with the rules that this box has beyond those of all.
func loadFilter(more []rule) error {
	p := assemble(append(append(rules(), archRules()...), more...))
	prog := unix.SockFprog{Len: uint16(len(p)), Filter: &p[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return fmt.Errorf("seccomp: %w", e)
	}
	return nil
}
