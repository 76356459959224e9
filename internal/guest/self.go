package guest

import "sync/atomic"

// hostsNetworks is the same for nethost.Dispatch and the name HostArgv0.
var hostsNetworks atomic.Bool

// HostsNetworks tells whether this program's own binary can be a network host.
func HostsNetworks() bool { return hostsNetworks.Load() }

// SetHostsNetworks is for nethost.Dispatch.
func SetHostsNetworks() { hostsNetworks.Store(true) }

// playsPID1 is a fact about this process that its main function establishes once: it has passed pid1.Dispatch, so that executing its own
// binary under the name Argv0 gives a guest and not the program once more.
var playsPID1 atomic.Bool

// PlaysPID1 tells whether this program's own binary can be a guest.
func PlaysPID1() bool { return playsPID1.Load() }

// SetPlaysPID1 is for pid1.Dispatch.
func SetPlaysPID1() { playsPID1.Store(true) }
