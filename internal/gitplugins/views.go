package gitplugins

import (
	"context"

	"agentenv.internal/agentenv/internal/workspace"
)

// Held are the files of a git plugin that is on.
type Held struct {
	workspace.Plugin
	all *workspace.Plugins
}

// Close lets go of the files.
func (h *Held) Close() error { return h.all.Close() }

// Hold holds the files of a plugin of the workspace, for as long as they are shown; nil where it isn't installed, is off, or can't be used under the
// configuration as it is now: what is allowed is asked here too. The caller closes it.
func (p *Plugins) Hold(ctx context.Context, id string) (*Held, error) {
	s, on, err := p.withSettings(ctx)
	if err != nil {
		return nil, err
	}
	all, err := workspace.ReadPlugin(ctx, s, id, on, p.o.Env)
	if err != nil {
		return nil, err
	}
	if len(all.All) == 0 || !all.All[0].Enabled {
		return nil, all.Close()
	}
	return &Held{all.All[0], all}, nil
}
