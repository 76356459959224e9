package env

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
)

func problems(t *testing.T, typ, src string) []string {
	t.Helper()
	tree, l := doc.ParseJSON("env.toml", []byte(src))
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	s, ok := Schema(typ)
	if !ok {
		t.Fatalf("no schema of %s", typ)
	}
	l = nil
	s.Check(tree.Root(), "", &l)
	Check(typ, tree.Root(), []string{ProviderGateway, ProviderServer}, &l)
	var out []string
	for _, p := range l.Of(diag.Error) {
		out = append(out, strings.TrimPrefix(p.Where+": "+p.Summary, ": "))
	}
	return out
}

func TestCheck(t *testing.T) {
	tests := []struct {
		typ, src string
		want     []string
	}{
		{MCPServer, `{}`, nil},
		{MCPServer, `{"type":"mcp_server","id":"@local/x","image":{"ref":"h.x/y"},"environment_name":"mail","env_provider_type":"server"}`, nil},
		{MCPServer, `{"environment_name":"","image":"base"}`, []string{"environment_name: must not be empty"}},
		{MCPServer, `{"environment_name":3,"env_vars":{}}`, []string{"environment_name: must be a string", "unknown key 'env_vars'"}},
		{MCPServer, `{"environment_name":"gateway"}`, []string{"environment_name: 'gateway' is a container of every gateway"}},
		{MCPServer, `{"environment_name":"gateway","env_provider_type":"server"}`, nil},
		{MCPServer, `{"env_provider_type":"gatway"}`, []string{"env_provider_type: 'gatway' is not a known environment provider; did you mean 'gateway'?"}},
		{Website, `{"backend_image":"a","frontend_image":"b"}`, nil},
		{Website, `{"image":"a","env_provider_type":"server"}`, []string{"env_provider_type: server deploys one mcp_server alone, no website", "unknown key 'image'"}},
		{Multi, `{"mcp_server_envs":["a"],"website_envs":[{"env":"b"}],"name":"suite"}`, nil},
		{Multi, `{}`, []string{"needs an environment"}},
		{Multi, `{"mcp_server_envs":[],"name":"two words"}`, []string{"name: must hold no white space", "needs an environment"}},
		{Multi, `{"mcp_server_envs":"a","env_provider_type":"server","name":""}`, []string{
			"env_provider_type: server deploys one mcp_server alone, no multi", `mcp_server_envs: must be a list, not "a"`, "name: must not be empty", "needs an environment",
		}},
		{ComputerDriver, `{"module":"driver.py:Driver"}`, nil},
		{ComputerDriver, `{"module":"sub/driver.py:Driver"}`, nil},
		{ComputerDriver, `{}`, []string{"says nothing of how the driver is served"}},
		{ComputerDriver, `{"command":["./driver","-v"],"python":"requirements.txt"}`, nil},
		{ComputerDriver, `{"command":["./driver"],"module":"driver.py:Driver"}`, []string{"command: module says already how the driver is served"}},
		{ComputerDriver, `{"command":[]}`, []string{"command:"}},
		{ComputerApp, `{"environment_name":"notes"}`, nil},
		{ComputerApp, `{"env_provider_type":"server"}`, []string{"unknown key 'env_provider_type'"}},
		{Computer, `{}`, nil},
		{Computer, `{"driver":"d","apps":["a"],"data_paths":["Documents",".config/x"],"skill":"skill","display":{"width":1024,"height":768},"settings":{"queue_wait_s":1.5,"default_space":"norm"}}`, nil},
		{Computer, `{"data_paths":["/etc",".agentenv/x","a//b"]}`, []string{"data_paths[0]: '/etc' can't be a place in the home", "data_paths[1]: '.agentenv/x' is where servers keep what is theirs", "data_paths[2]"}},
		{Computer, `{"display":{"width":2000,"max_width":1000}}`, []string{"display.max_width: is 1000, less than width, which is 2000"}},
		{Computer, `{"display":{"width":0},"settings":{"tap_hold_ms":1001,"data_paths":["x"]}}`, []string{"display.width", "settings.tap_hold_ms", "settings: unknown key 'data_paths'"}},
		{Computer, `{"env_provider_type":"server"}`, []string{"env_provider_type: server deploys no computer; use gateway"}},
		{Computer, `{"environment_name":"gateway"}`, []string{"environment_name: 'gateway' is a container of every gateway"}},
		{Computer, `{"environment_name":"my desk"}`, []string{"environment_name: 'my desk' can't be the name of an environment behind a gateway"}},
		{MCPServer, `{"environment_name":"a/b","image":"base"}`, []string{"environment_name: 'a/b' can't be the name of an environment behind a gateway"}},
		{MCPServer, `{"environment_name":"a\u0085b","image":"base"}`, []string{`environment_name: 'a\u0085b' can't be the name of an environment`}},
		{MCPServer, `{"environment_name":"my mail","image":{"ref":"h.x/y"},"env_provider_type":"server"}`, nil},
		{Computer, `{"environment_name":"schreibtisch-ü"}`, nil},
		{Computer, `{"skill":"../x"}`, []string{"skill: must be a folder"}},
		{ComputerDriver, `{"module":"../driver.py:Driver"}`, []string{"module: must be a file of the folder and a class"}},
		{ComputerDriver, `{"module":"driver.py"}`, []string{"module: must be"}},
		{ComputerDriver, `{"module":"driver.py:1x"}`, []string{"module: must be"}},
	}
	for _, tt := range tests {
		got := problems(t, tt.typ, tt.src)
		if len(got) != len(tt.want) {
			t.Errorf("%s %s: %q", tt.typ, tt.src, got)
			continue
		}
		for i, want := range tt.want {
			if !strings.HasPrefix(got[i], want) {
				t.Errorf("%s %s\n got %s\nwant %s", tt.typ, tt.src, got[i], want)
			}
		}
	}
}

func TestTypes(t *testing.T) {
	for _, typ := range Types() {
		s, ok := Schema(typ)
		if !ok {
			t.Fatal(typ)
		}
		has := func(key string) bool {
			return slices.ContainsFunc(s.Fields, func(f doc.Field) bool { return f.Name == key })
		}
		for _, i := range Images(typ) {
			if !has(i.Key) || !strings.HasPrefix(i.Suffix, "__") {
				t.Errorf("%s: %+v", typ, i)
			}
		}
		for _, r := range Refs(typ) {
			if !has(r.Key) || !slices.Contains(Types(), r.Type) {
				t.Errorf("%s: %+v", typ, r)
			}
		}
		if _, ok := Infrastructure(typ); ok || !has("type") || !has("id") {
			t.Error(typ)
		}
	}
	for _, typ := range []string{"gateway_server", "service_db"} {
		if key, ok := Infrastructure(typ); !ok || key == "" {
			t.Error(typ)
		}
		if _, ok := Schema(typ); ok {
			t.Errorf("%s has a schema", typ)
		}
	}
	if _, ok := Schema("laptop"); ok {
		t.Error("a schema of an unknown type")
	}
	if got := fmt.Sprint(Containers(Website, "shop"), Containers(MCPServer, "mail")); got != "[shop-website-backend shop-website-frontend] [mail]" {
		t.Error(got)
	}
}

func TestCardNames(t *testing.T) {
	tests := []struct{ src, want string }{
		{"@environment_card(name=\"mail\")\nclass A: pass\n", "mail"},
		{"class X:\n    @sdk.cards.environment_card( description='a, name=\"no\"', name = 'crm' , )\n    class A: pass\n", "crm"},
		{"@environment_card(\n    # name=\"old\",\n    name=\"notes\",  # the name\n)\nclass A: ...\n", "notes"},
		{"@environment_card(name=\"a\")\nclass A: ...\n@environment_card(name='b')\nclass B: ...\n@environment_card(name=\"a\")\nclass C: ...", "a b"},
		{"@environment_card(name=NAME)\nclass A: ...\n", ""},
		{"@environment_card(name=\"a\" + x)\nclass A: ...\n", ""},
		{"@environment_card(name=f\"a\")\nclass A: ...\n", ""},
		{"@environment_card(fullname=\"a\")\n", ""},
		{"@environment_card(x={'k': [1, (2)]}, name=\"deep\")\nclass A: ...\n", "deep"},
		{"@environment_card(x=f(name=\"inner\"))\n", ""},
		{"\"\"\"\n@environment_card(name=\"doc\")\n\"\"\"\nx = '#'\n@environment_card(name=\"real\")\nclass A: ...\n", "real"},
		{"# @environment_card(name=\"comment\")\n", ""},
		{"s = '''it\\'''s'''\n@environment_card(name='q\\'s')\nclass A: ...\n", "q's"},
		{"@environment_cards(name=\"a\")\n@other(name=\"b\")\n", ""},
		{"x = foo(\n@environment_card(name=\"inside\")\n)\n", ""},
		{"@environment_card(name=\"open\"", ""},
		{"@environment_card(name=\"\")\n", ""},
		{"@environment_card(name == \"a\")\n", ""},
		{"@environment_card(name=\"a\")\ndef f(): ...\n", ""},
		{"@environment_card(name=\"a\")\n# it\n\n@other\nclass\tA: ...\n", "a"},
		{"@environment_card(name=\"a\")\nx = 1\nclass A: ...\n", ""},
		{"", ""},
	}
	for _, tt := range tests {
		if got := strings.Join(CardNames(tt.src), " "); got != tt.want {
			t.Errorf("%s\n got %q, want %q", tt.src, got, tt.want)
		}
	}
}

func FuzzCardNames(f *testing.F) {
	for _, s := range []string{"@environment_card(name=\"mail\")\n", "'''", "\\", "@a.environment_card(\n#x\nname='b',)\n", "([{\n@environment_card(name='", "@environment_card(name=\"\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, src string) {
		for _, n := range CardNames(src) {
			if n == "" {
				t.Error("an empty name")
			}
		}
	})
}
