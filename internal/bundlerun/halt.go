package bundlerun

import (
	"encoding/json"
	"maps"
	"strings"
	"sync"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/model"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/runlog"
	"agentenv.internal/agentenv/internal/task"
)

// modelFields are the fields of steps that name a model, by the role that it has.
var modelFields = map[string]string{"model": "agent", "user_model": "user", "default_model": "judge"}

// fixed are the models that step_params name, by step and role: what was said of one step wins over what was said of all.
func fixed(params map[string]map[string]json.RawMessage) map[string]map[string]string {
	var out map[string]map[string]string
	for id, fields := range params {
		for f, role := range modelFields {
			var name string
			if json.Unmarshal(fields[f], &name) != nil || name == "" {
				continue
			}
			if out == nil {
				out = map[string]map[string]string{}
			}
			if out[id] == nil {
				out[id] = map[string]string{}
			}
			out[id][role] = name
		}
	}
	return out
}

// scripts are models with the names of a bundle's own scripts in full: a bundle's artifact is called there as its tasks call it.
func scripts(p *bundle.Plan, models map[string]string) map[string]string {
	out := maps.Clone(models)
	for role, name := range models {
		local, scripted := strings.CutPrefix(name, model.ScriptedPrefix)
		if !scripted {
			continue
		}
		for _, w := range p.Writes {
			if w.Kind == ref.Artifact && w.Label == "artifacts/"+local {
				out[role] = model.ScriptedPrefix + w.ID
			}
		}
	}
	return out
}

// halt holds runs back once one has met what all others would meet too: a key that is refused or spent, an endpoint that stays down. Each of them
// would cost its sandboxes and its time, and say nothing. Runs under way go on: what they have begun may still be worth something.
type halt struct {
	mu  sync.Mutex
	why string // "" while nothing is held back
}

// look takes note of how a run ended.
func (h *halt) look(res RunResult) {
	for _, f := range res.Failures {
		if f.Infra && f.Lasting {
			h.mu.Lock()
			defer h.mu.Unlock()
			if h.why == "" {
				h.why = f.Error
			}
			return
		}
	}
}

// holds tells whether a job is held back. One that asks no endpoint is not.
func (h *halt) holds(j job) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.why != "" && asks(j.task, j.options)
}

// asks tells whether a step of the task asks a model that is no script.
func asks(t *task.Task, o runlog.Options) bool {
	models := fixed(o.Params)
	for i := range t.Steps {
		st := &t.Steps[i]
		var own, role string
		switch st.Type {
		case "prompt_agent":
			own, role = st.Doc.Get("model").Text(), "agent"
		case "rubrics_verifier":
			own, role = st.Doc.Get("default_model").Text(), "judge"
		default:
			continue
		}
		name := own
		for _, chosen := range []string{o.Models[role], models[st.ID][role]} {
			if chosen != "" {
				name = chosen
			}
		}
		if !strings.HasPrefix(name, model.ScriptedPrefix) {
			return true
		}
	}
	return false
}
