package hostside

import (
	"errors"
	"fmt"

	"agentenv.internal/agentenv/internal/guest/usernet"
	"agentenv.internal/agentenv/internal/sandbox"
)

// CheckNetwork refuses networks that no box can have, and fills the default in. tun tells why boxes can have no TUN here, nil when they can;
// it is asked only where one is needed.
func CheckNetwork(s *sandbox.Spec, tun func() error) error {
	var errs []error
	seen := map[sandbox.Port]bool{}
	for _, p := range s.Publish {
		if p.Box == 0 {
			errs = append(errs, errors.New("port 0 of a sandbox can't be published"))
		}
		if seen[p] || p.Host != 0 && seen[sandbox.Port{Host: p.Host}] {
			errs = append(errs, fmt.Errorf("port %d is published twice", p.Box))
		}
		seen[p], seen[sandbox.Port{Host: p.Host}] = true, true
	}
	switch s.Network {
	case "", sandbox.NetNone:
		s.Network = sandbox.NetNone
		if len(s.Egress.Hosts)+len(s.Egress.CIDRs)+len(s.Egress.Ports) > 0 {
			errs = append(errs, errors.New("hosts, ranges and ports have no effect without a network; use allowlist"))
		}
	default:
		if _, err := usernet.NewPolicy(rules(s)); err != nil {
			errs = append(errs, err)
		} else if err := tun(); err != nil {
			errs = append(errs, fmt.Errorf("the network policy %s: %w: %w", s.Network, err, sandbox.ErrUnsupported))
		}
	}
	return errors.Join(errs...)
}

func rules(s *sandbox.Spec) usernet.Rules {
	return usernet.Rules{Mode: s.Network, Hosts: s.Egress.Hosts, CIDRs: s.Egress.CIDRs, Ports: s.Egress.Ports}
}
