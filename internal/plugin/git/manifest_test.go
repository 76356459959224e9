package git

import (
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func tree(files ...string) fstest.MapFS {
	out := fstest.MapFS{}
	for i := 0; i < len(files); i += 2 {
		out[files[i]] = &fstest.MapFile{Data: []byte(files[i+1])}
	}
	return out
}

// Row 1.
func TestManifestDefaults(t *testing.T) {
	t.Parallel()
	for _, name := range []string{PluginFile, PeerPluginFile} {
		m, l := ReadManifest(tree(name, "id: a_b\nname: A B\n"))
		if m == nil || len(l) > 0 {
			t.Fatalf("%s: %v", name, l)
		}
		if m.ID != "a_b" || m.Version != "0.0.0" || m.ConfigSection != "a_b" || m.Enabled || m.Builtin || m.Test || len(m.Requires) > 0 || m.Config.Exists() {
			t.Errorf("%s: %+v", name, m)
		}
	}
}

// Rows 2 to 4.
func TestManifestRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ src, want string }{
		"no id":        {"name: x", "agentenv.plugin.yaml:1: id: is missing"},
		"no name":      {"id: x", "agentenv.plugin.yaml:1: name: is missing"},
		"a list":       {"- a", "is no mapping"},
		"empty":        {"", "is no mapping"},
		"broken":       {"a: [", "agentenv.plugin.yaml:1"},
		"id ../x":      {"id: ../x\nname: x", "agentenv.plugin.yaml:1: id: the id '../x' has other characters"},
		"id .x":        {"id: .x\nname: x", "other characters"},
		"id a b":       {"id: a b\nname: x", "other characters"},
		"id empty":     {"id: ''\nname: x", "id: is empty"},
		"id long":      {"id: " + strings.Repeat("a", 300) + "\nname: x", "more than 100"},
		"id newline":   {"id: \"x\\n\"\nname: x", "other characters"},
		"id number":    {"id: 5\nname: x", "is an integer and no string"},
		"wrong type":   {"id: x\nname: x\n\nrequires_env: A", "agentenv.plugin.yaml:4: requires_env: is a string and no list"},
		"bundles out":  {"id: x\nname: x\nbundles: [../b]", "leads out of the plugin"},
		"id install":   {"id: install\nname: x", "is reserved"},
		"id Sync":      {"id: Sync\nname: x", "is reserved"},
		"id ENABLED":   {"id: ENABLED\nname: x", "is reserved"},
		"id bundles":   {"id: bundles\nname: x\npublic_paths: [/api/plugins/bundles/]", "is reserved"},
		"id host":      {"id: host\nname: x", "is reserved"},
		"twice":        {"id: x\nid: y\nname: x", "agentenv.plugin.yaml:2"},
		"all at once":  {"enabled: maybe\n", "enabled: is a string and no boolean"},
		"all at once2": {"enabled: maybe\n", "id: is missing"},
	} {
		m, l := ReadManifest(tree(PluginFile, c.src))
		if m != nil || l.Err() == nil {
			t.Errorf("%s: taken", name)
		} else if !strings.Contains(l.Err().Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, l.Err(), c.want)
		}
	}
	if m, l := ReadManifest(tree(PeerPluginFile, "id: x\nname: x\nrequires_env: A\nunknown: 1\n")); m == nil || len(m.RequiresEnv) > 0 || len(l) != 1 {
		t.Errorf("the peer's spelling: %+v, %v", m, l)
	}
}

// Rows 6, 8, 9, 14, and the other fields.
func TestManifestFields(t *testing.T) {
	t.Parallel()
	m, l := ReadManifest(tree(PeerPluginFile, `
id: me
name: Me
version: 1.0
config_section: model
config: {k: 1}
secrets: [k]
settings: [{key: k, label: K, type: string, required: true}, {label: none}]
settings_tabs: [{id: t, path: /plugins/other/x}, {id: u, path: /plugins/me/u}]
views: [{id: v, label: V, path: "/plugins/me/v?x=1"}, {id: w}, {id: far, path: "https://e.example/x"}]
public_paths: [/api/config, /plugins/other/, /plugins/x, /plugins/me/../x, "/plugins/me/%2e%2e/x", /plugins/me/open, /api/plugins/me/]
emits: [plain, {topic: a, schema: {type: object}}, {topic: b, schema: {$ref: ../../secret}}, {topic: c, schema: s.json}, {summary: none}]
requires_pip: [one>=1, {pkg: two, optional: true}, {pkg: three, scope: host}, {pkg: four, scope: odd}, {}]
min_protoagent_version: 0.140.0
supersedes: ["https://github.com/o/r.git", "nope"]
`, "s.json", `{"type":"string"}`, "skills/s1/SKILL.md", "x", "skills/none/README.md", "x", "workflows/w.yaml", "x", "__init__.py", "x"))
	if m == nil {
		t.Fatal(l.Err())
	}
	if m.Version != "1.0" || m.ConfigSection != "me" || m.MinVersion != "0.140.0" || len(m.Settings) != 1 || !m.Settings[0].Required {
		t.Errorf("%+v", m)
	}
	if len(m.Tabs) != 1 || m.Tabs[0].ID != "u" || len(m.Views) != 2 {
		t.Errorf("tabs %+v, views %+v", m.Tabs, m.Views)
	}
	if got := strings.Join(m.PublicPaths, " "); got != "/plugins/me/open /api/plugins/me/ /plugins/me/v" {
		t.Errorf("public paths: %s", got)
	}
	if len(m.Emits) != 4 || m.Emits[2].Topic != "b" || m.Emits[2].Schema.Exists() || !m.Emits[3].Schema.Exists() {
		t.Errorf("emits %+v", m.Emits)
	}
	hard := slices.DeleteFunc(slices.Clone(m.Requires), func(p Package) bool { return p.Optional })
	if len(m.Requires) != 4 || len(hard) != 3 || m.Requires[2].Scope != "host" || m.Requires[3].Scope != "runtime" {
		t.Errorf("packages %+v", m.Requires)
	}
	if len(m.Supersedes) != 1 || m.Supersedes[0].Key() != "github.com/o/r" {
		t.Errorf("supersedes %v", m.Supersedes)
	}
	if strings.Join(m.Skills, " ") != "s1" || strings.Join(m.Workflows, " ") != "w.yaml" || strings.Join(m.Python, " ") != "__init__.py" {
		t.Errorf("found %v %v %v", m.Skills, m.Workflows, m.Python)
	}
	if n := len(l); n < 12 || l.HasErrors() {
		t.Errorf("%d warnings: %v", n, l)
	}
}

// Row 36.
func TestDetect(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files []string
		kind  Kind
		want  string
	}{
		"plugin":         {[]string{PluginFile, ""}, Plugin, PluginFile},
		"peer's":         {[]string{PeerPluginFile, ""}, Plugin, PeerPluginFile},
		"both spellings": {[]string{PluginFile, "", PeerPluginFile, ""}, Plugin, PluginFile},
		"bundle":         {[]string{PeerBundleFile, ""}, Bundle, PeerBundleFile},
		"none":           {[]string{"x", ""}, 0, "neither agentenv.plugin.yaml nor agentenv.bundle.yaml"},
		"both":           {[]string{PeerPluginFile, "", PeerBundleFile, ""}, 0, "ambiguous"},
	} {
		kind, file, err := Detect(tree(c.files...))
		if kind != c.kind || err == nil && file != c.want || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v %s %v", name, kind, file, err)
		}
	}
}

func FuzzReadManifest(f *testing.F) {
	f.Add("id: a\nname: b\nviews: [{id: x, path: /plugins/a/}]\nemits: [{topic: x, schema: y}]\n", true)
	f.Add("id: [\n", false)
	f.Fuzz(func(t *testing.T, src string, peer bool) {
		name := PluginFile
		if peer {
			name = PeerPluginFile
		}
		m, l := ReadManifest(tree(name, src))
		if (m == nil) != l.HasErrors() {
			t.Fatalf("manifest %v with problems %v", m, l)
		}
		if m != nil && CheckID(m.ID) != nil {
			t.Fatalf("id %q", m.ID)
		}
	})
}
