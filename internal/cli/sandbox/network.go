package sandbox

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"agentenv.internal/agentenv/internal/cli/verb"
	"agentenv.internal/agentenv/internal/sandbox"
)

// networkFlags are what a sandbox may reach and where it is reached.
type networkFlags struct {
	network string
	hosts   []string
	cidrs   []string
	ports   []string
	publish []string
}

func (n *networkFlags) add(f *pflag.FlagSet) {
	f.StringVar(&n.network, "network", "", "what it may reach: none, allow_all (public addresses) or allowlist (`MODE`); none by default, allowlist with an --allow flag")
	f.StringArrayVar(&n.hosts, "allow-host", nil, "may reach this `HOST`; *.example.org is every name below it; repeatable")
	f.StringArrayVar(&n.cidrs, "allow-cidr", nil, "may reach this range of addresses, `CIDR`, the one way to private ones; repeatable")
	f.StringArrayVar(&n.ports, "allow-port", nil, "may reach what the list names on this `PORT` alone; repeatable")
	f.StringArrayVarP(&n.publish, "publish", "p", nil, "reach a port of it on 127.0.0.1, `BOX[:HOST]`; repeatable")
}

// into fills a spec in.
func (n *networkFlags) into(s *sandbox.Spec) error {
	s.Network = n.network
	lists := len(n.hosts)+len(n.cidrs)+len(n.ports) > 0
	modes := []string{sandbox.NetNone, sandbox.NetAllowAll, sandbox.NetAllow}
	switch {
	case n.network == "" && lists:
		s.Network = sandbox.NetAllow
	case n.network == "":
		s.Network = sandbox.NetNone
	case !slices.Contains(modes, n.network):
		return verb.Usagef("--network takes %s, not %q", strings.Join(modes, ", "), n.network)
	case n.network != sandbox.NetAllow && lists:
		return verb.Usagef("--allow-host, --allow-cidr and --allow-port have no effect with --network %s; leave it out, or use allowlist", n.network)
	}
	s.Egress.Hosts = n.hosts
	for _, text := range n.cidrs {
		c, err := sandbox.ParseCIDR(text)
		if err != nil {
			return verb.Usagef("--allow-cidr takes a range such as 10.0.0.0/8, not %q", text)
		}
		s.Egress.CIDRs = append(s.Egress.CIDRs, c)
	}
	for _, text := range n.ports {
		p, err := portOf(text)
		if err != nil {
			return verb.Usagef("--allow-port takes a port from 1 to 65535, not %q", text)
		}
		s.Egress.Ports = append(s.Egress.Ports, p)
	}
	if len(n.ports) > 0 && len(n.hosts)+len(n.cidrs) == 0 {
		return verb.Usagef("--allow-port opens nothing by itself; say with --allow-host or --allow-cidr where")
	}
	for _, text := range n.publish {
		box, host, pair := strings.Cut(text, ":")
		p := sandbox.Port{}
		var err, hostErr error
		p.Box, err = portOf(box)
		if pair {
			p.Host, hostErr = portOf(host)
		}
		if err != nil || hostErr != nil {
			return verb.Usagef("--publish takes a port of the sandbox and, after a colon, one of this machine, as in 8080:18080; not %q", text)
		}
		s.Publish = append(s.Publish, p)
	}
	return nil
}

func portOf(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err == nil && n == 0 {
		err = strconv.ErrRange
	}
	return uint16(n), err
}
