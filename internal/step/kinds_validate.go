package step

import "agentenv.internal/agentenv/internal/doc"

// validateKinds check deployed environments and agents themselves. They record, and rarely fail.
func validateKinds() []*Kind {
	return append(envValidators(), agentValidators()...)
}

func envID() doc.Field { return must("env_id", name(), "deployed environment") }

func envValidators() []*Kind {
	onEnv := []Ref{env("env_id", "")}
	universe := func(typ string) []Ref {
		return []Ref{env("env_id", ""), artifact("universe_artifact_id", "universe_artifact_version", typ)}
	}
	fields := func(more ...doc.Field) doc.Schema {
		return doc.Schema{Fields: append([]doc.Field{envID()}, more...)}
	}
	prompt := must("prompt_id", name(), "prompt whose reply holds the assessment")
	return []*Kind{
		{Name: "verify_mcp_tool_schema", Doc: "checks descriptions and schemas of every tool", Fields: fields(), Refs: onEnv},
		{Name: "verify_spec_conformance", Doc: "compares tools with the server's OpenAPI document", Fields: fields(), Refs: onEnv},
		{Name: "verify_mcp_env_assessment", Doc: "reads an agent's assessment of the tools", Fields: fields(prompt), Refs: onEnv},
		{
			Name: "validation_gate_aggregator", Doc: "passes when every required gate passed",
			Fields: fields(may("required_gates", list(name()), []any{"mcp_tool_schema", "mcp_tool_correctness"}, "gates that must have passed")),
			Refs:   onEnv,
		},
		{Name: "verify_env_card", Doc: "checks an environment's card", Fields: fields(), Refs: onEnv},
		{Name: "verify_env_core_protocol", Doc: "probes data/reset, data/add and data/get", Fields: fields(), Refs: onEnv},
		{
			Name: "verify_universe_load_export_roundtrip", Doc: "loads, exports, loads and exports a universe, and compares",
			Fields: fields(
				must("universe_artifact_id", name(), "universe"),
				may("universe_artifact_version", version(), nil, "its version; absent: the latest"),
				may("emit_file_artifact_universe", flag(), false, "stores both exports"),
				may("persist_result", flag(), true, "keeps the result with environment and universe"),
			),
			Refs: universe(typeUniverse),
		},
		{
			Name: "combine_universe_verdicts", Doc: "joins the verdicts of comparison and judge",
			Fields: fields(
				must("universe_artifact_id", name(), "universe"),
				must("universe_artifact_version", version(), "its version"),
				must("judge_verifier_id", name(), "the judge's score"),
			),
			Refs: universe(""),
		},
	}
}

func agentValidators() []*Kind {
	rubric := must("rubric_verifier_id", name(), "the rubric's score")
	kind := func(typ, what string, versioned bool, more ...doc.Field) *Kind {
		k := &Kind{Name: typ, Doc: what, Refs: []Ref{agent("a2a_agent_id", "")}}
		k.Fields.Fields = append(k.Fields.Fields, must("a2a_agent_id", name(), "agent that is validated"))
		if versioned {
			k.Fields.Fields = append(k.Fields.Fields, may("a2a_agent_version", version(), nil, "its version; absent: the latest"))
			k.Refs[0].Version = "a2a_agent_version"
		}
		k.Fields.Fields = append(k.Fields.Fields, more...)
		return k
	}
	poll := func(limit, pause int) []doc.Field {
		return []doc.Field{
			may("timeout_seconds", seconds(), limit, "limit of the conversation"),
			may("poll_interval_seconds", seconds(), pause, "pause between two looks at the agent's state"),
		}
	}
	return []*Kind{
		kind("verify_a2a_agent_card", "checks the agent's card", true),
		kind("verify_a2a_agent_config_identity", "checks that the agent takes a name and description", true),
		kind("verify_a2a_role", "checks that tool calls carry the agent's role", true),
		kind("verify_a2a_trajectory", "checks the agent's trajectory", false),
		kind("verify_a2a_core_protocol", "checks that messages are answered", false, must("prompt_id", name(), "prompt that was answered")),
		kind("verify_a2a_agent_mcp", "checks that the agent calls MCP tools", false, poll(300, 10)...),
		kind("verify_a2a_system_prompt", "checks that the system prompt counts", true, poll(300, 5)...),
		kind("verify_a2a_skill_config", "checks that added skills count", false, rubric,
			may("skill_bundle_object_url", name(), nil, "skill to add as files")),
		kind("verify_a2a_snapshot", "checks that state is saved and restored", false, rubric,
			must("rubric_criterion_id", name(), "criterion that tells")),
		kind("verify_a2a_peer_agents", "checks that the agent reaches its peers", true,
			must("peer_prompt_id", name(), "prompt that the peer answered"),
			must("expected_token", name(), "what the peer must have got")),
		kind("verify_a2a_modalities", "checks which kinds of content the agent reads", false,
			must("probes", list(table(
				must("modality", name(), "kind of content"),
				must("prompt_id", name(), "prompt that sent it"),
				must("expected", name(), "what the reply must hold"),
			)), "what was tried")),
		kind("verify_a2a_install", "checks that the agent can be installed in a container", true,
			may("agent_name", name(), "install-test-agent", "name of the installed agent"),
			may("rubric_verifier_id", name(), nil, "the rubric's score")),
	}
}
