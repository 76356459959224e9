package workspace

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/plugin/git"
	"agentenv.internal/agentenv/internal/workspace/folder"
)

// Config is the configuration of every new workspace.
const Config = `# Settings of this workspace; agent-env config show tells what counts, and where it comes from.

[stores.secret.config]
# Of mode 0600: keep it out of version control.
file_path = ".agentenv/secrets.toml"
`

// Soul is SOUL.md of every new workspace.
const Soul = `You are a careful assistant. Use your tools to do what you are asked, check what you did, and say plainly what you found and what you could not do.
`

const ignored = "secrets.toml\n.lock\n.journal\n"

// fill writes everything into the folder in which the workspace is made. hold lets go of what has to stay until it is in place.
func (m *Maker) fill(ctx context.Context, o Order, f folder.Folder) (_ *Created, hold func() error, err error) {
	id := make([]byte, 2)
	_, _ = rand.Read(id) // never fails
	out := &Created{Workspace: Workspace{Name: o.Name, ID: o.Name + "-" + hex.EncodeToString(id), Created: m.Now().UTC().Truncate(time.Second), RequiresTools: union(nil, o.RequiresTools)}}
	files := map[string][]byte{folder.Config: []byte(Config), folder.Soul: []byte(Soul), ".gitignore": []byte(ignored)}
	if o.From != "" {
		if err := m.from(ctx, o.From, files, out); err != nil {
			return nil, nil, err
		}
	}
	if o.Soul != "" {
		files[folder.Soul] = []byte(o.Soul)
	}
	if files[About], err = out.Workspace.bytes(); err != nil {
		return nil, nil, err
	}
	for _, name := range sorted(files) {
		if err := atomicfile.CreateBytes(f.Path(name), 0o644, files[name]); err != nil {
			return nil, nil, err
		}
	}
	if o.Bundle == "" {
		return out, func() error { return nil }, nil
	}
	hold, err = m.bundle(ctx, o, f, out)
	return out, hold, err
}

// from takes over another workspace's configuration, soul and lock. Its secrets are its own.
func (m *Maker) from(ctx context.Context, root string, files map[string][]byte, out *Created) error {
	f, err := folder.Find(root)
	if err != nil || f.Root() != filepath.Clean(root) {
		return fmt.Errorf("%s is no workspace", root)
	}
	if err := f.Settle(ctx); err != nil {
		return err
	}
	for _, name := range []string{folder.Config, folder.Soul, folder.Lock} {
		b, err := f.Read(name)
		if err != nil {
			return err
		}
		if b != nil {
			files[name] = b
		}
	}
	if _, err := git.ReadLock(f.Path(folder.Lock), files[folder.Lock]); err != nil {
		return err
	}
	if b, err := f.Read(folder.Secrets); err == nil && len(b) > 0 {
		out.Warnings = append(out.Warnings, "the secrets of "+root+" were not taken over: write what is needed to .agentenv/secrets.toml")
	}
	return nil
}

// union is a and what b adds to it, in their order, each once.
func union(a, b []string) []string {
	var out []string
	for _, s := range slices.Concat(a, b) {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}
