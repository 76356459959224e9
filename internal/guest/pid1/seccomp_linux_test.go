package pid1

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
)

// judge runs a filter as the kernel does and answers what becomes of a call.
func judge(t *testing.T, prog []unix.SockFilter, arch uint32, nr uintptr, args ...uint64) uint32 {
	t.Helper()
	data := make([]byte, 64)
	binary.LittleEndian.PutUint32(data[offNr:], uint32(nr))
	binary.LittleEndian.PutUint32(data[offArch:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[offArgs+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(prog); pc++ {
		i := prog[pc]
		jump := func(yes bool) {
			if yes {
				pc += int(i.Jt)
			} else {
				pc += int(i.Jf)
			}
		}
		switch i.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(data[i.K:])
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			jump(acc == i.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			jump(acc&i.K != 0)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			jump(acc >= i.K)
		case unix.BPF_RET | unix.BPF_K:
			return i.K
		default:
			t.Fatalf("unknown instruction %#x at %d", i.Code, pc)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

func TestFilter(t *testing.T) {
	prog := assemble(append(rules(), archRules()...))
	refused := func(e unix.Errno) uint32 { return unix.SECCOMP_RET_ERRNO | uint32(e) }
	const allowed = unix.SECCOMP_RET_ALLOW
	for _, c := range []struct {
		name string
		arch uint32
		nr   uintptr
		args []uint64
		want uint32
	}{
		{"read", auditArch, unix.SYS_READ, nil, allowed},
		{"execve", auditArch, unix.SYS_EXECVE, nil, allowed},
		{"mount", auditArch, unix.SYS_MOUNT, nil, refused(unix.EPERM)},
		{"set_mempolicy, the last of the list", auditArch, unix.SYS_SET_MEMPOLICY, nil, refused(unix.EPERM)},
		{"clone3", auditArch, unix.SYS_CLONE3, nil, refused(unix.ENOSYS)},
		{"a fork", auditArch, unix.SYS_CLONE, []uint64{uint64(unix.SIGCHLD)}, allowed},
		{"a thread", auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_FS | unix.CLONE_FILES | unix.CLONE_SIGHAND | unix.CLONE_THREAD}, allowed},
		{"a vfork", auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_VFORK | uint64(unix.SIGCHLD)}, allowed},
		{"a new user namespace", auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_NEWUSER | uint64(unix.SIGCHLD)}, refused(unix.EPERM)},
		{"a new net namespace among others", auditArch, unix.SYS_CLONE, []uint64{unix.CLONE_VM | unix.CLONE_NEWNET}, refused(unix.EPERM)},
		{"unshare of a mark", auditArch, unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWUTS}, allowed},
		{"unshare of a mark and a user", auditArch, unix.SYS_UNSHARE, []uint64{unix.CLONE_NEWUTS | unix.CLONE_NEWUSER}, refused(unix.EPERM)},
		{"unshare of files", auditArch, unix.SYS_UNSHARE, []uint64{unix.CLONE_FILES}, refused(unix.EPERM)},
		{"an ioctl", auditArch, unix.SYS_IOCTL, []uint64{0, unix.TCGETS}, allowed},
		{"TIOCSTI", auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCSTI}, refused(unix.EPERM)},
		{"TIOCLINUX with a high half", auditArch, unix.SYS_IOCTL, []uint64{0, unix.TIOCLINUX | 7<<32}, refused(unix.EPERM)},
		{"a unix socket", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_UNIX}, allowed},
		{"a vsock", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_VSOCK}, refused(unix.EPERM)},
		{"a packet socket", auditArch, unix.SYS_SOCKET, []uint64{unix.AF_PACKET}, refused(unix.EPERM)},
		{"asking the personality", auditArch, unix.SYS_PERSONALITY, []uint64{0xffffffff}, allowed},
		{"no address randomisation", auditArch, unix.SYS_PERSONALITY, []uint64{0x40000}, allowed},
		{"another personality", auditArch, unix.SYS_PERSONALITY, []uint64{0x800000}, refused(unix.EPERM)},
		{"i386", unix.AUDIT_ARCH_I386, 20, nil, refused(unix.ENOSYS)},
		{"x32", auditArch, 0x40000000 | unix.SYS_READ, nil, refused(unix.ENOSYS)},
		{"no call at all", auditArch, 0xffffffff, nil, refused(unix.ENOSYS)},
		{"the newest call", auditArch, newestCall, nil, allowed},
		{"a call of the future", auditArch, newestCall + 1, nil, refused(unix.ENOSYS)},
		{"arm", unix.AUDIT_ARCH_ARM, 20, nil, refused(unix.ENOSYS)},
	} {
		if got := judge(t, prog, c.arch, c.nr, c.args...); got != c.want {
			t.Errorf("%s: %#x, want %#x", c.name, got, c.want)
		}
	}
	// Every rule refuses something, and none hides another.
	for _, r := range append(rules(), archRules()...) {
		args := make([]uint64, r.arg+1)
		if r.on == anyBit || r.on == equals {
			args[r.arg] = uint64(r.vals[len(r.vals)-1])
		}
		if r.on == unless {
			args[r.arg] = 0x7654321
		}
		if got := judge(t, prog, auditArch, r.nr, args...); got&unix.SECCOMP_RET_ERRNO == 0 || got == allowed {
			t.Errorf("call %d with %v is allowed", r.nr, args)
		}
	}
	if len(prog) > 4096 {
		t.Errorf("%d instructions", len(prog))
	}
}
