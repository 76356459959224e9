package app

import (
	"context"

	"agentenv.internal/agentenv/internal/catalog"
	"agentenv.internal/agentenv/internal/deploy"
	"agentenv.internal/agentenv/internal/step"
	"agentenv.internal/agentenv/internal/step/act"
	"agentenv.internal/agentenv/internal/step/control"
	"agentenv.internal/agentenv/internal/step/data"
	"agentenv.internal/agentenv/internal/step/validate"
	"agentenv.internal/agentenv/internal/step/verify"
	"agentenv.internal/agentenv/internal/step/world"
	"agentenv.internal/agentenv/internal/store"
)

// executors are what does the work of each step type. A type that has none here is refused before anything runs.
func executors(s store.Store, d *deploy.Deployments, e *deploy.Envs, a *deploy.Agents, human func(context.Context) (string, error), web *data.Downloads, judges verify.RubricsOptions) *catalog.Set[step.Executor] {
	set := catalog.New[step.Executor]("executor")
	for name, x := range map[string]step.Executor{
		"agent_prompt_response_verifier":        verify.NewResponseVerifier(),
		"aggregate_verifiers":                   verify.NewAggregateVerifiers(),
		"apply_server_config":                   control.NewApplyServerConfig(e),
		"modify_env_tool_access":                control.NewModifyEnvToolAccess(e),
		"register_env_triggers":                 control.NewRegisterEnvTriggers(e, a),
		"sync_env_clock":                        control.NewSyncEnvClock(e),
		"build_mcp_cli":                         world.NewBuildMCPCLI(s, e),
		"collect_artifacts":                     data.NewCollectArtifacts(s, a.Boxes()),
		"deploy_env":                            world.NewDeployEnv(s, e),
		"deploy_sandbox":                        world.NewDeploySandbox(d),
		"env_outcome_verifier":                  verify.NewEnvOutcomeVerifier(s, d, e),
		"load_artifact":                         data.NewLoadArtifact(s, a.Boxes(), e, a, web),
		"reset_env":                             world.NewResetEnv(e),
		"review":                                control.NewReview(),
		"rubrics_verifier":                      verify.NewRubricsVerifier(judges),
		"run_container_unit_tests_verifier":     verify.NewUnitTestsVerifier(d),
		"run_docker_container":                  world.NewRunDockerContainer(s, d, web, a.Redactor()),
		"run_code":                              act.NewRunCode(s, a.Boxes()),
		"snapshot_computer_env":                 data.NewSnapshotComputerEnv(s, e),
		"snapshot_env":                          data.NewSnapshotEnv(s, e),
		"teardown_sandboxes":                    world.NewTeardownSandboxes(d, e, a),
		"validation_gate_aggregator":            validate.NewValidationGateAggregator(),
		"combine_universe_verdicts":             validate.NewCombineUniverseVerdicts(),
		"verify_env_card":                       validate.NewVerifyEnvCard(e),
		"verify_env_core_protocol":              validate.NewVerifyEnvCoreProtocol(e),
		"verify_mcp_env_assessment":             validate.NewVerifyMCPEnvAssessment(),
		"verify_mcp_tool_schema":                validate.NewVerifyMCPToolSchema(e),
		"verify_spec_conformance":               validate.NewVerifySpecConformance(e),
		"verify_universe_load_export_roundtrip": validate.NewVerifyUniverseRoundTrip(s, e),
		"verify_sandbox":                        verify.NewVerifySandbox(a.Boxes()),
	} {
		set.Add(name, catalog.Origin{Kind: catalog.Builtin}, x)
	}
	for name, x := range agentExecutors(s, e, a, human) {
		set.Add(name, catalog.Origin{Kind: catalog.Builtin}, x)
	}
	for name, x := range validate.NewAgentValidators(a) {
		set.Add(name, catalog.Origin{Kind: catalog.Builtin}, x)
	}
	return set
}
