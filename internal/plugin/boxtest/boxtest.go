// Package boxtest makes a plugin's provider of sandboxes of one of this program's, for tests: what goes over the plugin protocol is compared with what doesn't.
package boxtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"time"

	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/sdk/plugin"
)

// Provider is a provider called name that says it can what can says, and whose sandboxes are those of what open makes.
func Provider(name string, can plugin.SandboxAbilities, open func() (sandbox.Provider, error)) plugin.Sandboxes {
	return plugin.Sandboxes{
		Name: name, Description: "Sandboxes of another provider", Can: can,
		Open: func(context.Context, *plugin.Host) (plugin.SandboxProvider, error) {
			p, err := open()
			return maker{p}, err
		},
	}
}

// Everything is what sandboxes of real processes can, over the protocol.
func Everything() plugin.SandboxAbilities {
	return plugin.SandboxAbilities{Isolation: sandbox.LevelNamespaces, Networks: []string{sandbox.NetNone, sandbox.NetAllowAll, sandbox.NetAllow}, Can: []string{
		plugin.CanImages, plugin.CanShown, plugin.CanPublish, plugin.CanLimits, plugin.CanLeases, plugin.CanUsers, plugin.CanDial, plugin.CanListen, plugin.CanTrees,
	}}
}

// maker is a plugin's provider whose sandboxes are those of a provider of this program: what goes over the wire is compared with what doesn't.
type maker struct{ p sandbox.Provider }

func (m maker) Create(ctx context.Context, s plugin.SandboxSpec) (plugin.SandboxInfo, error) {
	spec := sandbox.Spec{
		Key: s.Key, Run: s.Run, Name: s.Name, Image: s.Image, Env: s.Env, Lease: s.Lease(), Tied: s.Tied, CPU: s.CPU, MemoryMB: s.MemoryMB, DiskMB: s.DiskMB, Pids: s.Pids,
		Network: s.Network, Aliases: s.Aliases, Isolation: s.Isolation, Labels: s.Labels,
	}
	if s.Egress != nil {
		spec.Egress = sandbox.Egress{Hosts: s.Egress.Hosts, Ports: s.Egress.Ports}
		for _, c := range s.Egress.CIDRs {
			p, err := netip.ParsePrefix(c)
			if err != nil {
				return plugin.SandboxInfo{}, err
			}
			spec.Egress.CIDRs = append(spec.Egress.CIDRs, p)
		}
	}
	for _, p := range s.Publish {
		spec.Publish = append(spec.Publish, sandbox.Port(p))
	}
	for _, v := range s.Shown {
		spec.Shown = append(spec.Shown, sandbox.Shown{From: v.From, At: v.At})
	}
	info, err := m.p.Create(ctx, spec)
	return infoOf(info), wordOf(err)
}

func infoOf(i sandbox.Info) plugin.SandboxInfo {
	out := plugin.SandboxInfo{
		ID: i.ID, Name: i.Name, Key: i.Key, Run: i.Run, State: i.State, Tied: i.Tied, Created: i.Created, Expires: i.Expires, Image: i.Image, Network: i.Network, Cause: i.Cause,
		Labels: i.Labels, Isolation: plugin.SandboxIsolation{Level: i.Isolation.Level, Limits: i.Isolation.Limits},
	}
	for _, p := range i.Isolation.Probes {
		out.Isolation.Probes = append(out.Isolation.Probes, plugin.SandboxProbe(p))
	}
	for _, p := range i.Published {
		out.Published = append(out.Published, plugin.SandboxPort(p))
	}
	return out
}

// wordOf is an error as plugins say it.
func wordOf(err error) error {
	switch {
	case errors.Is(err, sandbox.ErrNotFound):
		return fmt.Errorf("%w: %w", plugin.ErrNoSandbox, err)
	case errors.Is(err, sandbox.ErrUnsupported):
		return fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	case errors.Is(err, guest.ErrGone):
		return fmt.Errorf("%w: %w", plugin.ErrSandboxGone, err)
	case errors.Is(err, guest.ErrTooBig):
		return fmt.Errorf("%w: %w", plugin.ErrTooBig, err)
	}
	return err
}

func (m maker) Connect(ctx context.Context, id string) (plugin.Sandbox, error) {
	b, err := m.p.Connect(ctx, id)
	if err != nil {
		return nil, wordOf(err)
	}
	return box{b}, nil
}

func (m maker) List(ctx context.Context) ([]plugin.SandboxInfo, error) {
	infos, err := m.p.List(ctx)
	var out []plugin.SandboxInfo
	for _, i := range infos {
		out = append(out, infoOf(i))
	}
	return out, err
}

func (m maker) Destroy(ctx context.Context, id string) error { return m.p.Destroy(ctx, id) }
func (m maker) Sweep(ctx context.Context) ([]string, error)  { return m.p.Sweep(ctx) }
func (m maker) Close() error                                 { return m.p.Close() }

type box struct{ b guest.Box }

func (m box) Exec(ctx context.Context, c plugin.SandboxExec, stdio plugin.Stdio) (plugin.SandboxExit, error) {
	pipes, err := stdio.Pipes()
	if err != nil {
		return plugin.SandboxExit{}, err
	}
	x, err := m.b.Exec(ctx, guest.Command{Argv: c.Argv, Env: c.Env, Dir: c.Dir, User: c.User, Timeout: c.Timeout(), KillTree: c.KillTree}, pipes.Files)
	pipes.Drain()
	return plugin.SandboxExit{
		Code: x.Code, Signal: x.Signal, TimedOut: x.TimedOut, OOM: x.OOM, DiskFull: x.DiskFull, PidsFull: x.PidsFull, Left: x.Left,
		ElapsedUS: x.Elapsed.Microseconds(), CPUUS: x.CPU.Microseconds(),
	}, wordOf(err)
}

func (m box) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := m.b.Dial(ctx, network, address)
	return c, wordOf(err)
}

func (m box) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := m.b.Listen(ctx, network, address)
	return l, wordOf(err)
}

func (m box) ReadFile(ctx context.Context, path string, max int64) ([]byte, error) {
	b, err := m.b.ReadFile(ctx, path, max)
	return b, wordOf(err)
}

func (m box) Stat(ctx context.Context, path string) (fs.FileInfo, error) {
	i, err := m.b.Stat(ctx, path)
	return i, wordOf(err)
}

func (m box) Tree(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := m.b.Tree(ctx, path)
	return r, wordOf(err)
}

func (m box) Extract(ctx context.Context, path string, tar io.Reader) error {
	return wordOf(m.b.Extract(ctx, path, tar))
}

func (m box) Renew(ctx context.Context, d time.Duration) error { return wordOf(m.b.Renew(ctx, d)) }
func (m box) Close() error                                     { return m.b.Close() }
