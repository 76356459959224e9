package docker

import (
	"context"
	"math/rand/v2"
	"os"
)

// Network hosts of the machine's root run as an id of this range, which no local box has and nobody else should.
const (
	nobodyFirst = 1 << 29
	nobodies    = 1 << 16
)

// network makes ready what the box needs of the host for its network.
func (m *making) network(ctx context.Context, words *os.File) error {
	if err := m.net.Prepare(m.slot.dir, netName, m.spec); err != nil {
		return err
	}
	nobody := 0
	if os.Geteuid() == 0 {
		nobody = nobodyFirst + rand.IntN(nobodies)
	}
	return m.net.Start(ctx, m.p.launcher, m.p.hosts, nobody, words)
}
