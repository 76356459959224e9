// Package validate holds the executors that check deployed environments themselves: their cards, their data planes, their tools, and whether data
// survives being loaded and exported. What they find is a verification; they fail only when there is nothing to look at.
//
// A check is a function that asks servers and answers rows, one for each thing that was looked at. The steps record them, and agent-env env validate
// prints them. Checks of the data plane empty the environment.
package validate

import (
	"context"
	"net/http"
	"time"

	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/sdk/conformance"
)

// Names of the verifications that these steps leave.
const (
	EnvCard         = "env_card"
	CoreProtocol    = "env_core_protocol"
	ToolSchema      = "mcp_tool_schema"
	SpecConformance = "spec_conformance"
	ToolCorrectness = "mcp_tool_correctness"
	RoundTrip       = "universe_load_export_roundtrip"
	UniverseVerdict = "universe_verdict"
	Gate            = "validation_gate"
)

// Environments is what the executors need of deployed environments.
type Environments interface {
	Env(run, id, step string) (*deploy.Env, error)
}

var _ Environments = (*deploy.Envs)(nil)

// callLimit bounds one request of a check.
const callLimit = 30 * time.Second

// Verification is the score of rows: 1 when none that counts failed, 0 otherwise. Rows that were skipped don't count; when none is left there was
// nothing to fail.
func Verification(stepID string, rows []step.Row) step.Verification {
	v := step.Verification{Step: stepID, Score: 1, Results: rows}
	for i, r := range rows {
		r["criterion_index"] = i
		if r["skipped"] != true && r["result"] != true {
			v.Score = 0
		}
	}
	return v
}

// outcome is a row about one thing; problem "" is that it is well.
func outcome(environment, criterion, problem string) step.Row {
	r := step.Row{"criterion": criterion, "result": problem == "", "score": 1.0, "justification": problem}
	if problem != "" {
		r["score"] = 0.0
	}
	if environment != "" {
		r["environment_name"] = environment
	}
	return r
}

func skipped(environment, criterion, why string) step.Row {
	return step.Row{"criterion": criterion, "environment_name": environment, "result": false, "score": 0.0, "skipped": true, "justification": why}
}

// target is a server of an environment as the checks of the protocol want it. The caller calls done at the end.
func target(v *deploy.Env, name string) (t conformance.Target, done func()) {
	base, way, _ := v.Reach(name) // the name is one of v's
	way.DisableKeepAlives = true  // a server that failed one check may have closed the connection
	return conformance.Target{URL: base, Client: &http.Client{
		Timeout: callLimit, Transport: way, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, way.CloseIdleConnections
}

// Check asks a deployed environment and answers what it found. Its error is that of ctx.
type Check func(ctx context.Context, v *deploy.Env) ([]step.Row, error)

// Validator is the executor of a step that makes one check and records it.
type Validator struct {
	envs  Environments
	name  string
	check Check
}

// NewVerifyEnvCard makes the executor of verify_env_card.
func NewVerifyEnvCard(e Environments) *Validator { return &Validator{e, EnvCard, CheckCard} }

// NewVerifyEnvCoreProtocol makes the executor of verify_env_core_protocol.
func NewVerifyEnvCoreProtocol(e Environments) *Validator {
	return &Validator{e, CoreProtocol, CheckCoreProtocol}
}

// NewVerifyMCPToolSchema makes the executor of verify_mcp_tool_schema.
func NewVerifyMCPToolSchema(e Environments) *Validator { return &Validator{e, ToolSchema, CheckTools} }

// NewVerifySpecConformance makes the executor of verify_spec_conformance.
func NewVerifySpecConformance(e Environments) *Validator {
	return &Validator{e, SpecConformance, CheckSpec}
}

// Run makes the check and records its verification.
func (e *Validator) Run(ctx context.Context, c *step.Call) error {
	v, err := find(e.envs, c)
	if err != nil {
		return err
	}
	rows, err := e.check(ctx, v)
	if err != nil {
		return err
	}
	return record(c, e.name, v, rows)
}

func find(e Environments, c *step.Call) (*deploy.Env, error) {
	v, err := e.Env(c.Run, c.Doc.Get("env_id").Text(), "")
	if err != nil {
		return nil, &step.Error{Type: "NotFoundError", Err: err}
	}
	return v, nil
}

// record leaves a verification and tells what failed.
func record(c *step.Call, name string, v *deploy.Env, rows []step.Row) error {
	out := Verification(c.Step, rows)
	for _, r := range rows {
		if r["skipped"] != true && r["result"] != true {
			c.Log.Warn("check failed", "check", name, "env", v.ID, "server", r["environment_name"], "criterion", r["criterion"], "why", r["justification"])
		}
	}
	return c.Out.Set(step.Child(step.VerificationsPath, name), out)
}
