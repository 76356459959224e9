package pack

import (
	"errors"
	"strings"
	"testing"
	"testing/fstest"

	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/plugin/git"
)

func parse(t *testing.T, src string) (*Manifest, diag.List) {
	t.Helper()
	return Parse(git.BundleFile, []byte(src))
}

func good(t *testing.T, src string) *Manifest {
	t.Helper()
	m, l := parse(t, src)
	if l.HasErrors() {
		t.Fatal(l.Err())
	}
	return m
}

const whole = `
id: project-manager-archetype
name: Project Manager
description: Board and browser.
verified_against: 1.0
plugins:
  - { id: delegates, builtin: true }
  - { id: project_board, url: https://example.org/o/projectBoard-plugin, ref: v0.1.0 }
  - { id: agent_browser, url: "git@example.org:o/agent-browser-plugin.git", ref: 1.0 }
enabled: [delegates, project_board, agent_browser]
config:
  agent_browser: { panel_mode: full }
mcp:
  - template: { name: hub, transport: http, url: "https://hub.example/${area}" }
    inputs: [{ key: area, env: HUB_AREA, default: all, required: true, secret: true, label: Area }]
  - { name: plain, transport: stdio, command: tool, args: [serve] }
secrets: [{ key: token, label: Token, placeholder: "sk-…", required: true }]
config_inputs:
  - { key: project_board.coder, label: Coder, type: delegate, required: true }
  - { key: project_board.repo.path, label: Repository, type: path, project: true, help: its folder }
  - { key: agent_browser.headless, label: Hidden, type: boolean, default: yes }
archetype: { label: PM, icon: Boxes, blurb: b, soul: "# You", tier: advanced, requires: [python_runtime], requires_tools: [open_page] }
`

func TestWholeManifest(t *testing.T) {
	m := good(t, whole)
	if m.ID != "project-manager-archetype" || m.Name != "Project Manager" || m.VerifiedAgainst != "1.0" || len(m.Members) != 3 || len(m.On()) != 3 {
		t.Errorf("%+v", m)
	}
	if b := m.Member("agent_browser"); b.Ref != "1.0" || b.Source.Host != "example.org" || b.Source.Scheme != git.SSH || b.Pos.Line != 9 {
		t.Errorf("%+v", b)
	}
	if !m.Members[0].Builtin || m.Member("ghost") != nil {
		t.Errorf("%+v", m.Members)
	}
	if s := m.Servers; len(s) != 2 || s[0].Inputs[0].Env != "HUB_AREA" || !s[0].Inputs[0].Secret || s[1].Transport != Stdio || strings.Join(placeholders(s[0].Template), "") != "area" {
		t.Errorf("%+v", s)
	}
	if len(m.Secrets) != 1 || m.Secrets[0].Placeholder != "sk-…" || !m.Secrets[0].Required {
		t.Errorf("%+v", m.Secrets)
	}
	in := m.Inputs
	if len(in) != 3 || in[0].Section() != "project_board" || strings.Join(in[1].Setting(), ".") != "repo.path" || in[2].Value() != true || in[1].Value() != nil {
		t.Errorf("%+v", in)
	}
	a := m.Archetype
	if a.Soul != "# You" || a.Tier != "advanced" || a.Requires[0] != "python_runtime" || a.RequiresTools[0] != "open_page" {
		t.Errorf("%+v", a)
	}
	if string(doc.JSON(m.Config)) != `{"agent_browser":{"panel_mode":"full"}}` {
		t.Errorf("%s", doc.JSON(m.Config))
	}
}

func TestOn(t *testing.T) {
	m := good(t, "id: d\nplugins: [{id: a, builtin: true}, {id: b, builtin: true}]\n")
	if strings.Join(m.On(), " ") != "a b" {
		t.Errorf("without enabled: %v", m.On())
	}
	if m := good(t, "id: d\nplugins: []\n"); len(m.Members) != 0 || len(m.On()) != 0 { // row 68: zero members are fine
		t.Errorf("%+v", m)
	}
}

// Rows 26, 37, 68, 74, 75, 76, 77 and 97 as far as the manifest goes: each is refused with its line, and what is sound is read even so.
func TestRefused(t *testing.T) {
	head := "id: d\nplugins: []\n"
	for name, c := range map[string]struct{ src, want string }{
		"row 37 no mapping":            {"- a\n", "agentenv.bundle.yaml:1: is no mapping"},
		"row 37 broken":                {"id: [\n", "agentenv.bundle.yaml:"},
		"row 37 no id":                 {"plugins: []\n", "id: is missing"},
		"row 37 no plugins":            {"id: d\n", "plugins: is missing"},
		"row 37 plugins no list":       {"id: d\nplugins: {a: 1}\n", "agentenv.bundle.yaml:2: plugins: is a table and no list"},
		"row 68 no url":                {"id: d\nplugins: [{id: a}]\n", "plugins[0].url: is missing"},
		"row 68 no mapping":            {"id: d\nplugins: [a]\n", "plugins[0]: is a string and no mapping"},
		"row 74 other source":          {"id: d\nplugins:\n- {id: a, url: \"https://x.org/a\"}\n- {id: a, url: \"https://y.org/a\"}\n", "agentenv.bundle.yaml:4: plugins[1]: 'a' is there already, from another source (line 3)"},
		"row 74 other ref":             {"id: d\nplugins:\n- {id: a, url: \"https://x.org/a\"}\n- {id: a, url: \"https://x.org/a\", ref: v1}\n", "at another ref"},
		"row 75 path":                  {"id: ../x\nplugins: []\n", "id: the id '../x'"},
		"row 75 core":                  {"id: Model\nplugins: []\n", "'Model' is a section of the program's own"},
		"row 75 number":                {"id: 5\nplugins: []\n", "id: is an integer and no string"},
		"row 75 empty":                 {"id: ''\nplugins: []\n", "id: the id is empty"},
		"row 76 plugins":               {head + "config: {plugins: {trust_unverified: true}}\n", "config.plugins: is a section of the program's own"},
		"row 76 auth":                  {head + "config: {auth: {open: true}}\n", "config.auth: is a section"},
		"row 76 mcp":                   {head + "config: {mcp: {servers: []}}\n", "config.mcp: is a section"},
		"row 76 security":              {head + "config: {Security: {}}\n", "config.Security: is a section"},
		"row 77 model":                 {head + "config_inputs: [{key: model.api_key, label: L}]\n", "config_inputs[0].key: 'model' is a section"},
		"row 77 plugins":               {head + "config_inputs: [{key: plugins.sources.allow, label: L}]\n", "config_inputs[0].key: 'plugins' is a section"},
		"row 77 projects":              {head + "config_inputs: [{key: projects.x, label: L}]\n", "config_inputs[0].key: 'projects' is a section"},
		"row 77 single":                {head + "config_inputs: [{key: board, label: L}]\n", "is no key of a setting"},
		"row 77 empty part":            {head + "config_inputs: [{key: board..x, label: L}]\n", "is no key of a setting"},
		"row 77 newline":               {head + "config_inputs: [{key: \"board.x\\n\", label: L}]\n", "is no key of a setting"},
		"row 26 ref list":              {"id: d\nplugins: [{id: a, url: \"https://x.org/a\", ref: [v1]}]\n", "plugins[0].ref: is a list and names no branch"},
		"row 26 ref null":              {"id: d\nplugins: [{id: a, url: \"https://x.org/a\", ref: null}]\n", "plugins[0].ref: is null and names no branch"},
		"row 25 ref":                   {"id: d\nplugins: [{id: a, url: \"https://x.org/a\", ref: -x}]\n", "plugins[0].ref: '-x' is no ref"},
		"member's option":              {"id: d\nplugins: [{id: a, url: --upload-pack=x}]\n", "plugins[0].url: '--upload-pack=x' is no source of plugins"},
		"member's id":                  {"id: d\nplugins: [{id: ../a, url: \"https://x.org/a\"}]\n", "plugins[0].id: \"../a\" is no id"},
		"label":                        {head + "config_inputs: [{key: a.b, label: ' '}]\n", "config_inputs[0].label: is missing"},
		"type":                         {head + "config_inputs: [{key: a.b, label: L, type: number}]\n", "'number' is no type of an input"},
		"boolean default":              {head + "config_inputs: [{key: a.b, label: L, type: boolean, default: maybe}]\n", "is no boolean"},
		"inside of another":            {head + "config_inputs: [{key: a.b, label: L}, {key: a.b.c, label: L}]\n", "is inside of another"},
		"project of a string":          {head + "config_inputs: [{key: a.b, label: L, project: true}]\n", "is of paths alone"},
		"server without a url":         {head + "mcp: [{name: a, transport: http}]\n", "mcp[0].url: is missing"},
		"server without a command":     {head + "mcp: [{name: a}]\n", "mcp[0].command: is missing"},
		"server twice":                 {head + "mcp: [{name: a, command: c}, {name: a, command: c}]\n", "'a' is there twice"},
		"transport":                    {head + "mcp: [{name: a, transport: pigeon, url: u}]\n", "'pigeon' is no transport"},
		"placeholder without input":    {head + "mcp: [{name: a, command: '${x}'}]\n", "${x} has no input"},
		"secret's key":                 {head + "secrets: [{key: 'a.b'}]\n", "secrets[0].key: 'a.b' is no key"},
		"secret twice":                 {head + "secrets: [{key: a}, {key: a}]\n", "'a' is there twice"},
		"enabled":                      {head + "enabled: [../x]\n", "enabled[0]: \"../x\" is no id"},
		"one fault doesn't hide other": {"id: ../x\nplugins: [a]\nenabled: [5]\n", "enabled[0]: 5 is no id"},
	} {
		t.Run(name, func(t *testing.T) {
			_, l := parse(t, c.src)
			if !l.HasErrors() || !strings.Contains(l.Err().Error(), c.want) {
				t.Errorf("%v\nwant %s", l, c.want)
			}
		})
	}
}

// Row 74: a member that is there twice, from one source, is one member. Row 26: what looks like a number is the text that was written.
func TestRows26And74(t *testing.T) {
	m := good(t, "id: d\nplugins:\n- {id: a, url: \"https://X.org/a.git\", ref: 0123456}\n- {id: a, url: \"https://x.org/a\", ref: 0123456}\n- {id: b, url: \"https://x.org/b\", ref: 1234567}\n")
	if len(m.Members) != 2 || m.Members[0].Ref != "0123456" || m.Members[1].Ref != "1234567" {
		t.Errorf("%+v", m.Members)
	}
}

// Row 88: unknown keys of archetype warn, known ones don't; a soul outside of those that are shipped is not read.
func TestRow88(t *testing.T) {
	m, l := parse(t, "id: d\nplugins: []\narchetype: {label: L, icon: I, blurb: B, soul_preset: ../x, tier: standard, requires: [], requires_tools: [], colour: red}\n")
	var got []string
	for _, p := range l.Of(diag.Warning) {
		got = append(got, p.Where)
	}
	if l.HasErrors() || strings.Join(got, " ") != "archetype.colour archetype.soul_preset" || m.Archetype.SoulPreset != "" {
		t.Errorf("%v, %+v", l, m.Archetype)
	}
}

func TestInputRead(t *testing.T) {
	for _, c := range []struct {
		in   Input
		text string
		want any
		bad  bool
	}{
		{Input{Type: Boolean}, " YES ", true, false},
		{Input{Type: Boolean}, "off", false, false},
		{Input{Type: Boolean}, "maybe", nil, true},
		{Input{Type: String}, "  x ", "x", false},
		{Input{Type: String}, "   ", nil, false},
		{Input{Type: Path}, "rel/ative", "rel/ative", false},
		{Input{Type: Path, Project: true}, "rel/ative", nil, true},
		{Input{Type: Path, Project: true}, "/abs", "/abs", false},
	} {
		if got, err := c.in.Read(c.text); got != c.want || (err != nil) != c.bad {
			t.Errorf("%+v reads %q as %v, %v", c.in, c.text, got, err)
		}
	}
}

func TestRead(t *testing.T) {
	for name, want := range map[string]bool{git.BundleFile: true, git.PeerBundleFile: true, "README.md": false} {
		m, _, err := Read(fstest.MapFS{name: {Data: []byte("id: d\nplugins: []\n")}})
		if (m != nil) != want || errors.Is(err, ErrNone) == want {
			t.Errorf("%s: %v, %v", name, m, err)
		}
	}
	if _, _, err := Read(fstest.MapFS{git.BundleFile: {Data: make([]byte, MaxManifest+1)}}); err == nil {
		t.Error("a manifest of any length is read")
	}
}

func TestFill(t *testing.T) {
	if got := Fill("a${x}b${y}${x}$z", map[string]string{"x": "${y}", "y": ""}); got != "a${y}b${y}$z" {
		t.Errorf("%q", got) // what is filled in is not filled in again
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("id: d\nplugins: [{id: a, url: \"https://x.org/a\", ref: 1e9}]\nmcp: [{name: a, command: '${}'}]\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		m, l := Parse(git.BundleFile, src)
		if m == nil {
			if !l.HasErrors() {
				t.Error("there is no manifest, and nothing is wrong")
			}
			return
		}
		for _, x := range m.Members {
			if git.CheckID(x.ID) != nil || git.CheckRef(x.Ref) != nil || !x.Builtin && x.Source.Path == "" {
				t.Errorf("member %+v", x)
			}
		}
		for _, in := range m.Inputs {
			if in.Section() == "" || len(in.Setting()) == 0 {
				t.Errorf("input %+v", in)
			}
		}
		if l.HasErrors() {
			return
		}
		if git.CheckID(m.ID) != nil {
			t.Errorf("id %q", m.ID)
		}
	})
}
