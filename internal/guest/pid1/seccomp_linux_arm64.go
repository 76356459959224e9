package pid1

import "golang.org/x/sys/unix"

const auditArch = unix.AUDIT_ARCH_AARCH64

func archRules() []rule { return nil }
