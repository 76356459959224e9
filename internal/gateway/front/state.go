package front

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/internal/gateway/clock"
)

// saved is what outlives a gateway.
type saved struct {
	FormatVersion int                         `json:"format_version"`
	Clock         clock.Saved                 `json:"clock"`
	Rules         map[string]access.RoleRules `json:"rules"`
	Triggers      json.RawMessage             `json:"triggers,omitempty"`
}

const savedVersion = 1

// load goes on from the state file, when there is one.
func (g *Gateway) load() error {
	if g.o.StateFile == "" {
		return nil
	}
	b, err := os.ReadFile(g.o.StateFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the gateway's state: %w", err)
	}
	var s saved
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("the gateway's state %s can't be read; remove it to begin anew: %w", g.o.StateFile, err)
	}
	if s.FormatVersion != savedVersion {
		return fmt.Errorf("the gateway's state %s has format version %d, and this program reads %d; remove it to begin anew", g.o.StateFile, s.FormatVersion, savedVersion)
	}
	if err := g.clock.Restore(s.Clock); err != nil {
		return fmt.Errorf("the gateway's state %s: %w", g.o.StateFile, err)
	}
	g.rules.Restore(s.Rules)
	if s.Triggers != nil {
		if err := g.triggers.Restore(s.Triggers); err != nil {
			return fmt.Errorf("the gateway's state %s: %w", g.o.StateFile, err)
		}
	}
	return nil
}

// keep saves, and tells when that failed: whoever changed the state has their change all the same.
func (g *Gateway) keep() {
	if err := g.save(); err != nil {
		g.log.Error("the gateway's state can't be kept", "error", err)
	}
}

func (g *Gateway) save() error {
	if g.o.StateFile == "" {
		return nil
	}
	g.saving.Lock()
	defer g.saving.Unlock()
	triggers, err := g.triggers.Save()
	if err != nil {
		return err
	}
	b, err := json.Marshal(saved{savedVersion, g.clock.Save(), g.rules.State(), triggers})
	if err != nil {
		return fmt.Errorf("write the gateway's state: %w", err)
	}
	if err := atomicfile.MkdirAll(filepath.Dir(g.o.StateFile)); err != nil {
		return fmt.Errorf("make the folder of the gateway's state: %w", err)
	}
	if err := atomicfile.WriteBytes(g.o.StateFile, 0o600, b); err != nil {
		return fmt.Errorf("write the gateway's state: %w", err)
	}
	return nil
}
