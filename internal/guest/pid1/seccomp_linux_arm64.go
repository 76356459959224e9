package pid1

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

func archRules() []rule { return []rule{{nr: unix.SYS_ARCH_SPECIFIC_SYSCALL}} }

func archOwnerRules() []rule { return nil }
