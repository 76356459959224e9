package step

import (
	"slices"
	"strings"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// Score aggregators of verifiers.
const (
	AllPass         = "all_pass"
	AnyPass         = "any_pass"
	WeightedAverage = "weighted_average"
)

// Criterion types of verify_sandbox. Others are marked as skipped when the step runs.
const (
	ProbeFileExists   = "probe_file_exists"
	ProbeDirExists    = "probe_dir_exists"
	ProbeFileContains = "probe_file_contains"
	BashCmdSucceeds   = "bash_cmd_succeeds"
)

// Criterion types of agent_prompt_response_verifier.
const (
	ResponseContains = "response_contains"
	ResponseRegex    = "response_regex_present"
)

// verifyKinds score.
func verifyKinds() []*Kind {
	kinds := []*Kind{
		verifySandbox(), responseVerifier(), outcomeVerifier(), unitTestsVerifier(), aggregateVerifiers(),
	}
	for _, k := range kinds {
		k.Scores = true
	}
	return kinds
}

func aggregator(def string) doc.Field {
	return may("score_aggregator", oneOf(AllPass, AnyPass, WeightedAverage), def, "how the score is made of the criteria")
}

func verifierID() doc.Field {
	return may("verifier_id", name(), nil, "name of the score; absent: the step's id")
}

func verifySandbox() *Kind {
	return &Kind{
		Name: "verify_sandbox", Doc: "checks files and commands in a sandbox or an agent's sandbox",
		Fields: doc.Schema{Fields: []doc.Field{
			may("criteria", list(openTable(must("type", name(), "what is checked"))), []any{}, "what is checked"),
			may("agent_name", text(), DefaultAgent, "agent whose sandbox is checked"),
			may("sandbox_name", text(), nil, "sandbox that is checked"),
			may("base_dir", name(), "/app", "folder that relative paths and commands begin from"),
			may("shell_timeout_seconds", seconds(), 120, "limit of each command"),
			aggregator(AllPass),
			verifierID(),
		}},
		Check: func(n doc.Node, l *diag.List) {
			box, who := strings.TrimSpace(n.Get("sandbox_name").Text()), strings.TrimSpace(n.Get("agent_name").Text())
			if box != "" && who != "" && who != DefaultAgent {
				fault(l, n.Get("agent_name"), "agent_name", "step.conflict", "and sandbox_name can't be used together; keep one")
			}
			for i, c := range n.Get("criteria").Items() {
				checkSandboxCriterion(c, at("criteria", i), l)
			}
		},
	}
}

func checkSandboxCriterion(c doc.Node, where string, l *diag.List) {
	switch typ := c.Get("type").Text(); typ {
	case ProbeFileExists, ProbeDirExists:
		criterionFields(c, where, l, "paths")
		texts(c, where, "paths", l)
	case ProbeFileContains:
		criterionFields(c, where, l, "paths", "expected", "value")
		texts(c, where, "paths", l)
		// value is an older name of expected.
		field := "expected"
		if !set(c, field) && set(c, "value") {
			field = "value"
		}
		pattern(c, where, field, nil, l)
	case BashCmdSucceeds:
		criterionFields(c, where, l, "bash_cmd")
		if s, ok := c.Get("bash_cmd").Str(); !ok || strings.TrimSpace(s) == "" {
			fault(l, orHolder(c, "bash_cmd"), where+".bash_cmd", "step.criterion.command", "must be a shell command")
		}
	default:
		criterionFields(c, where, l)
	}
}

// criterionFields checks what every criterion has. A row carries its criterion's fields, so other names pass, save those that are
// a near miss of a name that is read.
func criterionFields(c doc.Node, where string, l *diag.List, own ...string) {
	if w := c.Get("weight"); !w.IsNull() {
		if _, ok := w.Float(); !ok {
			fault(l, w, where+".weight", "step.criterion.weight", "must be a number, not %s", w.Kind())
		}
	}
	if len(own) == 0 {
		return // an unknown type: its fields are unknown too
	}
	common := []string{"type", "id", "name", "description", "criterion", "weight"}
	known := slices.Concat(own, common)
	for field, v := range c.Members() {
		if slices.Contains(known, field) {
			continue
		}
		if near := diag.Nearest(field, known); near != "" && !c.Get(near).Exists() {
			fault(l, v, where+"."+field, "step.field.unknown", "is not a known field; did you mean %s?", near)
		}
	}
}

// texts wants a list of at least one text, none of them empty.
func texts(c doc.Node, where, field string, l *diag.List) {
	v := c.Get(field)
	if v.Kind() != doc.Array || v.Len() == 0 {
		fault(l, orHolder(c, field), where+"."+field, "step.criterion.list", "must be a list of at least one string")
		return
	}
	for i, e := range v.Items() {
		if s, ok := e.Str(); !ok || s == "" {
			fault(l, e, at(where+"."+field, i), "step.criterion.list", "must be a string that is not empty")
		}
	}
}

// pattern wants a regular expression.
func pattern(c doc.Node, where, field string, flags []string, l *diag.List) {
	v := c.Get(field)
	s, ok := v.Str()
	if !ok || s == "" {
		fault(l, orHolder(c, field), where+"."+field, "step.criterion.pattern", "must be a regular expression")
		return
	}
	if _, err := Pattern(s, flags...); err != nil {
		fault(l, v, where+"."+field, "step.criterion.pattern", "%s is no regular expression that can be used: %v", diag.Repr(s), err)
	}
}

// orHolder is the field where it exists, else what holds it, for positions.
func orHolder(n doc.Node, field string) doc.Node {
	if v := n.Get(field); v.Exists() {
		return v
	}
	return n
}

func responseVerifier() *Kind {
	return &Kind{
		Name: "agent_prompt_response_verifier", Doc: "checks the text of an agent's reply",
		Fields: doc.Schema{Fields: []doc.Field{
			must("prompt_id", name(), "prompt whose reply is checked"),
			may("criteria", list(openTable(must("type", oneOf(ResponseContains, ResponseRegex), "what is checked"))), []any{}, "what is checked"),
			aggregator(AllPass),
			verifierID(),
		}},
		Check: func(n doc.Node, l *diag.List) {
			for i, c := range n.Get("criteria").Items() {
				checkResponseCriterion(c, at("criteria", i), l)
			}
		},
	}
}

func checkResponseCriterion(c doc.Node, where string, l *diag.List) {
	switch c.Get("type").Text() {
	case ResponseContains:
		criterionFields(c, where, l, "needles")
		texts(c, where, "needles", l)
	case ResponseRegex:
		criterionFields(c, where, l, "pattern", "flags")
		if f := c.Get("flags"); !f.IsNull() && f.Kind() != doc.Array {
			fault(l, f, where+".flags", "step.criterion.flags", "must be a list of flag names such as DOTALL")
			return
		}
		pattern(c, where, "pattern", ResponseFlags(c), l)
	}
}

// ResponseFlags are the flags of a response_regex_present criterion's pattern.
func ResponseFlags(criterion doc.Node) []string {
	f := criterion.Get("flags")
	if f.IsNull() {
		return []string{"DOTALL"}
	}
	var flags []string
	for _, e := range f.Items() {
		flags = append(flags, e.Text())
	}
	return flags
}

func outcomeVerifier() *Kind {
	return &Kind{
		Name: "env_outcome_verifier", Doc: "runs a Python file that looks at an environment and scores",
		Fields: doc.Schema{Fields: []doc.Field{
			must("env_id", name(), "deployed environment"),
			must("file_artifact_id", name(), "file with verify()"),
			may("file_artifact_version", version(), nil, "its version; absent: the latest"),
			aggregator(AllPass),
			verifierID(),
			may("prompt_id", name(), nil, "prompt that verify() may look at"),
		}},
		Refs: []Ref{env("env_id", ""), artifact("file_artifact_id", "file_artifact_version", typeFile)},
	}
}

func unitTestsVerifier() *Kind {
	return &Kind{
		Name: "run_container_unit_tests_verifier", Doc: "runs tests in a container of the task",
		Fields: doc.Schema{Fields: []doc.Field{
			must("sandbox_name", name(), "sandbox that holds the container"),
			must("container_name", name(), "container"),
			must("command", name(), "shell command that runs the tests"),
			may("setup_commands", list(name()), []any{}, "shell commands that run before; a failure of one fails the step"),
			may("user", name(), "root", "user that runs them"),
			may("timeout_sec", seconds(), 300, "limit of the command"),
			may("env_vars", tableOf(text()), nil, "environment of the commands"),
			may("result_paths", list(name()), []any{}, "files to keep"),
			may("reward_path", name(), nil, "file that holds the score; absent: 1 when the command succeeds"),
			verifierID(),
		}},
		Check: checkVars,
	}
}

func aggregateVerifiers() *Kind {
	return &Kind{
		Name: "aggregate_verifiers", Doc: "scores the criteria of several verifiers as one",
		Fields: doc.Schema{Fields: []doc.Field{
			may("verifier_ids", list(name()), []any{}, "scores to take together"),
			aggregator(WeightedAverage),
			verifierID(),
		}},
	}
}
