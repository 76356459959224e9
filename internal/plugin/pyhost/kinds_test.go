package pyhost_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// Environment and artifact types, as the protocol asks for them.
func TestEnvironmentAndArtifactTypes(t *testing.T) {
	t.Parallel()
	b := start(t, generation(t, "kinds"), map[string]func(json.RawMessage) (any, error){
		"host/settings.get": func(json.RawMessage) (any, error) {
			return map[string]any{"settings": map[string]string{"account": "a"}}, nil
		},
	})
	phone := `"call":"c-1","entry":{"group":"agent_env.envs","name":"phone","value":"kinds:PhoneEnv"}`
	table := `"call":"c-1","entry":{"group":"agent_env.artifacts","name":"table","value":"kinds:Table"}`
	note := `"call":"c-1","entry":{"group":"agent_env.artifacts","name":"note","value":"kinds:Note"}`
	state := `{"env_id":"p","metadata":{"account":"a","ttl":5},"environment_url":"http://127.0.0.1:4711","mcp_url":"http://127.0.0.1:4711/mcp"}`
	for _, r := range []struct{ method, params, want string }{
		{"env/check", phone + `,"env":{"id":"p","type":"phone","model":"small"}`, `{"problems":[]}`},
		{"env/check", phone + `,"env":{"id":"p","type":"phone","model":"odd"}`, `{"problems":[{"summary":"can't be read: model must be small or large, got 'odd' (kinds.py:`},
		{"env/deploy", phone + `,"env":{"id":"p","type":"phone"},"options":{"ttl_seconds":5,"disk_size_gb":10}`, `{"env":{"environment_url":"http://127.0.0.1:4711","mcp_url":"http://127.0.0.1:4711/mcp","metadata":{"account":"a","ttl":5}},"state":` + state + `}`},
		{"env/deploy", phone + `,"env":{"id":"q","type":"phone"},"files":[{"path":"a/b","file":"/x/a/b","size":1}]`, `{"env":{"environment_url":"http://127.0.0.1:4711","mcp_url":"http://127.0.0.1:4711/mcp","metadata":{"account":"a","ttl":60},"reads_files":true},"state":{"env_id":"q","metadata":{"account":"a","ttl":60},"reads_files":true,"files":{"a/b":"/x/a/b"},"environment_url":`},
		{"env/reset", phone + `,"state":` + state, `{}`},
		{"env/reset", phone + `,"state":` + strings.Replace(state, `"a"`, `"b"`, 1), `-32010: somebody else's phone (kinds.py:`},
		{"env/close", phone + `,"state":` + state, `{}`},
		{"env/close", phone + `,"state":` + state, `{}`},
		{"env/close", phone, `-32602: state is missing, or is no object`},
		{"artifact/check", table + `,"config":{"columns":["a"],"titel":"x"},"files":[{"path":"a.csv","size":0}]`, `{"problems":[{"summary":"field 'titel' is not one of table","severity":"error","where":"titel","fix":"remove it, or correct its spelling"},{"summary":"there is no file for a.csv","severity":"error"}]}`},
		{"artifact/check", table + `,"config":{}`, `{"problems":[{"summary":"is missing","severity":"error","where":"columns"}]}`},
		{"artifact/write", table + `,"id":"t","config":{"columns":["a"]},"files":[{"path":"a.csv","file":"/x/1"},{"path":"b.txt","file":"/x/2"}]`, `{"body":{"columns":["a"],"rows":2,"named":"t"},"files":[{"path":"a.csv","file":"/x/1"}]}`},
		{"artifact/check", note + `,"config":{"anything":1}`, `{"problems":[]}`},
		{"artifact/write", note + `,"id":"n","config":{"anything":1},"files":[]`, `{"body":{"anything":1},"files":[]}`},
		{"load", `"entries":[{"group":"agent_env.envs","name":"phone","value":"kinds:PhoneEnv"},{"group":"agent_env.artifacts","name":"t","value":"kinds:Table"},{"group":"agent_env.sandbox_providers","name":"x","value":"kinds:Note"}]`, `{"loaded":[{"group":"agent_env.envs","name":"phone","value":"kinds:PhoneEnv","status":"active","type":{"group":"agent_env.envs","name":"phone","description":"A phone somewhere else."}},{"group":"agent_env.artifacts","name":"t","value":"kinds:Table","status":"failed","code":"invalid-plugin","reason":"failed to load: TypeError(\"kinds.Table has the type 'table', and its entry point must have that name, not 't'\")`},
		{"load", `"entries":[{"group":"agent_env.artifacts","name":"stale","value":"kinds:Fresh"},{"group":"agent_env.artifacts","name":"odd","value":"kinds:Fresh"}]`, `{"loaded":[{"group":"agent_env.artifacts","name":"stale","value":"kinds:Fresh","status":"active","type":{"group":"agent_env.artifacts","name":"stale","description":"Goes by an older name too.","alias_of":"fresh"}},{"group":"agent_env.artifacts","name":"odd","value":"kinds:Fresh","status":"failed","code":"alias-refused","reason":"failed to load: TypeError(\"kinds.Fresh has the type 'fresh', whose spellings are 'fresh', 'stale', and not 'odd'\")`},
	} {
		raw, err := b.call(r.method, json.RawMessage("{"+r.params+"}"))
		got := string(raw)
		if err != nil {
			got = err.Error()
		}
		if got != r.want && !(strings.HasPrefix(got, r.want) && !strings.HasSuffix(r.want, "}")) {
			t.Errorf("%s %s\n got %s\nwant %s", r.method, r.params, got, r.want)
		}
	}
}
