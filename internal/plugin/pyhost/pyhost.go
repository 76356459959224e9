// Package pyhost holds the Python side of plugins: the modules that plugin classes import (agent_env, agentenv_protocol), and the process
// that serves those classes over the plugin protocol (agentenv_host).
//
// Words: an entry is an entry point of an installed distribution (group, name, value); the Python host is the process that serves entries of
// all distributions; our own distributions are the two packages that the modules come in, which every generation of the plugin environment
// holds. Their sources are in python/, one folder per distribution.
//
// The package speaks no protocol itself and finds no distributions: it writes wheels, says how the Python host is started, and loads
// entries to see whether they load.
package pyhost

import (
	"embed"
	"io/fs"
	"os"
)

// Our own distributions, and the versions that they count as for what plugins require.
const (
	FrameworkName    = "agentenv-framework"
	FrameworkVersion = "0.9.1375"
	ProtocolName     = "agentenv-framework-protocol"
	ProtocolVersion  = "0.1.379"
)

// MinPython is the oldest Python that our own distributions run on.
const MinPython = "3.9"

// Of underscored names only all: embeds what Python needs.
//
//go:embed all:python/framework all:python/protocol
var sources embed.FS

// distribution is one of ours.
type distribution struct {
	name, version, summary string
	dir                    string   // its folder in sources
	requires               []string // Requires-Dist
}

func distributions() []distribution {
	return []distribution{
		{
			name: ProtocolName, version: ProtocolVersion, dir: "python/protocol",
			summary: "How programs talk to environment servers",
		},
		{
			name: FrameworkName, version: FrameworkVersion, dir: "python/framework",
			summary:  "AgentEnv's interface for plugins that are written in Python",
			requires: []string{ProtocolName + "==" + ProtocolVersion, `click>=8; extra == "cli"`},
		},
	}
}

// files is the tree of a distribution's modules.
func (d distribution) files() (fs.FS, error) { return fs.Sub(sources, d.dir) }

// Argv starts the Python host with an interpreter of a plugin environment. Where messages go is for AGENTENV_PLUGIN to say, as the plugin
// protocol has it. Variables and user folders of Python that would change what is imported are ignored.
func Argv(python string) []string {
	return []string{python, "-I", "-B", "-X", "utf8", "-m", "agentenv_host"}
}

// Env are variables for the Python host, beyond those that every plugin gets: which program `python -m agent_env.cli` becomes.
func Env() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{"AGENTENV_BINARY=" + self}
}
