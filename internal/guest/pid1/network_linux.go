package pid1

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// openTUN opens the device of a box's network while the host's files are still in sight; nil where none is needed, or it rides along.
func openTUN(n guest.BootNetwork) (*os.File, error) {
	if !n.TUN || n.Device {
		return nil, nil
	}
	fd, err := unix.Open(guest.TUNDevice, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", guest.TUNDevice, err)
	}
	return os.NewFile(uintptr(fd), guest.TUNDevice), nil
}

// givenTUN makes the TUN of a box whose world an engine made; nil where none is needed. It comes before anything else: giving up what only
// that needs is done on every thread by signals, which PID 1 is deaf to later.
func givenTUN(b *guest.Boot) (*os.File, error) {
	if !b.Given || !b.Network.TUN {
		return nil, nil
	}
	tun, err := openTUN(b.Network)
	if err != nil {
		return nil, err
	}
	if err := makeTUN(tun); err != nil {
		return nil, fmt.Errorf("make the sandbox's network: %w", err)
	}
	// No command has a use for the device. Where it is a mount it stays, and is worth nothing without the capability.
	_ = os.Remove(guest.TUNDevice)
	if err := forgo(unix.CAP_NET_ADMIN); err != nil {
		return nil, fmt.Errorf("give up the network's administration: %w", err)
	}
	return tun, nil
}

// forgo gives a capability up on every thread of this process, for good. Programs with C in them, which only tests are, keep it on their
// other threads; what commands lack is the spawner's to see to.
func forgo(capability uint) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&head, &have[0]); err != nil {
		return err
	}
	have[capability/32].Effective &^= 1 << (capability % 32)
	have[capability/32].Permitted &^= 1 << (capability % 32)
	have[capability/32].Inheritable &^= 1 << (capability % 32)
	_, _, errno := syscall.AllThreadsSyscall(unix.SYS_CAPSET, uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&have[0])), 0)
	if errno == unix.ENOTSUP {
		return unix.Capset(&head, &have[0])
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// connect takes the door, and makes the TUN where there is none yet.
func (s *server) connect(b *guest.Boot, tun *os.File, r *rides) error {
	n := b.Network
	if n.Door {
		f := r.take()
		if f == nil {
			return errors.New("the door to the network host is missing")
		}
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("open the door to the network host: %w", err)
		}
		uc, ok := c.(*net.UnixConn)
		if !ok {
			return errors.New("the door to the network host is no unix socket")
		}
		s.door = guest.NewConn(uc)
	}
	if !n.TUN {
		return nil
	}
	if n.Device {
		if tun = r.take(); tun == nil {
			return errors.New("the TUN's device is missing")
		}
	}
	if !b.Given {
		if err := makeTUN(tun); err != nil {
			return fmt.Errorf("make the sandbox's network: %w", err)
		}
	}
	s.tun = tun
	return nil
}

// handOut is what rides with the answer to Boot.
func (s *server) handOut() []*os.File {
	if s.tun == nil {
		return nil
	}
	return []*os.File{s.tun}
}

// answerDoor serves each connection that comes through the door like one to the listener, until the network host has gone.
func (s *server) answerDoor() {
	defer s.door.Close()
	for {
		if _, _, err := s.door.Recv(); err != nil {
			return
		}
		for _, f := range s.door.TakeFiles() {
			c, err := net.FileConn(f)
			f.Close()
			if err != nil {
				continue
			}
			uc, ok := c.(*net.UnixConn)
			if !ok {
				c.Close()
				continue
			}
			go s.serve(guest.NewConn(uc))
		}
	}
}

const tunName = "eth0" // programs look for such a name

// makeTUN makes an interface of the device and routes all that isn't loopback into it.
func makeTUN(device *os.File) error {
	ifr, err := unix.NewIfreq(tunName)
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	raw, err := device.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = unix.IoctlIfreq(int(fd), unix.TUNSETIFF, ifr) }); err != nil {
		return err
	}
	if inner != nil {
		return fmt.Errorf("make the interface: %w", inner)
	}
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(sock)
	if err := unix.IoctlIfreq(sock, unix.SIOCGIFINDEX, ifr); err != nil {
		return fmt.Errorf("find the interface: %w", err)
	}
	index := ifr.Uint32()
	ifr.SetUint32(guest.NetMTU)
	if err := unix.IoctlIfreq(sock, unix.SIOCSIFMTU, ifr); err != nil {
		return fmt.Errorf("set the interface's MTU: %w", err)
	}
	ifr.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, ifr); err != nil {
		return fmt.Errorf("bring the interface up: %w", err)
	}
	nl, err := openNetlink()
	if err != nil {
		return err
	}
	defer unix.Close(nl)
	for _, a := range []struct {
		addr    netip.Prefix
		gateway netip.Addr
	}{{guest.NetAddr4, guest.Gateway4}, {guest.NetAddr6, guest.Gateway6}} {
		err := ask(nl, unix.RTM_NEWADDR, addrMessage(index, a.addr))
		if err == nil {
			err = ask(nl, unix.RTM_NEWROUTE, routeMessage(index, a.gateway))
		}
		if err != nil && a.addr.Addr().Is6() {
			return nil // a kernel without IPv6
		}
		if err != nil {
			return fmt.Errorf("give the interface the address %s: %w", a.addr, err)
		}
	}
	return nil
}

func openNetlink() (int, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return -1, fmt.Errorf("open netlink: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("open netlink: %w", err)
	}
	return fd, nil
}

// ask sends one request and reads the kernel's word on it.
func ask(fd int, typ uint16, body []byte) error {
	msg := make([]byte, unix.NLMSG_HDRLEN, unix.NLMSG_HDRLEN+len(body))
	binary.NativeEndian.PutUint32(msg, uint32(unix.NLMSG_HDRLEN+len(body)))
	binary.NativeEndian.PutUint16(msg[4:], typ)
	binary.NativeEndian.PutUint16(msg[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	if err := unix.Sendto(fd, append(msg, body...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	reply := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return err
	}
	if n < unix.NLMSG_HDRLEN+4 || binary.NativeEndian.Uint16(reply[4:]) != unix.NLMSG_ERROR {
		return errors.New("netlink gave no answer")
	}
	if no := int32(binary.NativeEndian.Uint32(reply[unix.NLMSG_HDRLEN:])); no != 0 {
		return unix.Errno(-no)
	}
	return nil
}

// addrMessage gives an interface an address, at once: nobody else can have it.
func addrMessage(index uint32, p netip.Prefix) []byte {
	a := p.Addr().AsSlice()
	b := []byte{family(p.Addr()), byte(p.Bits()), unix.IFA_F_PERMANENT | unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE}
	b = binary.NativeEndian.AppendUint32(b, index)
	return attribute(attribute(b, unix.IFA_LOCAL, a), unix.IFA_ADDRESS, a)
}

// routeMessage makes the interface the way to everywhere.
func routeMessage(index uint32, gateway netip.Addr) []byte {
	b := []byte{family(gateway), 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_BOOT, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0}
	b = attribute(b, unix.RTA_GATEWAY, gateway.AsSlice())
	return attribute(b, unix.RTA_OIF, binary.NativeEndian.AppendUint32(nil, index))
}

func family(a netip.Addr) byte {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// attribute appends one attribute; all of ours have a length that needs no padding.
func attribute(b []byte, typ uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	return append(b, value...)
}
