package cli

import (
	_ "embed"
	"fmt"
	"runtime"
	"strconv"
	"strings"
)

// Registries that packages come from.
const (
	NPM  = "npm"
	PyPI = "pypi"
)

// Package is what a command is installed from.
type Package struct {
	Registry string
	Version  string
	// Names are the packages with their versions, by architecture as Go names it; "" is for all.
	Names map[string][]string
	// Program is the command within the folder of the installation, by architecture; "" is for all. An empty one is a program of our own that the
	// profile brings along.
	Program map[string]string
}

// Folder is where an installation is in a sandbox.
const Folder = "/opt/agentenv/cli"

// Specs are the packages to install on this architecture.
func (p Package) Specs() ([]string, error) {
	for _, arch := range []string{runtime.GOARCH, ""} {
		if s := p.Names[arch]; len(s) > 0 {
			return s, nil
		}
	}
	return nil, fmt.Errorf("its package is not there for %s", runtime.GOARCH)
}

// Path is the command in a sandbox that shows the installation at Folder; "" for a program of our own.
func (p Package) Path() string {
	for _, arch := range []string{runtime.GOARCH, ""} {
		if s := p.Program[arch]; s != "" {
			return Folder + "/" + s
		}
	}
	return ""
}

// Key tells installations apart: the same key is the same files. registry is the URL that they come from, runtime what runs them.
func (p Package) Key(registry, with string) (string, error) {
	specs, err := p.Specs()
	if err != nil {
		return "", err
	}
	return strings.Join(append([]string{p.Registry, registry, with}, specs...), " "), nil
}

//go:embed assets/install.sh
var installScript string

// Install is the command that installs the profile's package at Folder inside a sandbox that reaches the registry. places are folders of programs in
// that sandbox, looked in before its path. Scripts of packages don't run: what they would do at best is fetch more.
func (p *Profile) Install(registry string, places ...string) ([]string, error) {
	specs, err := p.Package.Specs()
	if err != nil {
		return nil, err
	}
	r := p.Runtime
	return append([]string{
		"sh", "-euc", installScript, "install", p.Package.Registry, Folder, registry, strings.Join(places, ":"), r.Name, strconv.Itoa(r.Min[0]), strconv.Itoa(r.Min[1]),
	}, specs...), nil
}
