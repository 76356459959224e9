package guest

import (
	"net/netip"
	"time"
)

// HostNetwork asks a network host, the process outside that a box's network runs in, to serve one box. Files ride with the request in this
// order: the door, on which the host asks PID 1 for connections and whose end is the box's; the log of what is blocked; the TUN, where
// there is one; a listener for every entry of Publish.
type HostNetwork struct {
	TUN   bool           `json:"tun,omitempty"`
	Mode  string         `json:"mode,omitempty"`
	Hosts []string       `json:"hosts,omitempty"`
	CIDRs []netip.Prefix `json:"cidrs,omitempty"`
	Ports []uint16       `json:"ports,omitempty"`
	Proxy Proxy          `json:"proxy,omitzero"`
	// Publish are the ports of the box that its listeners lead to.
	Publish []uint16 `json:"publish,omitempty"`
}

// Proxy is the way out where the host itself has to use one.
type Proxy struct {
	Plain  *ProxyServer `json:"plain,omitempty"`  // for port 80
	Secure *ProxyServer `json:"secure,omitempty"` // for all other ports
	Except []string     `json:"except,omitempty"` // names, domains, addresses and ranges that are dialled directly, as in NO_PROXY
}

// ProxyServer is one proxy that is spoken to in plain HTTP.
type ProxyServer struct {
	Addr string `json:"addr"`           // host:port
	Auth string `json:"auth,omitempty"` // the whole Proxy-Authorization header; never logged
}

// Blocked is one destination that a box was kept from.
type Blocked struct {
	Time  time.Time `json:"time"`
	Proto string    `json:"proto"` // "tcp", "udp", "dns" or "icmp"
	Host  string    `json:"host,omitempty"`
	Addr  string    `json:"addr,omitempty"`
	Port  uint16    `json:"port,omitempty"`
	Why   string    `json:"why"`
	Count int       `json:"count"` // how often it was tried until then; a line is written at the 1st, 10th, 100th ... time
}

// Addresses of a box's network. The gateway stands for the host's loopback, which a policy has to open.
var (
	NetAddr4 = netip.MustParsePrefix("10.0.2.100/24")
	NetAddr6 = netip.MustParsePrefix("fd00::100/64")
	Gateway4 = netip.MustParseAddr("10.0.2.2")
	Gateway6 = netip.MustParseAddr("fd00::2")
	DNS4     = netip.MustParseAddr("10.0.2.3")
	DNS6     = netip.MustParseAddr("fd00::3")
)

// NetMTU is the size of the largest packet of a box's network.
const NetMTU = 65520
