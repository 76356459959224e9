package pid1

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// looser are the calls that Docker's default profile refuses to a container without further capabilities and the filter lets through,
// each with why that gives nothing away.
var looser = map[string]string{
	"unshare": "with CLONE_NEWUTS alone, for the spawner's marks; it takes CAP_SYS_ADMIN, which no command has and none can gain",
}

// The filter refuses whatever Docker's default profile refuses, but for the list above.
func TestAsStrictAsDocker(t *testing.T) {
	f, err := os.Open("testdata/seccomp/docker_" + runtime.GOARCH + ".txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	prog := assemble(append(rules(), archRules()...))
	seen, used := 0, map[string]bool{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "#") {
			continue
		}
		var nr uintptr
		var name, verdict string
		if _, err := fmt.Sscan(s.Text(), &nr, &name, &verdict); err != nil {
			t.Fatalf("%q: %v", s.Text(), err)
		}
		if verdict != "refuse" {
			continue
		}
		seen++
		allowed := judge(t, prog, auditArch, nr) == unix.SECCOMP_RET_ALLOW || judge(t, prog, auditArch, nr, unix.CLONE_NEWUTS) == unix.SECCOMP_RET_ALLOW
		switch {
		case !allowed:
		case looser[name] == "":
			t.Errorf("%s (%d) is refused by Docker's default profile and let through here", name, nr)
		default:
			used[name] = true
		}
	}
	if seen < 50 {
		t.Errorf("only %d refusals were compared", seen)
	}
	for name := range looser {
		if !used[name] {
			t.Errorf("the exception %s isn't needed", name)
		}
	}
}

// looserArgs are the arguments that Docker's profile refuses and the filter lets through.
var looserArgs = []struct {
	call string
	arg  uint64
	why  string
}{
	{"personality", 0x40000, "no address randomisation: a program weakens itself alone, and sanitizers and debuggers start so"},
}

// Calls that Docker's profile judges by an argument: socket families, personalities and namespaces of clone.
func TestArgumentsAsStrictAsDocker(t *testing.T) {
	prog := assemble(append(rules(), archRules()...))
	allowed := func(nr uintptr, args ...uint64) bool {
		return judge(t, prog, auditArch, nr, args...) == unix.SECCOMP_RET_ALLOW
	}
	for family := range uint64(64) {
		docker := family < 38 || family == 39 || family > 40
		if !docker && allowed(unix.SYS_SOCKET, family) {
			t.Errorf("sockets of family %d are let through", family)
		}
	}
	for bit := range 32 {
		p := uint64(1) << bit
		docker := p == 0x8 || p == 0x20000
		if !docker && allowed(unix.SYS_PERSONALITY, p) && p != looserArgs[0].arg {
			t.Errorf("the personality %#x is let through", p)
		}
		const namespaces = 0x7e020000 // Docker's mask
		if p&namespaces != 0 && allowed(unix.SYS_CLONE, p) {
			t.Errorf("clone with %#x is let through", p)
		}
	}
}

// In a box of a single id changes of owners look done, and nothing else does.
func TestOwnerRules(t *testing.T) {
	rs := append(append(rules(), archRules()...), ownerRules()...)
	prog := assemble(rs)
	for _, nr := range []uintptr{unix.SYS_FCHOWN, unix.SYS_FCHOWNAT, unix.SYS_SETGROUPS} {
		if got := judge(t, prog, auditArch, nr, 5, 33, 42); got != unix.SECCOMP_RET_ERRNO {
			t.Errorf("call %d gives %#x", nr, got)
		}
	}
	for _, nr := range []uintptr{unix.SYS_FCHMOD, unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETRESUID} {
		if got := judge(t, prog, auditArch, nr); got != unix.SECCOMP_RET_ALLOW {
			t.Errorf("call %d gives %#x", nr, got)
		}
	}
	for _, r := range rules() {
		if r.quiet {
			t.Errorf("call %d looks done in every box", r.nr)
		}
	}
}
