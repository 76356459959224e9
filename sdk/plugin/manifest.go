package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"sync"
)

// ManifestName is the file beside a wheel's METADATA that says what a program adds.
const ManifestName = "agentenv_plugin.json"

// Limits of manifests.
const (
	MaxManifest = 1 << 20 // bytes
	MaxTypes    = 256
)

// Manifest is the content of agentenv_plugin.json.
type Manifest struct {
	Format   int    `json:"format_version"` // 1
	Protocol int    `json:"protocol_version"`
	Types    []Type `json:"types"`
}

// Type is a type that a plugin adds.
type Type struct {
	Group       string          `json:"group"`
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"` // JSON Schema of its own fields; nil: any
	Refs        []Ref           `json:"refs,omitempty"`
	Scores      bool            `json:"scores,omitempty"`
	// Sandbox is what a provider of sandboxes can; nil of other groups.
	Sandbox *SandboxAbilities `json:"sandbox,omitempty"`
}

// Ref is a field that names a stored thing.
type Ref struct {
	Path    string `json:"path"` // "artifacts[].id"
	Kind    string `json:"kind"` // artifact, env, agent, task
	Type    string `json:"type,omitempty"`
	Version string `json:"version,omitempty"` // the field beside it that pins a version
	Out     bool   `json:"out,omitempty"`
}

var typeName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`) })

// ParseManifest reads a manifest. The error says what is wrong, for the people who ship it.
func ParseManifest(b []byte) (*Manifest, error) {
	if len(b) > MaxManifest {
		return nil, fmt.Errorf("%s is larger than %d bytes", ManifestName, MaxManifest)
	}
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(b))
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("%s is not JSON as it should be: %w", ManifestName, err)
	}
	if d.More() {
		return nil, fmt.Errorf("%s holds more than one JSON value", ManifestName)
	}
	switch {
	case m.Format != 1:
		return nil, fmt.Errorf("%s has format_version %d; 1 is known", ManifestName, m.Format)
	case m.Protocol < 1:
		return nil, fmt.Errorf("%s lacks protocol_version", ManifestName)
	case len(m.Types) > MaxTypes:
		return nil, fmt.Errorf("%s lists %d types; %d is the most", ManifestName, len(m.Types), MaxTypes)
	}
	type key struct{ group, name string }
	seen := map[key]bool{}
	for i, t := range m.Types {
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("%s: type %d: %w", ManifestName, i+1, err)
		}
		if k := (key{t.Group, t.Name}); seen[k] {
			return nil, fmt.Errorf("%s: type %d: %s %s is listed twice", ManifestName, i+1, t.Group, t.Name)
		}
		seen[key{t.Group, t.Name}] = true
	}
	return &m, nil
}

func (t *Type) check() error {
	switch t.Group {
	case GroupSteps, GroupEnvs, GroupArtifacts, GroupProviders:
		if !typeName().MatchString(t.Name) {
			return fmt.Errorf("%q can't be the name of a type: %s", t.Name, typeName())
		}
	case GroupCommands:
		if !commandName().MatchString(t.Name) {
			return fmt.Errorf("%q can't be the name of a command: %s", t.Name, commandName())
		}
	default:
		return fmt.Errorf("no group %q; there are %s, %s, %s, %s and %s", t.Group, GroupSteps, GroupEnvs, GroupArtifacts, GroupProviders, GroupCommands)
	}
	if err := t.checkSandbox(); err != nil {
		return err
	}
	if s := bytes.TrimSpace(t.Schema); len(s) > 0 && s[0] != '{' && string(s) != "null" {
		return fmt.Errorf("%s: schema must be an object", t.Name)
	}
	for _, r := range t.Refs {
		if r.Path == "" {
			return fmt.Errorf("%s: a ref lacks its path", t.Name)
		}
		switch r.Kind {
		case "artifact", "env", "agent", "task":
		default:
			return fmt.Errorf("%s: a ref is of kind %q; there are artifact, env, agent and task", t.Name, r.Kind)
		}
	}
	return nil
}

// checkSandbox tells what is wrong with what a provider of sandboxes says of itself.
func (t *Type) checkSandbox() error {
	switch c := t.Sandbox; {
	case t.Group != GroupProviders && c != nil:
		return fmt.Errorf("%s: sandbox is of %s alone", t.Name, GroupProviders)
	case t.Group != GroupProviders:
		return nil
	case c == nil:
		return fmt.Errorf("%s: a provider of sandboxes says in sandbox what it can", t.Name)
	case c.Isolation != "none" && c.Isolation != "namespaces" && c.Isolation != "container":
		return fmt.Errorf("%s: isolation is none, namespaces or container, not %q", t.Name, c.Isolation)
	case len(c.Networks) == 0:
		return fmt.Errorf("%s: networks lists none of none, allow_all and allowlist", t.Name)
	default:
		for _, n := range c.Networks {
			if n != "none" && n != "allow_all" && n != "allowlist" {
				return fmt.Errorf("%s: networks are none, allow_all and allowlist, not %q", t.Name, n)
			}
		}
		return nil
	}
}

var commandName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`) })
