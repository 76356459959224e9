package step

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

// minimal is, per step type, the least that a valid step says beside id and type.
var minimal = map[string]string{
	"deploy_sandbox":                    `"sandbox_name":"b","sandbox_mode":"vm"`,
	"deploy_env":                        `"env_id":"e"`,
	"deploy_agent":                      ``,
	"install_agent":                     `"sandbox_name":"b"`,
	"deploy_human_agent":                ``,
	"run_docker_container":              `"sandbox_name":"b","docker_context_artifact_id":"c"`,
	"load_artifact":                     `"sandbox_name":"b","artifact_id":"f"`,
	"add_skills":                        ``,
	"peer_agents":                       `"peerings":[{"source_agent_name":"a","peer_agent_names":["b"]}]`,
	"modify_env_tool_access":            `"env_id":"e","action":"enable","role":"*","tools":[]`,
	"apply_server_config":               `"env_id":"e","directives":[{"service":"*","uri":"u"}]`,
	"sync_env_clock":                    `"env_id":"e","virtual_time":"2026-01-31T09:00:00Z"`,
	"register_env_triggers":             `"env_id":"e","triggers":[]`,
	"register_agent_triggers":           `"agent_name":"a","triggers":[]`,
	"reset_env":                         `"env_id":"e"`,
	"teardown_sandboxes":                `"sandbox_names":["b"]`,
	"build_mcp_cli":                     `"env_id":"e","command_name":"mail"`,
	"prompt_agent":                      `"prompt":"hello"`,
	"run_code":                          `"script_artifact_id":"s"`,
	"collect_artifacts":                 ``,
	"snapshot_env":                      `"env_id":"e"`,
	"snapshot_computer_env":             `"env_id":"e","snapshot_id":"s"`,
	"snapshot_agent_state":              `"prompt_id":"p"`,
	"review":                            ``,
	"verify_sandbox":                    ``,
	"agent_prompt_response_verifier":    `"prompt_id":"p"`,
	"env_outcome_verifier":              `"env_id":"e","file_artifact_id":"f"`,
	"run_container_unit_tests_verifier": `"sandbox_name":"b","container_name":"c","command":"pytest"`,
	"rubrics_verifier":                  `"criteria":[{"id":"1","criterion":"polite"}],"prompt_id":"p"`,
	"aggregate_verifiers":               ``,

	"verify_mcp_tool_schema":                `"env_id":"e"`,
	"verify_spec_conformance":               `"env_id":"e"`,
	"verify_mcp_env_assessment":             `"env_id":"e","prompt_id":"p"`,
	"validation_gate_aggregator":            `"env_id":"e"`,
	"verify_env_card":                       `"env_id":"e"`,
	"verify_env_core_protocol":              `"env_id":"e"`,
	"verify_universe_load_export_roundtrip": `"env_id":"e","universe_artifact_id":"u"`,
	"combine_universe_verdicts":             `"env_id":"e","universe_artifact_id":"u","universe_artifact_version":1,"judge_verifier_id":"j"`,
	"verify_a2a_agent_card":                 `"a2a_agent_id":"a"`,
	"verify_a2a_agent_config_identity":      `"a2a_agent_id":"a"`,
	"verify_a2a_role":                       `"a2a_agent_id":"a"`,
	"verify_a2a_trajectory":                 `"a2a_agent_id":"a"`,
	"verify_a2a_core_protocol":              `"a2a_agent_id":"a","prompt_id":"p"`,
	"verify_a2a_agent_mcp":                  `"a2a_agent_id":"a"`,
	"verify_a2a_system_prompt":              `"a2a_agent_id":"a"`,
	"verify_a2a_skill_config":               `"a2a_agent_id":"a","rubric_verifier_id":"r"`,
	"verify_a2a_snapshot":                   `"a2a_agent_id":"a","rubric_verifier_id":"r","rubric_criterion_id":"c"`,
	"verify_a2a_peer_agents":                `"a2a_agent_id":"a","peer_prompt_id":"p","expected_token":"t"`,
	"verify_a2a_modalities":                 `"a2a_agent_id":"a","probes":[{"modality":"text","prompt_id":"p","expected":"x"}]`,
	"verify_a2a_install":                    `"a2a_agent_id":"a"`,
}

func kindNamed(t testing.TB, name string) *Kind {
	t.Helper()
	e, ok := Kinds().Get(name)
	if !ok {
		t.Fatalf("no kind %s", name)
	}
	return e.Value
}

// stepOf is a step of a type with members in JSON.
func stepOf(t testing.TB, typ, members string) doc.Node {
	t.Helper()
	if members != "" {
		members = "," + members
	}
	tree, l := doc.ParseJSON("t.json", fmt.Appendf(nil, `{"id":"s","type":%q%s}`, typ, members))
	if l.HasErrors() {
		t.Fatal(members, l.Err())
	}
	return tree.Root()
}

// problems are everything that a kind finds in a step: "where: summary".
func problems(k *Kind, n doc.Node) []string {
	l := check(k.Schema(), n)
	k.Rules(n, &l)
	var out []string
	for _, p := range l.Of(diag.Error) {
		where := p.Where
		if where != "" {
			where += ": "
		}
		out = append(out, where+p.Summary)
	}
	return out
}

func TestMinimalSteps(t *testing.T) {
	for _, name := range Kinds().Names() {
		members, ok := minimal[name]
		if !ok {
			t.Errorf("%s has no minimal step", name)
		}
		k := kindNamed(t, name)
		n := stepOf(t, name, members)
		if got := problems(k, n); len(got) > 0 {
			t.Errorf("%s: %q", name, got)
		}
		filled := k.Fill(n)
		if got := problems(k, filled); len(got) > 0 {
			t.Errorf("%s with its defaults: %q", name, got)
		}
		for _, f := range k.Schema().Fields {
			if v := filled.Get(f.Name); f.Default != nil && v.IsNull() {
				t.Errorf("%s: %s has no value", name, f.Name)
			}
			// Each required field is missed when it is gone, and null is no value for it.
			if f.Required && f.Name != "id" && f.Name != "type" {
				for _, less := range []doc.Node{without(n, f.Name), n.With(f.Name, nil)} {
					if got := problems(k, less); !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, f.Name) }) {
						t.Errorf("%s without %s: %q", name, f.Name, got)
					}
				}
			}
		}
	}
}

func TestFillReadsNullAsAbsent(t *testing.T) {
	k := kindNamed(t, "verify_sandbox")
	got := k.Fill(stepOf(t, "verify_sandbox", `"base_dir":null,"verifier_id":null,"shell_timeout_seconds":7`))
	if got.Get("base_dir").Text() != "/app" || !got.Get("verifier_id").IsNull() || got.Get("shell_timeout_seconds").Text() != "7" {
		t.Errorf("%s", doc.JSON(got))
	}
}

func without(n doc.Node, name string) doc.Node {
	m := map[string]any{}
	for k, v := range n.Members() {
		if k != name {
			m[k] = v
		}
	}
	return doc.Build(m)
}

// TestWrongValues puts, into each field of each kind and into what lies inside it, every kind of value that it doesn't take.
func TestWrongValues(t *testing.T) {
	for _, name := range Kinds().Names() {
		k := kindNamed(t, name)
		n := stepOf(t, name, minimal[name])
		for _, f := range k.Schema().Fields {
			if f.Name == "type" {
				continue
			}
			for _, v := range wrong(f.Type) {
				l := check(k.Schema(), n.With(f.Name, v))
				found := slices.ContainsFunc(l, func(p diag.Problem) bool {
					rest, ok := strings.CutPrefix(p.Where, f.Name)
					return ok && p.Severity == diag.Error && (rest == "" || rest[0] == '.' || rest[0] == '[')
				})
				if !found {
					t.Errorf("%s: %s = %v passes", name, f.Name, v)
				}
			}
			if got := problems(k, n.With(f.Name+"_", 1)); len(got) != 1 || !strings.Contains(got[0], "unknown key") {
				t.Errorf("%s: unknown field: %q", name, got)
			}
		}
	}
}

var samples = map[doc.Kind]any{
	doc.Null: nil, doc.Bool: true, doc.Int: 3, doc.Float: 2.5, doc.String: "x", doc.Array: []any{}, doc.Object: map[string]any{},
}

// wrong are values that a type doesn't take.
func wrong(t doc.Type) []any {
	var out []any
	for kind, v := range samples {
		takes := slices.Contains(t.Kinds, kind) || kind == doc.Null && t.Null || kind == doc.Int && slices.Contains(t.Kinds, doc.Float)
		if !takes {
			out = append(out, v)
		}
	}
	if t.Min != nil {
		out = append(out, *t.Min-1)
	}
	if t.Max != nil {
		out = append(out, *t.Max+1)
	}
	if len(t.OneOf) > 0 {
		out = append(out, "no such word")
	}
	for _, kind := range t.Kinds {
		switch {
		case kind == doc.String && t.NonEmpty:
			out = append(out, "")
		case kind == doc.Array:
			if t.NonEmpty {
				out = append(out, []any{})
			}
			if t.Elem != nil {
				for _, v := range wrong(*t.Elem) {
					out = append(out, []any{v})
				}
			}
		case kind == doc.Object && t.Fields != nil:
			for _, f := range t.Fields.Fields {
				for _, v := range wrong(f.Type) {
					out = append(out, map[string]any{f.Name: v})
				}
			}
		case kind == doc.Object && t.Elem != nil:
			for _, v := range wrong(*t.Elem) {
				out = append(out, map[string]any{"k": v})
			}
		}
	}
	return out
}
