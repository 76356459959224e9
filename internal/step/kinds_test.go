package step

import (
	"slices"
	"testing"

	"agentenv.internal/agentenv/internal/doc"
)

// named are the 49 step types that bundles know, by family, and the one that computers add.
var named = map[string][]string{
	"world": {
		"deploy_sandbox", "deploy_env", "deploy_agent", "install_agent", "deploy_human_agent", "run_docker_container", "load_artifact",
		"add_skills", "peer_agents", "modify_env_tool_access", "apply_server_config", "sync_env_clock", "register_env_triggers",
		"register_agent_triggers", "reset_env", "teardown_sandboxes", "build_mcp_cli",
	},
	"act": {"prompt_agent", "run_code", "collect_artifacts", "snapshot_env", "snapshot_agent_state", "review"},
	"verify": {
		"verify_sandbox", "agent_prompt_response_verifier", "env_outcome_verifier", "run_container_unit_tests_verifier",
		"rubrics_verifier", "aggregate_verifiers",
	},
	"validate": {
		"verify_mcp_tool_schema", "verify_spec_conformance", "verify_mcp_env_assessment", "validation_gate_aggregator", "verify_env_card",
		"verify_env_core_protocol", "verify_universe_load_export_roundtrip", "combine_universe_verdicts",
		"verify_a2a_agent_card", "verify_a2a_agent_config_identity", "verify_a2a_role", "verify_a2a_trajectory", "verify_a2a_core_protocol",
		"verify_a2a_agent_mcp", "verify_a2a_system_prompt", "verify_a2a_skill_config", "verify_a2a_snapshot", "verify_a2a_peer_agents",
		"verify_a2a_modalities", "verify_a2a_install",
	},
	"computers": {"snapshot_computer_env"},
}

func TestKindsAreComplete(t *testing.T) {
	var want []string
	for family, names := range named {
		if family != "computers" {
			want = append(want, names...)
		}
	}
	if len(want) != 49 {
		t.Errorf("the families name %d step types, not 49", len(want))
	}
	want = append(want, named["computers"]...)
	slices.Sort(want)
	if got := Kinds().Names(); !slices.Equal(got, want) {
		t.Errorf("kinds:\n got %v\nwant %v", got, want)
	}
}

// TestKindsAreSound checks the tables themselves: every field is documented and of some kind, names once, defaults that pass their own
// type, and references that name fields.
func TestKindsAreSound(t *testing.T) {
	s := Kinds()
	for _, n := range s.Names() {
		e, _ := s.Get(n)
		k := e.Value
		if k.Name != n || k.Doc == "" {
			t.Errorf("%s: name %q, doc %q", n, k.Name, k.Doc)
		}
		soundSchema(t, n, k.Schema())
		for _, r := range k.Refs {
			if r.Kind == "" || r.Out && r.Version != "" || r.From != "" && !r.Out {
				t.Errorf("%s: reference %+v", n, r)
			}
		}
	}
}

func soundSchema(t *testing.T, at string, s *doc.Schema) {
	t.Helper()
	seen := map[string]bool{}
	for _, f := range s.Fields {
		where := at + "." + f.Name
		if seen[f.Name] || f.Doc == "" || len(f.Type.Kinds) == 0 || f.Required == f.Type.Null || f.Required && f.Default != nil {
			t.Errorf("%s: %+v", where, f)
		}
		seen[f.Name] = true
		if f.Default != nil {
			l := check(&doc.Schema{Fields: []doc.Field{f}}, doc.Build(map[string]any{f.Name: f.Default}))
			if l.HasErrors() {
				t.Errorf("%s: default %v: %v", where, f.Default, l.Err())
			}
		}
		for typ := &f.Type; typ != nil; typ = typ.Elem {
			if typ.Fields != nil {
				soundSchema(t, where, typ.Fields)
			}
		}
	}
}
