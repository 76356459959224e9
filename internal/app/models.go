package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"agentenv.internal/agentenv/internal/artifactstore"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step/verify"
	"agentenv.internal/agentenv/internal/store"
)

// Models finds the models that names stand for, scripted ones in the store.
func (a *App) Models(ctx context.Context) (*source.Models, error) {
	return a.models.get(func() (*source.Models, error) {
		s, err := a.Store(ctx)
		if err != nil {
			return nil, err
		}
		m := source.New(s, a.modelSettings, model.Patience{}, a.opt.Log)
		a.onClose(func(context.Context) error { m.Close(); return nil })
		return m, nil
	})
}

// maxScript bounds a script.
const maxScript = 16 << 20

// Script stores the script in a file of this machine, unless it is stored already, and answers the name of the model that plays it. Its id tells its content,
// so that runs on record name what they played. A dry one only tells whether it is a script.
func (a *App) Script(ctx context.Context, file string, dry bool) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxScript+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxScript {
		return "", fmt.Errorf("%s is larger than %d MiB, the most that a script may have", file, maxScript>>20)
	}
	if _, err := model.ParseScript(b); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	stem := notInIDs().ReplaceAllString(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), "-")
	id := "@local/scripts/" + cmp.Or(strings.Trim(stem, "-"), "script") + "-" + ref.DigestOf(b).Hex()[:12]
	if dry {
		return model.ScriptedPrefix + id, nil
	}
	s, err := a.Store(ctx)
	if err != nil {
		return "", err
	}
	if _, err := s.Get(ctx, store.Artifact, id, 0); !errors.Is(err, store.ErrNotFound) {
		return model.ScriptedPrefix + id, err
	}
	_, err = artifactstore.New(s).Put(ctx, artifactstore.Put{Type: "file", ID: id, Paths: []string{file}})
	return model.ScriptedPrefix + id, err
}

var notInIDs = lazyregexp.New(`[^A-Za-z0-9-]+`)

// panel is who grades where a run names no judge.
func (a *App) panel(ctx context.Context) (verify.Panel, error) {
	j, err := a.Config().Judge(ctx, a.secrets)
	return verify.Panel{Models: j.Models, Repeats: j.Repeats}, err
}

// evalSettings are what of the configuration can change how a trial ends. The endpoint's address and key are not among them.
func (a *App) evalSettings(ctx context.Context) (map[string]string, error) {
	c, err := a.Config().Model(ctx, a.secrets)
	if err != nil {
		return nil, err
	}
	j, err := a.Config().Judge(ctx, a.secrets)
	out := map[string]string{}
	put := func(name, v string) {
		if v != "" {
			out["setting "+name] = v
		}
	}
	put("model.default", c.Default)
	for role, name := range c.Roles {
		put("model.roles."+role, name)
	}
	for name, v := range c.Params.Members() {
		put("model.params."+name, string(doc.JSON(v)))
	}
	put("judge.models", strings.Join(j.Models, ", "))
	if len(j.Models) > 0 || j.Repeats > 1 {
		put("judge.repeats", strconv.Itoa(j.Repeats))
	}
	return out, err
}

func (a *App) modelSettings(ctx context.Context) (source.Settings, error) {
	c, err := a.Config().Model(ctx, a.secrets)
	if err != nil {
		return source.Settings{}, err
	}
	a.redact.Add(c.APIKey)
	params := map[string]json.RawMessage{}
	for name, v := range c.Params.Members() {
		params[name] = doc.JSON(v)
	}
	return source.Settings{
		Endpoint: model.Endpoint{BaseURL: c.BaseURL, Key: c.APIKey, Headers: c.Headers, Params: params}, Default: c.Default, Roles: c.Roles, Patience: c.Patience,
	}, nil
}
