package validate

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/step"
)

// GatePath is where validation_gate_aggregator leaves its verdict.
const GatePath = "metadata/validation_gate"

// States of a gate.
const (
	gatePassed  = "passed"
	gateFailed  = "failed"
	gateSkipped = "skipped"
	gateAbsent  = "absent"
)

// verdict is what GatePath holds.
type verdict struct {
	Env    string            `json:"env_id"`
	Passed bool              `json:"passed"`
	Gates  map[string]string `json:"gates"`
}

// ValidationGateAggregator passes when every required gate did: a gate is the verification of that name.
type ValidationGateAggregator struct{}

// NewValidationGateAggregator makes the executor.
func NewValidationGateAggregator() *ValidationGateAggregator { return &ValidationGateAggregator{} }

// Run reads the gates and records the verdict. A gate that nobody left has failed; one of which nothing was checked has not.
func (e *ValidationGateAggregator) Run(_ context.Context, c *step.Call) error {
	out := verdict{Env: c.Doc.Get("env_id").Text(), Passed: true, Gates: map[string]string{}}
	var rows []step.Row
	for _, n := range c.Doc.Get("required_gates").Items() {
		name := n.Text()
		v, found, err := verification(c, name)
		if err != nil {
			return err
		}
		state := gateOf(v, found)
		out.Gates[name] = state
		row := outcome("", name, "")
		switch state {
		case gateSkipped:
			row = skipped("", name, "there was nothing to check")
			delete(row, "environment_name")
		case gateFailed, gateAbsent:
			out.Passed = false
			row = outcome("", name, "it "+map[string]string{gateFailed: "failed", gateAbsent: "was not checked"}[state])
		}
		rows = append(rows, row)
	}
	c.Log.Info("validation gate", "passed", out.Passed, "gates", gates(out.Gates))
	if err := c.Out.Set(GatePath, out); err != nil {
		return err
	}
	return c.Out.Set(step.Child(step.VerificationsPath, Gate), Verification(c.Step, rows))
}

func gates(m map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, k+" "+m[k])
	}
	return strings.Join(out, ", ")
}

// verification is one that a step before left.
func verification(c *step.Call, name string) (step.Verification, bool, error) {
	var v step.Verification
	found, err := c.State.Get(step.Child(step.VerificationsPath, name), &v)
	if err != nil {
		return v, false, step.Errorf("ValueError", "the verification %s can't be read: %w", diag.Repr(name), err)
	}
	return v, found, nil
}

func gateOf(v step.Verification, found bool) string {
	allSkipped := len(v.Results) > 0
	for _, r := range v.Results {
		if s, _ := r["skipped"].(bool); !s {
			allSkipped = false
		}
	}
	switch {
	case !found:
		return gateAbsent
	case allSkipped:
		return gateSkipped
	case v.Unscored == "" && v.Score >= 1:
		return gatePassed
	default:
		return gateFailed
	}
}

// VerifyMCPEnvAssessment reads what an agent that tried the tools wrote of each.
type VerifyMCPEnvAssessment struct{}

// NewVerifyMCPEnvAssessment makes the executor.
func NewVerifyMCPEnvAssessment() *VerifyMCPEnvAssessment { return &VerifyMCPEnvAssessment{} }

// promptsPath is where replies to prompts are.
const promptsPath = "prompt_responses"

// Run records the assessment as a verification. A reply that holds none fails it.
func (e *VerifyMCPEnvAssessment) Run(_ context.Context, c *step.Call) error {
	id := c.Doc.Get("prompt_id").Text()
	var reply struct {
		ID         string          `json:"prompt_id"`
		Response   string          `json:"response"`
		Structured json.RawMessage `json:"structured_output"`
	}
	found := false
	for _, raw := range c.State.List(promptsPath) {
		p := reply
		if json.Unmarshal(raw, &p) == nil && p.ID == id {
			reply, found = p, true
		}
	}
	if !found {
		return step.Errorf("NotFoundError", "no prompt %s was answered before this step", diag.Repr(id))
	}
	rows, err := assessment(reply.Structured, reply.Response)
	if err != nil {
		rows = []step.Row{outcome("", "the assessment can be read", err.Error())}
	}
	return c.Out.Set(step.Child(step.VerificationsPath, ToolCorrectness), Verification(c.Step, rows))
}

// assessment are the rows of {"results": [{"tool_name", "passed", …}]}, structured or the last JSON object of a text.
func assessment(structured json.RawMessage, text string) ([]step.Row, error) {
	var a struct{ Results []map[string]any }
	if len(structured) == 0 || json.Unmarshal(structured, &a) != nil || a.Results == nil {
		for i := len(text) - 1; i >= 0 && a.Results == nil; i-- {
			if text[i] == '{' && json.NewDecoder(strings.NewReader(text[i:])).Decode(&a) != nil {
				a.Results = nil
			}
		}
	}
	if len(a.Results) == 0 {
		return nil, fmt.Errorf("the reply holds no results")
	}
	var out []step.Row
	for i, r := range a.Results {
		name, _ := r["tool_name"].(string)
		passed, ok := r["passed"].(bool)
		if name == "" || !ok {
			return nil, fmt.Errorf("results[%d] has no tool_name, or a passed that is neither true nor false", i)
		}
		row := step.Row{}
		maps.Copy(row, r)
		row["criterion"], row["result"], row["score"] = name, passed, 0.0
		if passed {
			row["score"] = 1.0
		}
		out = append(out, row)
	}
	return out, nil
}
