package pid1

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// probe tries, in the place of a command, what a box must withstand. A probe that can't tell counts as not withstood. outside is a
// descriptor of the host's root, which no command has: what it would be worth is one of the things to try.
func (s *spawner) probe(p *guest.Probing, outside int) ([]guest.Tried, error) {
	var tried []guest.Tried
	type probe struct {
		name string
		run  func(*guest.Probing) error
	}
	err := s.asCommand(func() {
		probes := []probe{
			{"host_files", seesNoHostFiles},
			{"host_writes", writesStayInside},
			{"host_processes", seesNoHostProcesses},
			{"host_network", reachesNoNetwork},
			{"network_settings", administersNoNetwork},
			{"user_ids", mapsNoHostRoot},
			{"mounts", mountsNothing},
			{"namespaces", makesNoNamespace},
			{"tracing", tracesNothing},
			{"kernel_settings", setsNoKernel},
			{"device_nodes", makesNoDevice},
			{"new_privileges", gainsNothing},
			{"system_calls", callsAreFiltered},
		}
		if s.fence > 0 && !s.minded { // an engine's container was born in the root that it has
			probes = append(probes, probe{"leaked_folder", func(*guest.Probing) error { return reachesNothingBy(outside) }})
		}
		if p.Network {
			probes = append(probes, probe{"private_addresses", hasOneWayOut})
		}
		for _, try := range probes {
			t := guest.Tried{Name: try.name, OK: true}
			if err := try.run(p); err != nil {
				t.OK, t.Detail = false, err.Error()
			}
			tried = append(tried, t)
		}
	})
	return tried, err
}

func seesNoHostFiles(p *guest.Probing) error {
	for _, name := range p.Hidden {
		var st unix.Stat_t
		err := unix.Lstat(name, &st)
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) && !errors.Is(err, unix.ELOOP) { // an image may have files and links on the way
			return fmt.Errorf("%s is visible", name)
		}
	}
	if p.Image {
		return nil
	}
	fd, err := unix.Open("/etc/shadow", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		unix.Close(fd)
		return errors.New("/etc/shadow is readable")
	}
	return nil
}

// writesStayInside writes the marker; the provider looks whether the host has it then.
func writesStayInside(p *guest.Probing) error {
	if p.Marker == "" {
		return nil
	}
	fd, err := unix.Open(p.Marker, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EROFS) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p.Marker, err)
	}
	unix.Close(fd)
	return nil
}

func seesNoHostProcesses(p *guest.Probing) error {
	if os.Getpid() != 1 {
		return errors.New("the first process is not the box's own")
	}
	if err := unix.Kill(p.HostPID, 0); p.HostPID > 1 && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("process %d of the host can be reached", p.HostPID)
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != 1 {
			return fmt.Errorf("process %d is visible", pid)
		}
	}
	return nil
}

func reachesNoNetwork(p *guest.Probing) error {
	if err := reachesNoAbstract(p.Abstract); err != nil || p.Network {
		return err
	}
	if err := hasOnly(""); err != nil {
		return err
	}
	// A datagram socket's connect looks the route up and sends nothing.
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{192, 0, 2, 1}}); !errors.Is(err, unix.ENETUNREACH) {
		return errors.New("there is a route to other machines")
	}
	return nil
}

// hasOneWayOut finds no interface but the box's own, behind which the network's policy is.
func hasOneWayOut(*guest.Probing) error { return hasOnly(tunName) }

// hasOnly finds no interface up but the loopback and the one of that name.
func hasOnly(name string) error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 && l.Flags&net.FlagLoopback == 0 && l.Name != name {
			return fmt.Errorf("interface %s is up", l.Name)
		}
	}
	return nil
}

// administersNoNetwork tries what would lead around the box's network or fake another's packets.
func administersNoNetwork(*guest.Probing) error {
	for _, s := range []struct{ family, proto int }{{unix.AF_INET, unix.IPPROTO_ICMP}, {unix.AF_INET6, unix.IPPROTO_ICMPV6}, {unix.AF_PACKET, 0}} {
		if fd, err := unix.Socket(s.family, unix.SOCK_RAW|unix.SOCK_CLOEXEC, s.proto); err == nil {
			unix.Close(fd)
			return fmt.Errorf("raw sockets can be opened (family %d)", s.family)
		}
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err == nil { // to what they are
		return errors.New("interfaces can be set")
	}
	if err := makesNoTUN(); err != nil {
		return err
	}
	for _, c := range []uintptr{unix.CAP_NET_ADMIN, unix.CAP_NET_RAW} {
		if v, _, _ := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, c, 0); v != 0 {
			return errors.New("commands may administer the network")
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil {
		return err
	}
	if have[0].Inheritable|have[1].Inheritable != 0 {
		return errors.New("commands inherit capabilities")
	}
	return nil
}

func makesNoTUN() error {
	ifr, err := unix.NewIfreq("probe0")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if fd, err := unix.Open(guest.TUNDevice, unix.O_RDWR|unix.O_CLOEXEC, 0); err == nil {
		defer unix.Close(fd)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err == nil {
			return errors.New("interfaces can be made")
		}
	}
	return nil
}

func reachesNoAbstract(name string) error {
	if name == "" {
		return nil
	}
	u, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(u)
	if err := unix.Connect(u, &unix.SockaddrUnix{Name: "@" + name}); err == nil {
		return errors.New("an abstract socket of the host can be reached")
	}
	return nil
}

// mapsNoHostRoot reads what the ids of the box are outside.
func mapsNoHostRoot(p *guest.Probing) error {
	b, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return fmt.Errorf("unexpected id map %q", line)
		}
		outside, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			return err
		}
		if outside == 0 {
			return errors.New("an id of the box is the host's root")
		}
		if p.HostUID == 0 && outside < 100000 {
			return fmt.Errorf("id %d of the host is in the box", outside)
		}
	}
	return nil
}

func mountsNothing(*guest.Probing) error {
	if err := unix.Mount("probe", "/tmp", "tmpfs", 0, ""); !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		return errors.New("file systems can be mounted")
	}
	return nil
}

func makesNoNamespace(*guest.Probing) error {
	for _, flag := range []int{unix.CLONE_NEWUSER, unix.CLONE_NEWNS, unix.CLONE_NEWUTS} {
		if err := unix.Unshare(flag); err == nil {
			return fmt.Errorf("a namespace can be made (%#x)", flag)
		}
	}
	return nil
}

func tracesNothing(*guest.Probing) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, 1, 0, 0, 0, 0); e == 0 {
		return errors.New("the init process can be traced")
	}
	// This thread is PID 1's own and may read itself. What keeps commands from its memory and descriptors is this:
	if d, _, _ := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_DUMPABLE, 0, 0); d != 0 {
		return errors.New("the init process's memory can be read")
	}
	return nil
}

func setsNoKernel(*guest.Probing) error {
	for _, name := range []string{"/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches", "/proc/sysrq-trigger"} {
		fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
			return fmt.Errorf("%s can be written", name)
		}
	}
	return nil
}

func makesNoDevice(*guest.Probing) error {
	const name = "/tmp/.probe-device"
	if err := unix.Mknod(name, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 0))); err == nil {
		unix.Unlink(name)
		return errors.New("device nodes can be made")
	}
	return nil
}

func gainsNothing(*guest.Probing) error {
	if v, _, e := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_NO_NEW_PRIVS, 0, 0); e != 0 || v != 1 {
		return errors.New("programs may gain privileges")
	}
	if v, _, _ := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0); v != 0 {
		return errors.New("commands may administer the box")
	}
	return nil
}

// callsAreFiltered makes calls that the filter alone refuses: the kernel would take them from anybody.
func callsAreFiltered(*guest.Probing) error {
	if v, _, e := unix.RawSyscall(unix.SYS_PRCTL, unix.PR_GET_SECCOMP, 0, 0); e != 0 || v != unix.SECCOMP_MODE_FILTER {
		return errors.New("system calls are not filtered")
	}
	if _, _, e := unix.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_GET_KEYRING_ID, 0, 0); e != unix.EPERM {
		return errors.New("kernel keys can be reached")
	}
	if fd, _, e := unix.RawSyscall(unix.SYS_IO_URING_SETUP, 1, 0, 0); e != unix.EPERM {
		if e == 0 {
			unix.Close(int(fd))
		}
		return errors.New("io_uring can be used")
	}
	return nil
}

// reachesNothingBy tries to read and write the host by a descriptor of its root.
func reachesNothingBy(outside int) error {
	for _, name := range []string{".", "etc", "etc/hostname", "etc/passwd"} {
		fd, err := unix.Openat(outside, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			unix.Close(fd)
			return fmt.Errorf("a leaked descriptor of the host's root opens %s", name)
		}
	}
	return nil
}
