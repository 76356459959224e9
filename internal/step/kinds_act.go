package step

import (
	"slices"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// actKinds make an agent or a script do something.
func actKinds() []*Kind { return []*Kind{promptAgent(), runCode()} }

func promptAgent() *Kind {
	return &Kind{
		Name: "prompt_agent", Doc: "sends an agent a prompt and waits for its reply; with several turns, a second agent plays the user",
		Fields: doc.Schema{Fields: []doc.Field{
			may("prompt", text(), nil, "the prompt; or give parts"),
			may("parts", some(list(part())), nil, "the prompt as A2A parts: text, file, data"),
			may("prompt_id", name(), nil, "name by which other steps find the reply; absent: a random one"),
			may("agent_name", name(), DefaultAgent, "deployed agent"),
			may("timeout_seconds", seconds(), 600, "limit of a turn"),
			may("poll_interval_seconds", seconds(), 2, "pause between two looks at the agent's state"),
			user(may("model", name(), nil, "model")),
			user(may("model_params", anyTable(), nil, "parameters of model calls")),
			may("system_prompt", text(), nil, "system prompt"),
			may("max_turns", count(1), nil, "limit of the agent's own turns"),
			may("output_format", anyTable(), nil, "JSON Schema of a structured reply"),
			user(may("effort", name(), nil, "reasoning effort")),
			user(may("max_thinking_tokens", count(0), nil, "limit of thinking tokens")),
			user(may("harness", name(), nil, "harness, where an agent offers several")),
			may("agentenv_tools", list(name()), nil, "built-in tools that the agent gets"),
			may("context_id", name(), nil, "conversation to go on with"),
			user(may("trajectory_output_prefix", name(), nil, "where the trajectory is stored")),
			may("max_conversation_turns", count(1), 1, "turns with the user's agent; 1: a single prompt"),
			may("user_agent_name", name(), "human_agent", "agent that plays the user"),
			may("user_a2a_url", name(), nil, "the user's agent by its URL"),
			may("user_agent_timeout_seconds", seconds(), 600, "limit of a turn of the user's agent"),
			may("user_output_format", anyTable(), nil, "JSON Schema of the user's reply"),
			user(may("user_model", name(), nil, "model of the user's agent")),
			may("snapshot_config", table(
				may("interval_seconds", doc.Type{Kinds: []doc.Kind{doc.Float}}, nil, "snapshot every so often while the agent works"),
				may("at_end", flag(), true, "snapshot after the last turn"),
				may("per_turn", flag(), false, "snapshot after each turn"),
				may("env_id", name(), nil, "environment to snapshot"),
				may("timeout_seconds", seconds(), 300, "limit of one snapshot"),
				may("max_snapshots", count(1), 24, "most snapshots, the last one not counted"),
			), nil, "snapshots of the environment during the prompt"),
			may("live_trajectory", flag(), false, "stores the trajectory while the agent works"),
		}},
		Refs:  []Ref{env("snapshot_config.env_id", ""), script("model"), script("user_model")},
		Check: all(checkPrompt, checkSnapshots),
	}
}

func checkPrompt(n doc.Node, l *diag.List) {
	switch len(setAmong(n, "prompt", "parts")) {
	case 0:
		fault(l, n, "", "step.prompt.empty", "has nothing to say; set prompt or parts")
	case 2:
		fault(l, n.Get("parts"), "parts", "step.conflict", "and prompt can't be used together; keep one")
	}
	// What the model client sets itself.
	taken := []string{"model", "messages", "api_key", "api_base", "user", "metadata", "timeout", "response_format"}
	for key, v := range n.Get("model_params").Members() {
		if slices.Contains(taken, key) {
			fault(l, v, "model_params."+key, "step.prompt.params", "is set by agent-env itself; remove it")
		}
	}
}

func checkSnapshots(n doc.Node, l *diag.List) {
	c := n.Get("snapshot_config")
	if c.Kind() != doc.Object {
		return
	}
	every, _ := c.Get("interval_seconds").Float()
	if every <= 0 && !truthy(c, "at_end", true) && !truthy(c, "per_turn", false) {
		fault(l, c, "snapshot_config", "step.snapshot.never", "never takes a snapshot; set interval_seconds, at_end or per_turn")
	}
}

// part is one A2A part. Its kind may be left out where it holds exactly one content.
func part() doc.Type {
	t := table(
		may("kind", oneOf("text", "file", "data"), nil, "which content it holds"),
		may("text", text(), nil, "text"),
		may("file", table(
			may("bytes", text(), nil, "content in base64"),
			may("uri", name(), nil, "where the content is"),
			may("name", text(), nil, "file name"),
			may("mimeType", text(), nil, "media type"),
			may("mime_type", text(), nil, "other spelling of mimeType"),
		), nil, "file"),
		may("data", anyTable(), nil, "JSON"),
		may("metadata", anyTable(), nil, "kept with the part"),
	)
	t.Check = func(n doc.Node, l *diag.List) {
		have := setAmong(n, "text", "file", "data")
		if len(have) != 1 {
			fault(l, n, "", "step.part.content", "must hold exactly one of text, file and data")
			return
		}
		if kind, ok := n.Get("kind").Str(); ok && kind != have[0] {
			fault(l, n.Get("kind"), "kind", "step.part.kind", "is %s, but the part holds %s", diag.Repr(kind), have[0])
		}
		if f := n.Get("file"); f.Exists() && len(setAmong(f, "bytes", "uri")) != 1 {
			fault(l, f, "file", "step.part.file", "must hold exactly one of bytes and uri")
		}
	}
	return t
}

func runCode() *Kind {
	return &Kind{
		Name: "run_code", Doc: "runs a Python function in a target and keeps its JSON result",
		Fields: doc.Schema{Fields: []doc.Field{
			must("script_artifact_id", name(), "file or files that hold the script"),
			may("script_artifact_version", version(), nil, "its version; absent: the latest"),
			may("script_file", name(), nil, "script among several files"),
			may("entrypoint", name(), "run", "function to call"),
			may("args", anyTable(), nil, "what the function gets as args"),
			may("result_id", name(), nil, "name by which other steps find the result; absent: the step's id"),
			may("timeout_seconds", seconds(), 600, "limit of the script"),
			may("env_id", name(), nil, "target: a deployed environment"),
			may("sandbox_name", name(), nil, "target: a deployed sandbox"),
			may("agent_name", name(), nil, "target: a deployed agent"),
		}},
		Refs:  []Ref{artifact("script_artifact_id", "script_artifact_version", ""), env("env_id", "")},
		Check: func(n doc.Node, l *diag.List) { atMostOne(n, l, "env_id", "sandbox_name", "agent_name") },
	}
}
