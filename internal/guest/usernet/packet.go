package usernet

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"

	"agentenv.internal/agentenv/internal/guest"
)

// packet is what the head of an IP packet says.
type packet struct {
	src, dst netip.Addr
	proto    byte
	raw      []byte
	body     int // where raw's payload begins
}

// parsePacket reads a packet that came from the box. ok is false for what has no business on this network: broken packets, senders other
// than the box's two addresses, and receivers that aren't one machine.
func parsePacket(b []byte) (p packet, ok bool) {
	if len(b) < 20 {
		return p, false
	}
	p.raw = b
	switch b[0] >> 4 {
	case 4:
		p.src, p.dst = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		p.proto, p.body = b[9], int(b[0]&15)*4
		if p.body < 20 || p.body > len(b) || p.src != guest.NetAddr4.Addr() {
			return p, false
		}
	case 6:
		if len(b) < 40 {
			return p, false
		}
		p.src, p.dst = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		p.proto, p.body = b[6], 40
		if p.src != guest.NetAddr6.Addr() || p.dst.Is4In6() {
			return p, false
		}
	default:
		return p, false
	}
	multi := p.dst.IsMulticast() || p.dst.IsUnspecified() || p.dst == netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return p, !multi
}

// ping tells whether p asks for an echo.
func (p *packet) ping() bool {
	if len(p.raw) <= p.body {
		return false
	}
	t := p.raw[p.body]
	return p.proto == unix.IPPROTO_ICMP && p.src.Is4() && t == 8 || p.proto == unix.IPPROTO_ICMPV6 && p.src.Is6() && t == 128
}

// control tells whether p is of a protocol that answers must not be sent to: ICMP itself, and headers of IPv6 that only lead to others.
func (p *packet) control() bool {
	switch p.proto {
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6, unix.IPPROTO_HOPOPTS, unix.IPPROTO_ROUTING, unix.IPPROTO_FRAGMENT, unix.IPPROTO_DSTOPTS, unix.IPPROTO_NONE:
		return true
	}
	return false
}

// udpHead is the beginning of a UDP packet from src to dst, as much as an error message quotes.
func udpHead(src, dst netip.AddrPort) []byte {
	b := ipHead(src.Addr(), dst.Addr(), unix.IPPROTO_UDP, 8)
	b = binary.BigEndian.AppendUint16(b, src.Port())
	b = binary.BigEndian.AppendUint16(b, dst.Port())
	return binary.BigEndian.AppendUint32(b, 8<<16)
}

// prohibited is the message that tells the box that what began with quote was administratively refused. Programs see it at once, where
// silence would be waited for.
func prohibited(quote []byte, src, dst netip.Addr) []byte {
	const most = 548 // of the quote: no message needs to be larger
	quote = quote[:min(len(quote), most)]
	msg := make([]byte, 8, 8+len(quote))
	msg = append(msg, quote...)
	if src.Is4() {
		msg[0], msg[1] = 3, 13
		binary.BigEndian.PutUint16(msg[2:], checksum(0, msg))
		return append(ipHead(dst, src, unix.IPPROTO_ICMP, len(msg)), msg...)
	}
	msg[0], msg[1] = 1, 1
	from, to := dst.As16(), src.As16()
	pseudo := append(from[:], to[:]...)
	pseudo = binary.BigEndian.AppendUint32(pseudo, uint32(len(msg)))
	pseudo = binary.BigEndian.AppendUint32(pseudo, unix.IPPROTO_ICMPV6)
	binary.BigEndian.PutUint16(msg[2:], checksum(sum(0, pseudo), msg))
	return append(ipHead(dst, src, unix.IPPROTO_ICMPV6, len(msg)), msg...)
}

// ipHead is an IP header for n bytes of payload.
func ipHead(src, dst netip.Addr, proto byte, n int) []byte {
	if src.Is4() {
		b := make([]byte, 20, 20+n)
		b[0], b[8], b[9] = 0x45, 64, proto
		binary.BigEndian.PutUint16(b[2:], uint16(20+n))
		s, d := src.As4(), dst.As4()
		copy(b[12:], s[:])
		copy(b[16:], d[:])
		binary.BigEndian.PutUint16(b[10:], checksum(0, b))
		return b
	}
	b := make([]byte, 40, 40+n)
	b[0], b[6], b[7] = 0x60, proto, 64
	binary.BigEndian.PutUint16(b[4:], uint16(n))
	s, d := src.As16(), dst.As16()
	copy(b[8:], s[:])
	copy(b[24:], d[:])
	return b
}

func sum(s uint32, b []byte) uint32 {
	for ; len(b) > 1; b = b[2:] {
		s += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		s += uint32(b[0]) << 8
	}
	return s
}

func checksum(s uint32, b []byte) uint16 {
	s = sum(s, b)
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	return ^uint16(s)
}
