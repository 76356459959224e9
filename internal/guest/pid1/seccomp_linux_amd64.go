package pid1

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

func archRules() []rule {
	var rs []rule
	for _, nr := range []uintptr{
		unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE,
		unix.SYS_GET_KERNEL_SYMS, unix.SYS_QUERY_MODULE, unix.SYS_GETPMSG, unix.SYS_PUTPMSG, unix.SYS_AFS_SYSCALL, unix.SYS_TUXCALL, unix.SYS_SECURITY,
		unix.SYS_VSERVER, unix.SYS_UPROBE,
	} {
		rs = append(rs, rule{nr: nr})
	}
	return rs
}

func archOwnerRules() []rule {
	return []rule{{nr: unix.SYS_CHOWN, quiet: true}, {nr: unix.SYS_LCHOWN, quiet: true}}
}
