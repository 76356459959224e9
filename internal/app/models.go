package app

import (
	"context"
	"encoding/json"

	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/model/source"
	"agentenv.internal/agentenv/internal/step/verify"
)

// Models finds the models that names stand for, scripted ones in the store.
func (a *App) Models(ctx context.Context) (*source.Models, error) {
	return a.models.get(func() (*source.Models, error) {
		s, err := a.Store(ctx)
		if err != nil {
			return nil, err
		}
		m := source.New(s, a.modelSettings, model.Patience{})
		a.onClose(func(context.Context) error { m.Close(); return nil })
		return m, nil
	})
}

// panel is who grades where a run names no judge.
func (a *App) panel(ctx context.Context) (verify.Panel, error) {
	j, err := a.Config().Judge(ctx, a.secrets)
	return verify.Panel{Models: j.Models, Repeats: j.Repeats}, err
}

func (a *App) modelSettings(ctx context.Context) (source.Settings, error) {
	c, err := a.Config().Model(ctx, a.secrets)
	if err != nil {
		return source.Settings{}, err
	}
	params := map[string]json.RawMessage{}
	for name, v := range c.Params.Members() {
		params[name] = doc.JSON(v)
	}
	return source.Settings{
		Endpoint: model.Endpoint{BaseURL: c.BaseURL, Key: c.APIKey, Headers: c.Headers, Params: params}, Default: c.Default, Roles: c.Roles,
	}, nil
}
