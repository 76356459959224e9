package verify

import (
	"encoding/json"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/lazyregexp"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/step"
)

// prompted is what verifiers read of an element of prompt_responses.
type prompted struct {
	ID         string            `json:"prompt_id"`
	Prompt     string            `json:"prompt_text"`
	Response   string            `json:"response"`
	Structured json.RawMessage   `json:"structured_output"`
	ErrorType  string            `json:"error_type"`
	Error      string            `json:"error_message"`
	Trajectory string            `json:"agent_trajectory_object_url"`
	Turns      []json.RawMessage `json:"target_agent_per_turn_trajectory_object_urls"`
}

// answerTo is what was answered to the prompt that the step names, the last time that it was asked.
func answerTo(c *step.Call, id string) (prompted, error) {
	var out prompted
	found := false
	for _, raw := range c.State.List(promptsPath) {
		var p prompted
		if err := json.Unmarshal(raw, &p); err != nil {
			return out, step.Errorf("ValueError", "a prompt's answer can't be read: %w", err)
		}
		if p.ID == id {
			out, found = p, true
		}
	}
	if !found {
		return out, step.Errorf("NotFoundError", "no prompt %s was answered before this step", diag.Repr(id))
	}
	return out, nil
}

// reply is the text that the agent answered: its words, or its structured output where it has no words.
func (p *prompted) reply() string {
	if p.Response == "" && len(p.Structured) > 0 && string(p.Structured) != "null" {
		return string(p.Structured)
	}
	return p.Response
}

var digestIn = lazyregexp.New(`sha256:[0-9a-f]{64}`)

// objectIn is the object that a text names: its digest stands somewhere in it.
func objectIn(text string) (ref.Digest, bool) {
	d := ref.Digest(digestIn().FindString(text))
	return d, d.Valid()
}

// unscored leaves it on record that the verifier has nothing to say.
func unscored(c *step.Call, reason, raw string) error {
	id := verifierID(c)
	c.Log.Warn("there is no score: "+reason, "verifier", id) // what was there in its place is on record, and may be long
	return c.Out.Set(step.Child(step.VerificationsPath, id), step.Unscored{Step: c.Step, Reason: reason, Raw: raw})
}
