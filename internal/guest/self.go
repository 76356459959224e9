package guest

import "sync/atomic"

// playsPID1 is a fact about this process that its main function establishes once: it has passed pid1.Dispatch, so that executing its own
// binary under the name Argv0 gives a guest and not the program once more.
var playsPID1 atomic.Bool

// PlaysPID1 tells whether this program's own binary can be a guest.
func PlaysPID1() bool { return playsPID1.Load() }

// SetPlaysPID1 is for pid1.Dispatch.
func SetPlaysPID1() { playsPID1.Store(true) }
