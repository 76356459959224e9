package step

import (
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/lazyregexp"
)

// Output formats of rubrics_verifier.
const (
	RubricBinary               = "rubric_binary"
	RubricPartial              = "rubric_partial"
	RubricEvidence             = "rubric_evidence"
	RubricEvidenceWithMistakes = "rubric_evidence_with_mistakes"
	TrajectoryMistakes         = "trajectory_mistakes"
)

// rubricsKinds let a model judge.
func rubricsKinds() []*Kind {
	return []*Kind{{
		Name: "rubrics_verifier", Scores: true, Doc: "lets a model judge a reply and its trajectory by criteria",
		Fields: doc.Schema{Fields: []doc.Field{
			must("criteria", list(openTable(
				must("id", name(), "name of the criterion, unique in the step"),
				must("criterion", name(), "what is to hold"),
				may("weight", doc.Type{Kinds: []doc.Kind{doc.Float}}, nil, "weight; a negative one marks what must not be"),
				may("backend", oneOf("final_state", "intermediate"), nil, "what is looked at"),
				may("outcomes", doc.Type{Kinds: []doc.Kind{doc.Array, doc.Object}}, nil, "partial scores: a list of label and score, or a table of min and max"),
				may("pass_threshold", doc.Type{Kinds: []doc.Kind{doc.Float}}, nil, "score from which it counts as met; absent: 0.5"),
			)), "what is judged"),
			must("prompt_id", name(), "prompt whose reply is judged"),
			user(may("default_model", name(), "claude-sonnet-4-6", "model that judges, where neither run nor config names one")),
			user(may("default_model_api_base", name(), nil, "its endpoint; only without an agent as judge")),
			aggregator(AllPass),
			verifierID(),
			may("agent_name", name(), nil, "deployed agent that judges"),
			user(may("judge_a2a_agent_id", name(), nil, "agent that is deployed to judge; absent: the configured default")),
			user(may("judge_sandbox_type", name(), nil, "provider for that agent")),
			may("use_agent_judge", flag(), true, "false: a model is called without an agent"),
			may("use_trajectory", flag(), true, "false: the reply alone is judged"),
			may("trajectory_filter", trajectoryFilter(), nil, "what of the trajectory the judge sees"),
			user(may("max_thinking_tokens", count(0), nil, "limit of thinking tokens")),
			user(may("effort", name(), nil, "reasoning effort")),
			may("judge_timeout_seconds", seconds(), 1000, "limit of the judgement"),
			may("output_format", oneOf(RubricBinary, RubricPartial, RubricEvidence, RubricEvidenceWithMistakes, TrajectoryMistakes), RubricBinary, "what the judge answers"),
			may("grading_policy_prompt", text(), nil, "rules that the criteria don't state"),
			may("context_facts_for_judge", tableOf(name()), nil, "facts the judge may trust: label, and a dotted path into the run's context"),
			may("grade_up_to_turn", count(1), nil, "last turn that is judged"),
			may("run_context_for_judge", some(list(oneOf("conversation", "trigger_log"))), nil, "what else of the run the judge sees"),
			user(may("judge_batch_size", count(1), nil, "criteria in one call")),
			user(may("judge_batch_concurrency", count(1), nil, "calls at once; absent: 4")),
		}},
		Refs:  []Ref{agent("judge_a2a_agent_id", ""), script("default_model")},
		Check: checkRubrics,
	}}
}

// trajectoryFilter is what of a trajectory a judge sees.
func trajectoryFilter() doc.Type {
	return table(
		may("include_tool_calls", flag(), true, "keeps tool calls"),
		may("include_tool_call_results", flag(), true, "keeps their results"),
		may("include_response", flag(), true, "keeps replies"),
		may("include_thinking", flag(), false, "keeps thinking"),
		may("compaction_type", oneOf("default", "screenshot"), "default", "screenshot: the judge gets frames"),
		may("screenshot_last_n", between(1, 50), 3, "last frames to show"),
		may("frame_strategy", oneOf("final_frames", "per_criterion"), "final_frames", "which frames the judge gets"),
		may("frame_budget", between(6, 95), 90, "most frames"),
		may("trajectory_text", oneOf("full", "action_log"), nil, "text beside the frames"),
		may("evidence_exclude_pattern", doc.Type{Kinds: []doc.Kind{doc.String}, Check: isPattern}, nil, "actions that are no evidence"),
		may("always_show_actions", tableOf(doc.Type{Kinds: []doc.Kind{doc.String}, Check: isPattern}), nil, "actions whose frames are always shown, by label"),
		may("action_log_max_lines", count(10), 120, "most lines of the action log"),
	)
}

func isPattern(n doc.Node, l *diag.List) {
	s, _ := n.Str()
	if _, err := Pattern(s, "IGNORECASE"); err != nil {
		fault(l, n, "", "step.criterion.pattern", "%s is no regular expression that can be used: %v", diag.Repr(s), err)
	}
}

var factPath = lazyregexp.New(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func checkRubrics(n doc.Node, l *diag.List) {
	ids := map[string]bool{}
	for i, c := range n.Get("criteria").Items() {
		id, ok := c.Get("id").Str()
		if ok && ids[id] {
			fault(l, c.Get("id"), at("criteria", i)+".id", "step.criterion.id", "%s is used twice", diag.Repr(id))
		}
		ids[id] = true
	}
	for label, p := range n.Get("context_facts_for_judge").Members() {
		if s, ok := p.Str(); label == "" || ok && !factPath().MatchString(s) {
			fault(l, p, "context_facts_for_judge", "step.judge.facts", "%s: %s is no dotted path such as verifications.cart.score", diag.Repr(label), diag.Repr(s))
		}
	}
	agentJudge := truthy(n, "use_agent_judge", true)
	if agentJudge && set(n, "default_model_api_base") {
		fault(l, n.Get("default_model_api_base"), "default_model_api_base", "step.judge.base", "has no effect on an agent as judge; set use_agent_judge to false")
	}
	format := n.Get("output_format").Text()
	if format == RubricEvidence || format == RubricEvidenceWithMistakes {
		filter := n.Get("trajectory_filter")
		frames := filter.Get("compaction_type").Text() == "screenshot" && filter.Get("frame_strategy").Text() == "per_criterion"
		if agentJudge || !truthy(n, "use_trajectory", true) || !frames {
			fault(l, n.Get("output_format"), "output_format", "step.judge.evidence",
				"%s needs use_agent_judge false, use_trajectory true, and a trajectory_filter with compaction_type screenshot and frame_strategy per_criterion", format)
		}
	}
	if set(n, "judge_batch_size") && format != "" && format != RubricBinary && format != RubricPartial {
		fault(l, n.Get("judge_batch_size"), "judge_batch_size", "step.judge.batch", "has no effect on output_format %s; remove it", format)
	}
}
