package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"agentenv.internal/agentenv/internal/agent/cli"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/guest"
	"agentenv.internal/agentenv/internal/sandbox"
	"agentenv.internal/agentenv/internal/treestore"
)

// DefaultNPMRegistry is where packages of Node come from when nothing else is configured.
const DefaultNPMRegistry = "https://registry.npmjs.org"

// registry is where a profile's package comes from.
func (m *maker) registry(p *cli.Profile) string {
	switch {
	case p.Package.Registry == cli.PyPI && m.options.PythonIndex != "":
		return m.options.PythonIndex
	case p.Package.Registry == cli.PyPI:
		return DefaultPythonIndex
	case m.options.NPMRegistry != "":
		return m.options.NPMRegistry
	}
	return DefaultNPMRegistry
}

// places are the folders of programs in tool chains that local sandboxes see.
func (m *maker) places() []string {
	var out []string
	for _, t := range m.options.Tools {
		out = append(out, t+"/bin", t)
	}
	return out
}

// installed holds the tree of an agent's package, installed once for its releases, a registry and what runs it. Nothing of it runs outside a box, and the
// box of the installation reaches the registry alone.
func (m *maker) installed(ctx context.Context, r AgentRequest, p *cli.Profile) (*treestore.Held, error) {
	registry := m.registry(p)
	with := ""
	if p.Package.Registry == cli.PyPI {
		with = strings.Join(append([]string{pythonOf()}, m.options.Tools...), ":") // compiled parts are for one Python
	}
	key, err := p.Package.Key(registry, with)
	if err != nil {
		return nil, unsupported("the agent %s can't be installed: %s", p.Name, err)
	}
	argv, err := p.Install(registry, m.places()...)
	if err != nil {
		return nil, err
	}
	return m.get(ctx, keyOf("agent", key), func(ctx context.Context, dir string) error {
		egress, err := egressOf(ctx, registry)
		if err != nil {
			return err
		}
		return m.make(ctx, EnvRequest{Run: r.Run, Step: r.Step, Attempt: r.Attempt}, job{
			what: "install " + p.Name + " " + p.Package.Version, name: "installation of " + p.Name, from: cli.Folder, to: dir,
			spec: sandbox.Spec{Network: sandbox.NetAllow, Egress: egress, Lease: 2 * makeLimit, DiskMB: installDiskMB}, command: argv,
		})
	})
}

// installDiskMB is the disk of an installation: packages are there twice while they are unpacked.
const installDiskMB = 4096

// program is a command in an agent's box.
type program struct{ path, version, note string }

// command finds an agent's command in its box: the box's own when it is one that the profile was checked with, else the installed one, which a box
// that doesn't show it already is given a copy of.
func (m *maker) command(ctx context.Context, box guest.Box, r AgentRequest, p *cli.Profile, shown bool) (program, error) {
	own := program{path: p.Package.Path(), version: p.Package.Version}
	if shown {
		return own, nil
	}
	f, err := cli.Find(ctx, box, p)
	if err != nil {
		return program{}, err
	}
	if f != nil && f.Fit == cli.Checked {
		return program{path: f.Path, version: f.Version.String()}, nil
	}
	h, err := m.installed(ctx, r, p)
	if err == nil {
		defer func() { _ = h.Release() }()
		return own, putTree(ctx, box, h.Path(), cli.Folder)
	}
	switch {
	case f == nil:
		return program{}, err
	case f.Fit == cli.Newer:
		return program{f.Path, f.Version.String(), fmt.Sprintf("%s is %s, which is newer than what it was checked with (before %s)", f.Path, f.Version, p.Before)}, nil
	}
	return program{}, fmt.Errorf("%s is %s, and %s or newer is needed: %w", f.Path, f.Version, p.From, err)
}

// onSystem tells whether this machine, and so its local boxes, may have a command of their own.
func onSystem(command string) bool {
	if command == "" {
		return false
	}
	for _, dir := range filepath.SplitList(systemPath) {
		if _, err := os.Stat(filepath.Join(dir, command)); err == nil {
			return true
		}
	}
	return false
}

// missing makes a lacking runtime a refusal that names the agent.
func missing(p *cli.Profile, err error) error {
	var none *cli.MissingError
	if errors.As(err, &none) {
		return unsupported("the agent %s can't run here: %s", diag.Repr(p.Name), err)
	}
	return err
}
