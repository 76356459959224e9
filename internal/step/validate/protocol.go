package validate

import (
	"context"
	"encoding/json"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/conformance"
	"agentenv.internal/agentenv/sdk/wire"
)

// Rows of the protocol's table that a card, and a data plane, must keep to be of use.
var (
	cardRows = []string{"E1"}
	dataRows = []string{"E3", "E4", "E7", "E11"}
)

// CheckCard reads the card of every server.
func CheckCard(ctx context.Context, v *deploy.Env) ([]step.Row, error) {
	return eachServer(ctx, v, func(ctx context.Context, _ string, t conformance.Target) ([]conformance.Result, error) {
		t.Rows = cardRows
		r, err := conformance.Run(ctx, t)
		return r.Results, err
	})
}

// CheckCoreProtocol resets every server, gives it back what it exported, and asks it for what it doesn't serve. The environment is empty afterwards.
func CheckCoreProtocol(ctx context.Context, v *deploy.Env) ([]step.Row, error) {
	return eachServer(ctx, v, func(ctx context.Context, name string, t conformance.Target) ([]conformance.Result, error) {
		t.Rows = dataRows
		t.Fixture.Add = exported(ctx, v, name)
		r, err := conformance.Run(ctx, t)
		return r.Results, err
	})
}

// exported is what a server answers to data/get, as the params of a data/add; nil where it holds nothing or only names a place.
func exported(ctx context.Context, v *deploy.Env, name string) json.RawMessage {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	raw, err := v.Gateway.Data(ctx, name, wire.Get, json.RawMessage("{}"))
	if err != nil {
		return nil // the row about data/get tells
	}
	var answer struct{ Parts []wire.Part }
	if json.Unmarshal(raw, &answer) != nil || len(answer.Parts) == 0 {
		return nil
	}
	for _, p := range answer.Parts {
		if p.Kind == wire.KindFile && (p.File == nil || !p.File.Inline()) {
			return nil
		}
	}
	b, err := json.Marshal(map[string]any{"parts": answer.Parts})
	if err != nil {
		return nil
	}
	return b
}

// eachServer makes rows of the protocol's checks of every server.
func eachServer(
	ctx context.Context, v *deploy.Env, check func(context.Context, string, conformance.Target) ([]conformance.Result, error),
) ([]step.Row, error) {
	var out []step.Row
	for _, name := range v.Names() {
		t, done := target(v, name)
		results, err := check(ctx, name, t)
		done()
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		for _, r := range results {
			row := outcome(name, r.Name, r.Reason)
			if r.Status == conformance.Skipped {
				row = skipped(name, r.Name, r.Reason)
			}
			row["row"] = r.Row
			out = append(out, row)
		}
		if err != nil {
			out = append(out, outcome(name, "the server answers", err.Error()))
		}
	}
	return out, nil
}
