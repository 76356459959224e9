package pid1

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_X86_64

func archRules() []rule {
	var rs []rule
	for _, nr := range []uintptr{
		unix.SYS_IOPL, unix.SYS_IOPERM, unix.SYS_MODIFY_LDT, unix.SYS_USELIB, unix.SYS_USTAT, unix.SYS_SYSFS, unix.SYS__SYSCTL, unix.SYS_CREATE_MODULE,
	} {
		rs = append(rs, rule{nr: nr})
	}
	return rs
}
