package usernet

import (
	"os"
	"sync"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"agentenv.internal/agentenv/internal/guest"
)

// link is the stack's end of the TUN. Packets to the box are written where they are made; those from it are read by pump.
type link struct {
	tun     *os.File
	raw     rawConn
	refused func(packet) // what is neither TCP nor UDP

	mu         sync.RWMutex
	dispatcher stack.NetworkDispatcher
}

// rawConn is how the TUN's descriptor is reached while it is open.
type rawConn interface {
	Write(func(fd uintptr) bool) error
}

var _ stack.LinkEndpoint = (*link)(nil)

// newLink takes over tun, which has to be non-blocking.
func newLink(tun *os.File, refused func(packet)) (*link, error) {
	raw, err := tun.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &link{tun: tun, raw: raw, refused: refused}, nil
}

// pump hands the box's packets to the stack until the TUN is closed.
func (l *link) pump() error {
	buf := make([]byte, guest.NetMTU+4)
	for {
		n, err := l.tun.Read(buf)
		if err != nil {
			return err
		}
		p, ok := parsePacket(buf[:n])
		if !ok {
			continue
		}
		if p.proto != unix.IPPROTO_TCP && p.proto != unix.IPPROTO_UDP {
			l.refused(p)
			continue
		}
		l.mu.RLock()
		d := l.dispatcher
		l.mu.RUnlock()
		if d == nil {
			return nil
		}
		number := header.IPv4ProtocolNumber
		if p.src.Is6() {
			number = header.IPv6ProtocolNumber
		}
		pkt := stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: buffer.MakeWithData(buf[:n])})
		d.DeliverNetworkPacket(number, pkt)
		pkt.DecRef()
	}
}

// send writes one packet to the box. One that the kernel doesn't take is lost, as on any network.
func (l *link) send(parts [][]byte) {
	_ = l.raw.Write(func(fd uintptr) bool {
		_, _ = unix.Writev(int(fd), parts)
		return true
	})
}

// WritePackets is the stack's way to the box.
func (l *link) WritePackets(list stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	for _, p := range list.AsSlice() {
		l.send(p.AsSlices())
		n++
	}
	return n, nil
}

// Attach is called by the stack with where packets go, and with nil when the link is taken away.
func (l *link) Attach(d stack.NetworkDispatcher) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dispatcher = d
}

// IsAttached tells whether packets go anywhere.
func (l *link) IsAttached() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.dispatcher != nil
}

// Capabilities: the kernel that made a packet is trusted with its checksum, since it never left the machine.
func (*link) Capabilities() stack.LinkEndpointCapabilities { return stack.CapabilityRXChecksumOffload }

// The rest of stack.LinkEndpoint: a TUN has packets without a link header and no address.
func (*link) MTU() uint32                             { return guest.NetMTU }
func (*link) SetMTU(uint32)                           {}
func (*link) MaxHeaderLength() uint16                 { return 0 }
func (*link) LinkAddress() tcpip.LinkAddress          { return "" }
func (*link) SetLinkAddress(tcpip.LinkAddress)        {}
func (*link) Wait()                                   {}
func (*link) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareNone }
func (*link) AddHeader(*stack.PacketBuffer)           {}
func (*link) ParseHeader(*stack.PacketBuffer) bool    { return true }
func (*link) Close()                                  {}
func (*link) SetOnCloseAction(func())                 {}
