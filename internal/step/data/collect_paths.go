package data

import (
	"encoding/json"
	"path"
	"strings"

	"agentenv.internal/agentenv/internal/step"
)

const (
	// promptResponses is where prompt steps leave what agents answered, and scriptResults where scripts leave what they returned.
	promptResponses = "prompt_responses"
	scriptResults   = "metadata/script_results"
)

// wanted is one path to collect.
type wanted struct {
	from string // in the sandbox, absolute
	as   string // in the universe; "" for the folder that all paths begin from
}

// wants are the paths that a step collects. named is false when nobody named any, and the whole base is collected: then it may hold nothing.
//
// A manifest comes before the seed, the seed before the step's own list. One that lists nothing is passed over.
func wants(c *step.Call) (out []wanted, named bool, err error) {
	key := c.Doc.Get("artifacts_key").Text()
	base := path.Join("/", c.Doc.Get("base_path").Text())
	paths, err := manifest(c, key)
	if err != nil {
		return nil, false, err
	}
	if len(paths) == 0 {
		paths = seeded(c.Seed[key])
	}
	if len(paths) == 0 {
		for _, n := range c.Doc.Get("artifact_paths").Items() {
			paths = append(paths, n.Text())
		}
	}
	if len(paths) == 0 {
		return []wanted{{from: base}}, false, nil
	}
	seen := map[string]bool{}
	for _, p := range paths {
		w := wanted{from: path.Clean(p)}
		if !path.IsAbs(p) {
			w.from = path.Join(base, p)
		}
		if seen[w.from] {
			continue
		}
		seen[w.from] = true
		switch rest, below := strings.CutPrefix(w.from, strings.TrimSuffix(base, "/")+"/"); {
		case w.from == base:
		case below:
			w.as = rest
		default:
			w.as = strings.TrimPrefix(w.from, "/")
		}
		out = append(out, w)
	}
	return out, true, nil
}

// manifest is what the manifest step's structured output lists under key: the reply of an agent, or the result of a script.
func manifest(c *step.Call, key string) ([]string, error) {
	id := c.Doc.Get("manifest_step_id").Text()
	if id == "" {
		return nil, nil
	}
	var found json.RawMessage
	known := false
	for _, raw := range c.State.List(promptResponses) {
		var r struct {
			Step       string          `json:"step_id"`
			Structured json.RawMessage `json:"structured_output"`
		}
		if json.Unmarshal(raw, &r) == nil && r.Step == id {
			found, known = r.Structured, true
		}
	}
	if !known {
		var err error
		if known, err = c.State.Get(step.Child(scriptResults, id), &found); err != nil {
			return nil, step.Errorf("ValueError", "the manifest of step '%s' can't be read: %w", id, err)
		}
	}
	if !known {
		return nil, step.Errorf("NotFoundError", "step '%s' has left no output that could list files", id)
	}
	var listed map[string]json.RawMessage
	if len(found) == 0 || json.Unmarshal(found, &listed) != nil || len(listed[key]) == 0 || string(listed[key]) == "null" {
		return nil, nil
	}
	var elements []json.RawMessage
	if err := json.Unmarshal(listed[key], &elements); err != nil {
		return nil, step.Errorf("ValueError", "%s of step '%s' is no list of paths", key, id)
	}
	var out []string
	for i, e := range elements {
		var text string
		var table struct {
			Path string `json:"path"`
		}
		if json.Unmarshal(e, &text) != nil {
			_ = json.Unmarshal(e, &table) // what it isn't either has no path
			text = table.Path
		}
		if text = strings.TrimSpace(text); text == "" {
			return nil, step.Errorf("ValueError", "%s of step '%s' has no path at index %d", key, id, i)
		}
		out = append(out, text)
	}
	return out, nil
}

// seeded are the paths that a seed's value lists, separated by commas.
func seeded(value string) []string {
	var out []string
	for p := range strings.SplitSeq(value, ",") {
		if p = strings.TrimSpace(p); p != "" {
			out = append(out, p)
		}
	}
	return out
}
