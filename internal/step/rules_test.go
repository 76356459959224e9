package step

import (
	"strings"
	"testing"
)

func TestRules(t *testing.T) {
	tests := []struct {
		typ, members string
		want         []string // each problem begins so; none: the step is valid
	}{
		{"deploy_sandbox", `"sandbox_name":"b","sandbox_mode":"container"`, []string{"sandbox_mode: container needs image", "sandbox_mode: container needs port"}},
		{"deploy_sandbox", `"sandbox_name":"b","sandbox_mode":"container","image":"x","port":80`, nil},
		{"deploy_sandbox", `"sandbox_name":"b","sandbox_mode":"vm","cpu":0,"disk_size_gb":-1.5`, []string{"cpu: must be more than 0, not 0", "disk_size_gb: must be more than 0"}},
		{"deploy_sandbox", `"sandbox_name":"b","sandbox_mode":"vm","network_policy":{"mode":"allowlist","allow_hosts":["a.b"],"allow_cidrs":["10.0.0.0/8","::1"]}`, nil},
		{"deploy_sandbox", `"sandbox_name":"b","sandbox_mode":"vm","network_policy":{"allow_hosts":["*"]}`, []string{"network_policy.allow_hosts: has no effect in mode allow_all", "network_policy.allow_hosts[0]: '*' is every host"}},
		{"deploy_sandbox", `"sandbox_name":"b","sandbox_mode":"vm","network_policy":{"mode":"allowlist","allow_cidrs":["10"]}`, []string{"network_policy.allow_cidrs[0]: '10' is no address range"}},
		{"deploy_sandbox", `"sandbox_name":"b","sandbox_mode":"vm","env_vars":{"A_1":"x","1A":"","a b":"x"}`, []string{"env_vars: '1A' is no name", "env_vars: 'a b' is no name"}},
		{"deploy_sandbox", `"sandbox_name":"b","sandbox_mode":"vm","metadata":{"x":1,"attribution":{"team":"a"}}`, nil},
		{"deploy_sandbox", `"sandbox_name":"b","sandbox_mode":"vm","metadata":{"attribution":{"team":1}}`, []string{"metadata.attribution.team: must be a string"}},
		{"deploy_env", `"env_id":"e","artifact_version":1`, []string{"artifact_version: needs artifact_id"}},
		{"deploy_env", `"env_id":"e","gateway_mode":"consistnt"`, []string{"gateway_mode: must be one of performance, consistent"}},
		{"deploy_agent", `"agent_changelog_toolcall_position_exclusive":3`, []string{"agent_changelog_toolcall_position_exclusive: needs agent_changelog_object_url"}},
		{"run_docker_container", `"sandbox_name":"b"`, []string{"names no build context"}},
		{"run_docker_container", `"sandbox_name":"b","docker_context_artifact_id":"a","docker_context_url":"http://h/x.zip"`, []string{"docker_context_url: docker_context_artifact_id and docker_context_url can't be used together"}},
		{"run_docker_container", `"sandbox_name":"b","docker_context_url":"http://h/x.tar.gz"`, []string{"docker_context_url: must be a .zip"}},
		{"run_docker_container", `"sandbox_name":"b","docker_context_url":"http://h/x.zip?sig=1.tar"`, nil},
		{"run_docker_container", `"sandbox_name":"b","docker_context_artifact_id":"a","command_override":"x","keep_alive_with_base_command":true`, []string{"command_override: and keep_alive_with_base_command"}},
		{"run_docker_container", `"sandbox_name":"b","docker_context_artifact_id":"a","extra_networks":["n","host","container:x"]`, []string{"extra_networks[1]: 'host'", "extra_networks[2]: 'container:x'"}},
		{"teardown_sandboxes", `"agent_names":[]`, []string{"names nothing to end"}},
		{"teardown_sandboxes", `"env_ids":["e"],"fail_task_on_error":true`, []string{"fail_task_on_error: must be false"}},
		{"teardown_sandboxes", `"env_ids":["e"],"fail_task_on_error":false`, nil},

		{"load_artifact", `"artifact_id":"f"`, []string{"names nothing to load into"}},
		{"load_artifact", `"sandbox_name":"b"`, []string{"names nothing to load;"}},
		{"load_artifact", `"sandbox_name":"b","artifacts":[]`, []string{"names nothing to load;"}},
		{"load_artifact", `"sandbox_name":"b","artifacts":null,"artifact_id":"f","artifact_version":2`, nil},
		{"load_artifact", `"sandbox_name":"b","artifacts":[],"artifact_id":"f"`, []string{"artifacts: is empty beside artifact_id"}},
		{"load_artifact", `"sandbox_name":"b","artifacts":[{"id":"f","version":1}],"artifact_version":1`, []string{"artifact_version: needs artifact_id"}},
		{"load_artifact", `"sandbox_name":"b","artifacts":[{"id":"f"}],"artifact_id":"f"`, []string{"artifact_id: artifacts and artifact_id are several sources"}},
		{"load_artifact", `"sandbox_name":"b","artifact_id":"f","artifact_from_step_id":"s"`, []string{"artifact_from_step_id: artifact_id and artifact_from_step_id are several sources"}},
		{"load_artifact", `"sandbox_name":"b","artifacts":[{"id":"f"}],"urls":["http://h/x"]`, nil},
		{"load_artifact", `"sandbox_name":"b","agent_name":"a","artifact_id":"f"`, []string{"sandbox_name: agent_name and sandbox_name are several targets"}},
		{"load_artifact", `"env_id":"e","agent_name":"a","artifact_id":"cli"`, nil},
		{"load_artifact", `"container_name":"c","artifact_id":"f"`, []string{"container_name: needs sandbox_name"}},
		{"load_artifact", `"container_name":"c","sandbox_name":"b","artifact_id":"f"`, nil},
		{"load_artifact", `"env_id":"e","urls":["http://h/x"]`, []string{"urls: can't be loaded into an environment"}},
		{"load_artifact", `"sandbox_name":"b","env_step_id":"d","artifact_id":"f"`, []string{"env_step_id: needs env_id"}},
		{"load_artifact", `"sandbox_name":"b","urls":["http://h/a%2Fb/c.txt",{"url":"http://h/y","filename":"c.txt"}]`, []string{"urls[1]: would be kept as 'c.txt'"}},
		{"load_artifact", `"sandbox_name":"b","urls":[{"url":"http://h/y","filename":"../x"},"http://h/%2e%2e","http://h/a/"]`, []string{"urls[0]: '../x' is no plain file name", "urls[1]: '..' is no plain file name"}},
		{"load_artifact", `"sandbox_name":"b","urls":[{"url":"http://h/y"}]`, []string{"urls[0]: filename is missing"}},

		{"add_skills", `"skills":[{"name":"a","description":"d","body":"x","license":"MIT"},{"skill_artifact_id":"s","skill_artifact_version":2},{"name":"b","description":"d","object_url":"u"}]`, nil},
		{"add_skills", `"skills":[{"name":"a"},{"body":"x"},{"body":"x","skill_artifact_id":"s"}]`, []string{
			"skills[0]: names no source", "skills[1]: needs description", "skills[1]: needs name", "skills[2]: body and skill_artifact_id are several sources",
		}},
		{"add_skills", `"skills":[{"skill_artifact_id":"s","license":"MIT"}]`, []string{"skills[0].license: has no effect beside skill_artifact_id"}},
		{"collect_artifacts", `"agent_name":"default-agent","env_id":"e"`, nil},
		{"collect_artifacts", `"agent_name":"a","env_id":"e"`, []string{"agent_name: env_id and agent_name are several sources"}},
		{"collect_artifacts", `"container_name":"c"`, []string{"container_name: needs sandbox_name"}},
		{"snapshot_env", ``, []string{"names no environment"}},
		{"build_mcp_cli", `"env_id":"e","command_name":"-x"`, []string{"command_name: '-x' is no command name"}},

		{"peer_agents", `"peerings":[{"source_agent_name":"a","peer_agent_names":["b","a"]}]`, []string{"peerings[0].peer_agent_names[1]: is the agent itself"}},
		{"apply_server_config", `"env_id":"e","directives":[{"uri":"u"},{"environment":"x","uri":"u"},{"environment":"x","service":"y","uri":"u"}]`, []string{"directives[0]: needs service", "directives[2].environment: is another name of service"}},
		{"sync_env_clock", `"env_id":"e","virtual_time":"tomorrow"`, []string{"virtual_time: 'tomorrow' is no RFC 3339 time"}},
		{"sync_env_clock", `"env_id":"e","virtual_time":"<start>"`, nil},
		{"build_mcp_cli", `"env_id":"e","command_name":"<tool>"`, nil},
		{"sync_env_clock", `"env_id":"e","virtual_time":"2026-01-31T09:00:00.5+02:00","virtual_seconds_per_real_second":0`, nil},
		{"register_env_triggers", `"env_id":"e","triggers":[{"id":"t1","when":{"type":"time","at":"x"},"actions":[{"type":"nl","instruction":"x"}]}],"await_fired":["t1","t2"]`, []string{"await_fired[1]: 't2' is no trigger of this step; did you mean 't1'?"}},
		{"register_env_triggers", `"env_id":"e","triggers":[{"id":"t","when":{"type":"state"}},{"id":"t","when":{"type":"acton"}}]`, []string{"triggers[1].id: 't' is used twice", "triggers[1].when.type: must be one of action"}},
		{"register_env_triggers", `"env_id":"e","executor_agent_name":"bob","executor_hours":{"bbo":{},"amy":{},"bob":{}},"triggers":[{"when":{"type":"state"},"actions":[{"type":"nl","executor":"amy","instruction":"x"}]}]`, []string{"executor_hours.bbo: no nl action and no executor_agent_name names this agent; did you mean 'bob'?"}},
		{"register_agent_triggers", `"agent_name":"a","triggers":[{"when":{"type":"all","of":[{"type":"step","turn":2},{"type":"env_trigger","env_id":"e"},{"type":"x"},7]},"actions":[{"type":"say","text":"x"}]},{"when":{"type":"any"}}]`, []string{
			"triggers[0].when.of[1]: needs trigger_id", "triggers[0].when.of[2]: needs a type", "triggers[0].when.of[3]: must be a table", "triggers[1].when: needs of",
		}},

		{"prompt_agent", ``, []string{"has nothing to say"}},
		{"prompt_agent", `"prompt":"","parts":[{"text":"x"}]`, []string{"parts: and prompt can't be used together"}},
		{"prompt_agent", `"parts":[{"kind":"text","text":"x"},{"kind":"file","file":{"uri":"u","mimeType":"text/plain"}},{"data":{"a":1}}]`, nil},
		{"prompt_agent", `"parts":[{"kind":"text"},{"kind":"data","text":"x"},{"kind":"file","file":{}}]`, []string{
			"parts[0]: must hold exactly one", "parts[1].kind: is 'data', but the part holds text", "parts[2].file: must hold exactly one",
		}},
		{"prompt_agent", `"prompt":"x","model_params":{"temperature":1,"api_key":"k"}`, []string{"model_params.api_key: is set by agent-env itself"}},
		{"prompt_agent", `"prompt":"x","snapshot_config":{"at_end":false}`, []string{"snapshot_config: never takes a snapshot"}},
		{"prompt_agent", `"prompt":"x","snapshot_config":{"at_end":false,"interval_seconds":30}`, nil},
		{"run_code", `"script_artifact_id":"s","env_id":"e","agent_name":"a"`, []string{"agent_name: env_id and agent_name can't be used together"}},

		{"verify_sandbox", `"sandbox_name":" ","agent_name":"solver"`, nil},
		{"verify_sandbox", `"sandbox_name":"b","agent_name":"default-agent"`, nil},
		{"verify_sandbox", `"sandbox_name":"b","agent_name":"solver"`, []string{"agent_name: and sandbox_name can't be used together"}},
		{"verify_sandbox", `"criteria":[
			{"type":"probe_file_exists","paths":["a"],"weight":-2,"tier":"gold"},{"type":"probe_dir_exists","paths":["a"]},
			{"type":"probe_file_contains","paths":["a"],"expected":"^x$"},{"type":"probe_file_contains","paths":["a"],"value":"x"},
			{"type":"bash_cmd_succeeds","bash_cmd":"true"},{"type":"some_other","bash_cm":1}]`, nil},
		{"verify_sandbox", `"criteria":[
			{"type":"probe_file_exists"},{"type":"probe_dir_exists","paths":"a"},{"type":"probe_dir_exists","paths":["",1]},
			{"type":"probe_file_contains","paths":["a"]},{"type":"probe_file_contains","paths":["a"],"expected":"("},
			{"type":"bash_cmd_succeeds","bash_cmd":" "},{"type":"bash_cmd_succeeds","bash_cmmd":"true"},{"paths":[]},{"type":"x","weight":"1"}]`, []string{
			"criteria[0].paths: must be a list", "criteria[1].paths: must be a list", "criteria[2].paths[0]: must be a string", "criteria[2].paths[1]: must be a string",
			"criteria[3].expected: must be a regular expression", "criteria[4].expected: '(' is no regular expression", "criteria[5].bash_cmd: must be a shell command",
			"criteria[6].bash_cmd: must be a shell command", "criteria[6].bash_cmmd: is not a known field; did you mean bash_cmd?",
			"criteria[7]: type is missing", "criteria[8].weight: must be a number",
		}},
		{"agent_prompt_response_verifier", `"prompt_id":"p","criteria":[{"type":"response_contains","needles":["42"]},{"type":"response_regex_present","pattern":"a.b","flags":["IGNORECASE"]}]`, nil},
		{"agent_prompt_response_verifier", `"prompt_id":"p","criteria":[{"type":"response_contains","needles":[]},{"type":"response_regex_present","pattern":"a","flags":["X"]},{"type":"other"},{"type":"response_regex_present","pattern":"a","flags":"I"}]`, []string{
			"criteria[0].needles: must be a list", "criteria[1].pattern: 'a' is no regular expression that can be used: flag X", "criteria[2].type: must be one of", "criteria[3].flags: must be a list",
		}},
		{"run_container_unit_tests_verifier", `"sandbox_name":"b","container_name":"c","command":"x","env_vars":{"A-B":"x"}`, []string{"env_vars: 'A-B' is no name"}},
		{"rubrics_verifier", `"prompt_id":"p","criteria":[{"id":"1","criterion":"a"},{"id":"1","criterion":"b"},{"id":"","criterion":"c"}]`, []string{"criteria[1].id: '1' is used twice", "criteria[2].id: must not be empty"}},
		{"rubrics_verifier", `"prompt_id":"p","criteria":[],"default_model_api_base":"u"`, []string{"default_model_api_base: has no effect on an agent as judge"}},
		{"rubrics_verifier", `"prompt_id":"p","criteria":[],"output_format":"rubric_evidence"`, []string{"output_format: rubric_evidence needs use_agent_judge false"}},
		{"rubrics_verifier", `"prompt_id":"p","criteria":[],"output_format":"rubric_evidence","use_agent_judge":false,"trajectory_filter":{"compaction_type":"screenshot","frame_strategy":"per_criterion","evidence_exclude_pattern":"^a"}`, nil},
		{"rubrics_verifier", `"prompt_id":"p","criteria":[],"output_format":"trajectory_mistakes","judge_batch_size":3`, []string{"judge_batch_size: has no effect on output_format trajectory_mistakes"}},
		{"rubrics_verifier", `"prompt_id":"p","criteria":[],"context_facts_for_judge":{"a":"x.y-z_1","b":"x..y"}`, []string{"context_facts_for_judge: 'b': 'x..y' is no dotted path"}},
		{"rubrics_verifier", `"prompt_id":"p","criteria":[],"trajectory_filter":{"always_show_actions":{"a":"("},"frame_budget":96}`, []string{"trajectory_filter.always_show_actions.a: '(' is no regular", "trajectory_filter.frame_budget: must be from 6 to 95"}},
		{"review", `"retry_config":{}`, []string{"retry_config: needs retry_from_step_id"}},
		{"review", `"retry_config":{"retry_from_step_id":"s","go_to_step_id":"s"}`, []string{"retry_config.go_to_step_id: is an older name"}},
	}
	for _, tt := range tests {
		got := problems(kindNamed(t, tt.typ), stepOf(t, tt.typ, tt.members))
		if len(got) != len(tt.want) {
			t.Errorf("%s %s\n got %q\nwant %q", tt.typ, tt.members, got, tt.want)
			continue
		}
		for i, want := range tt.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%s %s\n got %s\nwant %s", tt.typ, tt.members, got[i], want)
			}
		}
	}
}
