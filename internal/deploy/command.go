package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"

	"agentenv.internal/agentenv/internal/access"
	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/toolcmd"
	"agentenv.internal/agentenv/sdk/wire"
)

// ErrManifest: an environment's tools are nothing that a command can be made of.
var ErrManifest = errors.New("no command can be made")

// CommandName is how a command is called that nobody named.
func (v *Env) CommandName() string {
	name := fileName(v.Title)
	if !artifact.IsCommand(name) {
		name = "env-" + name
	}
	return name
}

// StoreCommand stores a command that calls the tools of the environment as a version of a cli artifact; "" for its name is the environment's. A latest
// version that says the same is left as it is unless again is set; fresh tells which it was.
func (v *Env) StoreCommand(ctx context.Context, s store.Store, id, name string, again bool) (p artifact.Pin, fresh bool, err error) {
	entries := v.Gateway.Tools(access.Principal{Owner: true, Deployment: v.Instance})
	if len(entries) == 0 {
		return p, false, fmt.Errorf("%w of environment %s: it serves no tools", ErrManifest, diag.Repr(v.ID))
	}
	for _, srv := range v.Servers {
		if srv.backend() && !srv.Website {
			if err := srv.checkManifest(ctx); err != nil {
				return p, false, err
			}
		}
	}
	if name == "" {
		name = v.CommandName()
	}
	c, err := toolcmd.New(name, v.Title, entries)
	if err != nil {
		return p, false, fmt.Errorf("%w of environment %s: %w", ErrManifest, diag.Repr(v.ID), err)
	}
	return toolcmd.Put(ctx, s, id, artifact.Pin{ID: v.ID, Version: v.Version}, c, again)
}

// checkManifest is ErrManifest when the server serves an interface manifest that names another service: then it is not what it is deployed as. A server
// that serves none, or one that can't be read, is made a command of by its tools alone.
func (s *Server) checkManifest(ctx context.Context) error {
	t := s.transport()
	defer t.CloseIdleConnections()
	b, err := exchange(ctx, t, http.MethodGet, s.base()+wire.CardPath, nil)
	if err != nil {
		return nil //nolint:nilerr // so it serves none
	}
	card, err := wire.ParseCard(b)
	if err != nil {
		return nil //nolint:nilerr // as above
	}
	x := card.Extension(wire.URNInterfaces)
	if x == nil {
		return nil
	}
	var at struct{ Endpoint string }
	if json.Unmarshal(x.Params, &at) != nil || at.Endpoint == "" {
		return nil
	}
	var manifest struct{ Service *string }
	b, err = exchange(ctx, t, http.MethodGet, s.url(path.Join(at.Endpoint, "cli")).String(), nil)
	if err != nil || json.Unmarshal(b, &manifest) != nil || manifest.Service == nil || *manifest.Service == s.Name {
		return nil //nolint:nilerr // as above
	}
	return fmt.Errorf("%w: the interface manifest of server %s names the service %s", ErrManifest, diag.Repr(s.Name), diag.Repr(*manifest.Service))
}
