package host

import (
	"encoding/json"
	"fmt"
	"os"

	"agentenv.internal/agentenv/internal/atomicfile"
	"agentenv.internal/agentenv/sdk/plugin"
)

// maxCache is how large the cache file may be; a larger one is made anew.
const maxCache = 16 << 20

// remembered is what the cache file says of a class. A file that can't be read, or is of another generation, remembers nothing.
func (p *Plugins) remembered(e plugin.Entry) (plugin.Type, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t, ok := p.cache()[cacheKey(e)]
	return t, ok
}

// cache is called with mu held.
func (p *Plugins) cache() map[string]plugin.Type {
	if p.cached != nil {
		return p.cached
	}
	p.cached = map[string]plugin.Type{}
	if p.setup.Cache == "" {
		return p.cached
	}
	if info, err := os.Stat(p.setup.Cache); err != nil || info.Size() > maxCache {
		return p.cached
	}
	b, err := os.ReadFile(p.setup.Cache)
	if err != nil {
		return p.cached
	}
	if r := parseCache(b); r.Generation == p.env.Generation() {
		p.cached = r.Types
	}
	return p.cached
}

// parseCache reads a cache file; the zero value with a map when it is none.
func parseCache(b []byte) remembering {
	var r remembering
	if json.Unmarshal(b, &r) != nil || r.Format != 1 || r.Types == nil {
		return remembering{Types: map[string]plugin.Type{}}
	}
	return r
}

// remember writes what a class is. Two processes that write at once lose one's knowledge, which is found again.
func (p *Plugins) remember(e plugin.Entry, t plugin.Type) error {
	if p.setup.Cache == "" || p.env.Generation() == "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cache()[cacheKey(e)] = t
	b, err := json.Marshal(remembering{1, p.env.Generation(), p.cached})
	if err != nil {
		return err
	}
	if err := atomicfile.WriteBytes(p.setup.Cache, 0o600, append(b, '\n')); err != nil {
		p.setup.Log.Debug("remember what a plugin's class is", "error", fmt.Sprint(err)) // it is asked again
	}
	return nil
}
