package host

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/plugin"
	"agentenv.internal/agentenv/sdk/plugin/rpc"
)

// served is what serves a type: the program, the entry that declares it there, and the plugin in messages.
type served struct {
	p     *Plugin
	entry plugin.Entry
	whose string
}

// failure is an error of a plugin's work, as people and records read it.
func (s served) failure(ctx context.Context, err error) error {
	_, err = s.told(ctx, err)
	return err
}

// told is failure, with what the plugin says of it; the zero value where it says nothing.
func (s served) told(ctx context.Context, err error) (plugin.Failure, error) {
	if ctx.Err() != nil && errors.Is(err, context.Cause(ctx)) {
		return plugin.Failure{}, err
	}
	e, ok := errors.AsType[*rpc.Error](err)
	if !ok || e.Code != plugin.CodeFailed {
		return plugin.Failure{}, s.defect(err)
	}
	var f plugin.Failure
	if len(e.Data) > 0 && json.Unmarshal(e.Data, &f) != nil {
		return plugin.Failure{}, s.defect(errors.New("it failed, and what it says of that can't be read"))
	}
	err = step.Errorf(word(f.Type), "%s", e.Message)
	if f.Infra {
		err = step.Infra(err)
	}
	return f, err
}

// defect is an error that says nothing of the task or the agent.
func (s served) defect(err error) error {
	if e, ok := errors.AsType[*rpc.Error](err); ok {
		return step.Infra(step.Errorf(PluginError, "the plugin %s has a defect: %s", s.whose, diag.Clean(e.Message)))
	}
	return step.Infra(step.Errorf(PluginError, "%s", s.text(err)))
}

// defectOf is the defect that what a plugin answered can't be used.
func (s served) defectOf(what string, err error) error {
	return step.Infra(step.Errorf(PluginError, "the plugin %s has a defect: %s: %s", s.whose, what, diag.Clean(err.Error())))
}

// text is an error with whose it is.
func (s served) text(err error) string {
	if _, died := errors.AsType[*Died](err); died { // which says it
		return err.Error()
	}
	return "the plugin " + s.whose + ": " + diag.Clean(err.Error())
}

// word is a failure's type as records show it.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '_' || r == '.' || r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return -1
	}, s)
	if s == "" {
		return "Error"
	}
	return s[:min(len(s), 100)]
}
