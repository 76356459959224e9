// Package pack reads plugin bundles: manifests that name git plugins to install together, what of them is turned on, and what a workspace is
// given with them.
//
// Words: a pack is a plugin bundle, as the field calls it (a bundle is something else in this program). A member is one line of its plugins. A
// section is the part of the settings that belongs to one member. An input is a question to the person who creates a workspace from it.
//
// It fetches nothing and writes nothing: internal/plugin/git installs members, internal/workspace seeds settings.
package pack

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
)

// Manifest is what a pack says.
type Manifest struct {
	File                    string
	ID, Name, Description   string
	Members                 []Member // those that can be meant, in file order, each id once
	Enabled                 []string // what is turned on; empty: every member
	Config                  doc.Node // an object: sections, each an object of defaults
	Servers                 []Server
	Secrets                 []Secret
	Inputs                  []Input
	Archetype               Archetype
	VerifiedAgainst         string
	ConfigNode, ServersNode doc.Node // as written, for the lock; absent where the manifest has none
	SecretsNode, InputsNode doc.Node
	ArchetypeNode           doc.Node
}

// Member is a git plugin that a pack names.
type Member struct {
	ID      string
	URL     string // as written; "" of a built-in one
	Source  git.Source
	Ref     string // "": the default branch
	Builtin bool
	Pos     diag.Pos
}

// Server is an MCP server that a workspace is given.
type Server struct {
	Name, Transport string
	Template        doc.Node // an object; its strings may hold ${key}
	Inputs          []ServerInput
	Pos             diag.Pos
}

// ServerInput fills a ${key} of a server.
type ServerInput struct {
	Key, Label string
	Env        string // a variable of the environment that may fill it, where the operator grants it
	Default    string
	HasDefault bool
	Required   bool
	Secret     bool
}

// Secret is a secret that a pack wants to be given.
type Secret struct {
	Key, Label, Placeholder string
	Required                bool
	Pos                     diag.Pos
}

// Archetype is how a pack is shown among kinds of agents.
type Archetype struct {
	Label, Icon, Blurb string
	Soul               string // the text of SOUL.md; ""
	SoulPreset         string // the name of one that the program ships; ""
	Tier               string // "standard" or "advanced"
	Requires           []string
	RequiresTools      []string
}

// ErrNone: there is no pack manifest.
var ErrNone = errors.New("there is no plugin bundle manifest")

// MaxManifest bounds a manifest, in bytes.
const MaxManifest = 256 << 10

// Read reads the manifest at the root of a tree. The list holds what is wrong; the manifest holds what could be read even so, and is nil when
// nothing could.
func Read(fsys fs.FS) (*Manifest, diag.List, error) {
	for _, name := range []string{git.BundleFile, git.PeerBundleFile} {
		f, err := fsys.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		src, err := io.ReadAll(io.LimitReader(f, MaxManifest+1))
		f.Close()
		if err != nil {
			return nil, nil, fmt.Errorf("read %s: %w", name, err)
		}
		if len(src) > MaxManifest {
			return nil, nil, fmt.Errorf("%s has more than %d KiB", name, MaxManifest>>10)
		}
		m, l := Parse(name, src)
		return m, l, nil
	}
	return nil, nil, ErrNone
}

// On are the ids that the pack turns on.
func (m *Manifest) On() []string {
	if len(m.Enabled) > 0 {
		return m.Enabled
	}
	var out []string
	for _, x := range m.Members {
		out = append(out, x.ID)
	}
	return out
}

// Member is the member of an id; nil when there is none.
func (m *Manifest) Member(id string) *Member {
	for i := range m.Members {
		if m.Members[i].ID == id {
			return &m.Members[i]
		}
	}
	return nil
}
