package workspace

import (
	"fmt"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/config"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Settings are what a workspace's files say of its plugins, under change: comments and order stay. Every method edits at once.
type Settings struct {
	config, secrets *doc.Tree
}

// EditSettings changes the settings of a workspace inside of a change of it: what change did is committed with the rest, or not at all.
func EditSettings(tx *folder.Tx, change func(*Settings) error) error {
	src, err := tx.Read(folder.Config)
	if err != nil {
		return err
	}
	hidden, err := tx.Read(folder.Secrets)
	if err != nil {
		return err
	}
	s, err := parseSettings(config.Name, src, hidden)
	if err != nil {
		return err
	}
	if err := change(s); err != nil {
		return err
	}
	if string(s.config.Src) != string(src) {
		if err := tx.Write(folder.Config, 0o644, s.config.Src); err != nil {
			return err
		}
	}
	if string(s.secrets.Src) == string(hidden) {
		return nil
	}
	return tx.Write(folder.Secrets, 0o600, s.secrets.Src)
}

func parseSettings(name string, src, hidden []byte) (*Settings, error) {
	s := &Settings{}
	var l diag.List
	if s.config, l = doc.Parse(name, src); l.HasErrors() {
		return nil, fmt.Errorf("the configuration can't be read: %w", l.Err())
	}
	if s.secrets, l = doc.ParseTOML(".agentenv/secrets.toml", hidden); l.HasErrors() {
		return nil, fmt.Errorf(".agentenv/secrets.toml can't be read from line %d on", l[0].Pos.Line) // the problem itself may quote a secret
	}
	return s, nil
}

// Enable turns a plugin on, and tells whether it was off.
func (s *Settings) Enable(id string) (bool, error) {
	was, err := s.out("disabled", id)
	if err != nil {
		return was, err
	}
	added, err := s.in("enabled", id)
	return was || added, err
}

// Disable turns a plugin off, so that no bundle turns it on again, and tells whether that changed anything.
func (s *Settings) Disable(id string) (bool, error) {
	was, err := s.out("enabled", id)
	if err != nil {
		return was, err
	}
	added, err := s.in("disabled", id)
	return was || added, err
}

// AddAcked adds a text to a list of [git_plugins.sources]: acked, or acked_plans.
func (s *Settings) AddAcked(list, text string) error {
	at := s.config.Root().Get("git_plugins").Get("sources").Get(list)
	switch {
	case slices.Contains(texts(at), text):
		return nil
	case !at.Exists():
		return edit(&s.config, doc.Set([]any{text}, "git_plugins", "sources", list))
	default:
		return edit(&s.config, doc.Insert(text, "git_plugins", "sources", list, at.Len()))
	}
}

// TrustUnverified says that no source needs consent.
func (s *Settings) TrustUnverified() error {
	return edit(&s.config, doc.Set(true, "git_plugins", "trust_unverified"))
}

// Forget takes a plugin out of what is on and what is off, and tells whether it was there.
func (s *Settings) Forget(id string) (bool, error) {
	on, err := s.out("enabled", id)
	if err != nil {
		return on, err
	}
	off, err := s.out("disabled", id)
	return on || off, err
}

// in adds an id to a list.
func (s *Settings) in(list, id string) (bool, error) {
	at := s.config.Root().Get("git_plugins").Get(list)
	if slices.Contains(texts(at), id) {
		return false, nil
	}
	if !at.Exists() {
		return true, edit(&s.config, doc.Set([]any{id}, "git_plugins", list))
	}
	return true, edit(&s.config, doc.Insert(id, "git_plugins", list, at.Len()))
}

// out takes an id out of a list, however often it is there.
func (s *Settings) out(list, id string) (found bool, err error) {
	for {
		i := slices.Index(texts(s.config.Root().Get("git_plugins").Get(list)), id)
		if i < 0 {
			return found, nil
		}
		if err := edit(&s.config, doc.Remove("git_plugins", list, i)); err != nil {
			return found, err
		}
		found = true
	}
}

// Purge removes a plugin's settings and secrets, and tells which of the two there were. Sections of the program's own are never a plugin's.
func (s *Settings) Purge(id string) (settings, secrets bool, err error) {
	if settings, err = drop(&s.config, "git_plugins", "config", id); err != nil {
		return settings, false, err
	}
	secrets, err = drop(&s.secrets, "plugins", id)
	return settings, secrets, err
}

// PurgeBundle removes a bundle's secrets, and the MCP servers that it gave and nobody edited since. It answers the names of the servers.
func (s *Settings) PurgeBundle(row git.BundleRow) (servers []string, secrets bool, err error) {
	if secrets, err = drop(&s.secrets, "bundles", row.ID); err != nil {
		return nil, secrets, err
	}
	for _, given := range row.Seeded {
		if given.File != inConfig || !strings.HasPrefix(given.Key, "mcp.servers.") {
			continue
		}
		list := s.config.Root().Get("mcp").Get("servers")
		for i, v := range list.Items() {
			name := v.Get("name").Text()
			if dotted([]string{"mcp", "servers", name}) != given.Key || ref.DigestOf(doc.Canonical(v)).Hex() != given.SHA256 {
				continue
			}
			if err := edit(&s.config, doc.Remove("mcp", "servers", i)); err != nil {
				return servers, secrets, err
			}
			if _, err := drop(&s.secrets, "mcp", name); err != nil {
				return servers, secrets, err
			}
			servers = append(servers, name)
			break
		}
	}
	return servers, secrets, nil
}

// drop removes what is at a place, and tells whether it was there.
func drop(t **doc.Tree, path ...string) (bool, error) {
	if has, _ := held((*t).Root(), path); !has {
		return false, nil
	}
	return true, edit(t, doc.Remove(anyPath(path)...))
}
