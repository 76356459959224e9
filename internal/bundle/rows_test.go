package bundle

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite testdata/rows.txt with what the program says")

// row is one bundle. What the stages say of it stands in testdata/rows.txt under its name: the problems, or what would be written.
// Names such as E10 and U3 are those of the rows that specify environments and universes.
type row struct {
	name  string
	files files
	sel   Selection
}

// TestRows holds what is said of every malformed and every odd bundle.
func TestRows(t *testing.T) {
	want := map[string]string{}
	golden, err := os.ReadFile("testdata/rows.txt")
	if err != nil && !*update {
		t.Fatal(err)
	}
	for part := range strings.SplitSeq(string(golden), "== ") {
		name, text, _ := strings.Cut(part, "\n")
		want[name] = strings.TrimSuffix(text, "\n\n")
	}
	var out bytes.Buffer
	seen := map[string]bool{}
	for _, r := range rows() {
		if seen[r.name] {
			t.Fatalf("two rows are called %s", r.name)
		}
		seen[r.name] = true
		t.Run(r.name, func(t *testing.T) {
			got := answer(t, open(t, r.files), stored(), r.sel)
			out.WriteString("== " + r.name + "\n" + got + "\n\n")
			if !*update && got != want[r.name] {
				t.Errorf("got\n%s\nwant\n%s", got, want[r.name])
			}
		})
	}
	if *update {
		if err := os.WriteFile("testdata/rows.txt", out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func stored() View {
	return fakeView{
		"artifact @local/x/stored": {Version: 1, Type: "file_artifact_universe"},
		"artifact @local/x/file":   {Version: 2, Type: "file"},
		"artifact @local/x/env":    {Version: 1, Type: "environment", Body: []byte(`{"environment_name":"mail"}`)},
		"task @local/x/stored":     {Version: 1, Type: "task"},
		"env @local/x/env":         {Version: 1, Type: "mcp_server", Body: []byte(`{"service_name":"crm"}`)},
		"env @local/~/b/changed":   {Version: 1, Type: "website"},
	}
}

func rows() []row {
	base := files{"tasks/t.json": load("f"), "artifacts/f/x": "1"}
	two := base.with(files{"tasks/u.json": load("g"), "artifacts/g/x": "1", "evals/e.toml": "tasks = ['t']"})
	env := func(toml string, more files) files {
		return files{"tasks/t.json": load("x"), "artifacts/x/artifact.toml": "type = \"environment\"\n" + toml, "artifacts/f/x": "1", "artifacts/u/a": "1", "artifacts/u/b": "1"}.with(more)
	}
	uni := func(toml string, more files) files {
		return files{"tasks/t.json": load("w"), "artifacts/w/artifact.toml": "type = \"environment_universe\"\n" + toml, "artifacts/f/x": "1", "artifacts/e/artifact.toml": "type='environment'\nenvironment_name='crm'\nfile='f'"}.with(more)
	}
	return []row{
		{"empty", files{}, Selection{}},
		{"readme only", files{"README.md": "x"}, Selection{}},
		{"kind is a file", base.with(files{"envs": "x"}), Selection{}},
		{"bundle.toml folder", base.with(files{"bundle.toml/x": "x"}), Selection{}},
		{"Bundle.TOML", base.with(files{"Bundle.TOML": "x"}), Selection{}},
		{"bundle.toml bad", base.with(files{"bundle.toml": "requires = 3\nname = 'x'\n"}), Selection{}},
		{"bundle.toml elems", base.with(files{"bundle.toml": "requires = ['a>=1', 3, '']\n"}), Selection{}},
		{"bundle.toml good", base.with(files{"bundle.toml": "requires = ['a>=1']\n"}), Selection{}},
		{"Tasks alone", files{"Tasks/t.json": "[]"}, Selection{}},
		{"Tasks and tasks", base.with(files{"Tasks/t.json": "[]"}), Selection{}},
		{"ignored", base.with(files{"images/x": "1", "docs/x": "1", ".git/x": "1", "tasks/..json": "x", "tasks/notes.txt": "1", "artifacts/loose": "1", "__pycache__/x": "1", "tasks/.x/y": "1"}), Selection{}},
		{"nothing to run", files{"artifacts/f/x": "1"}, Selection{}},
		{"task object", files{"tasks/t.json": "{}"}, Selection{}},
		{"task numbers", files{"tasks/t.json": "[1]"}, Selection{}},
		{"task empty list", files{"tasks/t.json": "[]"}, Selection{}},
		{"task bad json", files{"tasks/t.json": "[\n\n"}, Selection{}},
		{"task dup key", files{"tasks/t.json": `[{"id":"x","id":"y"}]`}, Selection{}},
		{"task nan", files{"tasks/t.json": `[{"id":NaN}]`}, Selection{}},
		{"task folder", base.with(files{"tasks/u/task.json": "[]"}), Selection{}},
		{"task suffix case", base.with(files{"tasks/t.JSON": "[]"}), Selection{}},
		{"task names case", base.with(files{"tasks/T.json": load("f")}), Selection{}},
		{"task bad names", base.with(files{"tasks/a:b.json": "[]", "tasks/ a.json": "[]"}), Selection{}},
		{"unknown type", files{"tasks/t.json": `[{"id":"x","type":"zz"},{"id":"y"},` + boxStep + `]`}, Selection{}},
		{"missing field", files{"tasks/t.json": `[{"id":"x","type":"load_artifact"},{"type":"deploy_sandbox"}]`}, Selection{}},
		{"dups and deps", files{"tasks/t.json": `[` + boxStep + `,` + boxStep + `,{"id":"a","type":"teardown_sandboxes","sandbox_names":["box"],"fail_task_on_error":false,"depends_on":["zz","b"]},{"id":"b","type":"teardown_sandboxes","sandbox_names":["box"],"fail_task_on_error":false,"depends_on":"box"}]`}, Selection{}},
		{"ref missing", files{"tasks/t.json": load("nope"), "envs/nope/Dockerfile": "x"}, Selection{}},
		{"ref case loose own", files{"tasks/t.json": load("F", "loose", "@local/~/b/gone", "@local/../x", "@other/x"), "artifacts/f/x": "1", "artifacts/loose": "1"}, Selection{}},
		{"ref table and empty", base.with(files{"tasks/t.json": `[` + boxStep + `,{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":{"artifact":"f"}},{"id":"m","type":"load_artifact","sandbox_name":"box","artifact_id":""}]`}), Selection{}},
		{"pin own", base.with(files{"tasks/t.json": `[` + boxStep + `,{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"f","artifact_version":1}]`}), Selection{}},
		{"artifacts strings", base.with(files{"tasks/t.json": `[` + boxStep + `,{"id":"l","type":"load_artifact","sandbox_name":"box","artifacts":["f"]}]`}), Selection{}},
		{"artifacts and artifact_id", base.with(files{"tasks/t.json": `[` + boxStep + `,{"id":"l","type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"f"}],"artifact_id":"f"}]`}), Selection{}},
		{"load nothing", files{"tasks/t.json": `[` + boxStep + `,{"id":"l","type":"load_artifact","sandbox_name":"box"}]`}, Selection{}},
		{"evals", base.with(files{"evals/a.toml": "", "evals/b.toml": "tasks = []\nfoo = 1\nbar = 2", "evals/c.toml": "tasks = 'x'", "evals/d.toml": "tasks = [3, { task = 't', x = 1 }]\ntype = 'foo'", "evals/e.toml": "tasks = ["}), Selection{}},
		{"evals refs", base.with(files{"evals/a.toml": "tasks = ['t', '@local/~/b/t', { task = 't', version = 1 }, 'nope', 'T']\nid = 'bare'"}), Selection{}},
		{"evals refs2", base.with(files{"evals/a.toml": "tasks = ['t', '@local/~/b/t', { task = 't', version = 1 }, 'T']"}), Selection{}},
		{"evals refs3", base.with(files{"evals/a.toml": "tasks = ['nope', '@local/x/stored']"}), Selection{}},
		{"artifact empty", base.with(files{"artifacts/a/": "", "artifacts/b/artifact.toml": "", "artifacts/c/.DS_Store": "x", "artifacts/d/artifact.toml": "type = 'file'"}), Selection{}},
		{"artifact empty sub", files{"tasks/t.json": load("f"), "artifacts/f/sub/": ""}, Selection{}},
		{"artifact names", base.with(files{"artifacts/a__b/x": "1", "artifacts/c/x": "1", "artifacts/c/artifact.toml": "id = '@local/x/y__z'", "artifacts/d/x": "1", "artifacts/d/artifact.toml": "id = 'bare'", "artifacts/e/x": "1", "artifacts/e/artifact.toml": "id = '@local/a/../b'", "artifacts/g/x": "1", "artifacts/g/artifact.toml": "id = '@local/a:b'", "artifacts/h/x": "1", "artifacts/h/artifact.toml": "id = 3", "artifacts/i/x": "1", "artifacts/i/artifact.toml": "id = '@local/e\u0301'"}), Selection{}},
		{"same ids", base.with(files{"artifacts/a/x": "1", "artifacts/a/artifact.toml": "id = '@local/~/b/f'", "artifacts/s/x": "1", "skills/s/SKILL.md": "x"}), Selection{}},
		{"types", base.with(files{"artifacts/a/x": "1", "artifacts/a/artifact.toml": "type = 5", "artifacts/b/x": "1", "artifacts/b/artifact.toml": "type = ''"}), Selection{}},
		{"type unknown and named", base.with(files{"artifacts/a/x": "1", "artifacts/a/artifact.toml": "type = \"environ\\u2028ment\"", "artifacts/w/artifact.toml": "type='environment_universe'\nenvironment_artifacts=['a']"}), Selection{}},
		{"type unknown", base.with(files{"artifacts/a/x": "1", "artifacts/a/artifact.toml": "type = 'zip'"}), Selection{}},
		{"file faults", files{"tasks/t.json": load("f"), "artifacts/f/x": "1", "artifacts/f/y": "1", "artifacts/f/artifact.toml": "type = 'file'\nfoo = 1\nbar = 2\ndescription = 3"}, Selection{}},
		{"universe description", files{"tasks/t.json": load("f"), "artifacts/f/x": "1", "artifacts/f/y": "1", "artifacts/f/artifact.toml": "description = 'x'"}, Selection{}},
		{"file and dockerfile", files{"tasks/t.json": load("f"), "artifacts/f/dockerfile": "1", "artifacts/f/artifact.toml": "type = 'file'"}, Selection{}},
		{"dockerfile case", files{"tasks/t.json": load("f"), "artifacts/f/dockerfile": "1"}, Selection{}},
		{"tomls", base.with(files{"artifacts/a/Artifact.toml": "", "artifacts/b/artifact.toml/x": "", "artifacts/c/artifact.toml": "type", "artifacts/d/artifact.toml": "fifo"}), Selection{}},
		{"files in two cases", base.with(files{"tasks/t.JSON": "[]", "artifacts/f/artifact.toml": "", "artifacts/f/Artifact.toml": "", "artifacts/g/Dockerfile": "x", "artifacts/g/dockerfile": "x", "skills/s/SKILL.md": "x", "skills/s/skill.md": "x", "envs/k/Dockerfile": "x", "envs/k/DOCKERFILE": "x", "skills/F/SKILL.md": "x"}), Selection{}},
		{"dockerfile beside a toml", base.with(files{"envs/k/dockerfile": "x", "envs/k/env.toml": "environment_name='q'", "envs/m/dockerfile": "x", "envs/m/d": "x", "envs/m/env.toml": "environment_name='q'\nimage={dockerfile='d'}"}), Selection{}},
		{"unusable and unreached", base.with(files{"artifacts/g/pipe": "fifo", "artifacts/g/sub/gone": "-> nowhere", "artifacts/g/out": "-> /etc/passwd", "artifacts/h/out": "-> /etc/passwd", "artifacts/h/sub/gone": "-> nowhere", "skills/s/SKILL.md": "x", "skills/s/self": "-> self"}), Selection{}},
		{"types and nothing else", base.with(files{"artifacts/g/artifact.toml": "type='file'", "artifacts/h/artifact.toml": "type='cli'"}), Selection{}},
		{"bad name and an id of its own", base.with(files{"artifacts/a:b/x": "1", "artifacts/a:b/artifact.toml": "id='@local/x/ab'"}), Selection{}},
		{"skill in artifacts in another case", base.with(files{"artifacts/a/skill.md": "x", "artifacts/b/Skill.MD": "x", "artifacts/b/artifact.toml": "type='file'"}), Selection{}},
		{"skill in artifacts", base.with(files{"artifacts/a/SKILL.md": "x", "artifacts/b/x": "1", "artifacts/b/artifact.toml": "type = 'skill'"}), Selection{}},
		{"links", base.with(files{"tasks/t.json": load("f", "g"), "artifacts/f/out": "-> ../../../x", "artifacts/f/abs": "-> /etc/passwd", "artifacts/f/broken": "-> nowhere", "artifacts/f/back": "-> ..", "artifacts/f/self": "-> self", "artifacts/f/pipe": "fifo", "artifacts/g/x": "1", "artifacts/g/y": "-> ../f/x", "artifacts/g/z": "-> $B/artifacts/f/x"}), Selection{}},
		{"links inside", base.with(files{"tasks/t.json": load("f", "g"), "artifacts/g/x": "1", "artifacts/g/y": "-> ../f/x", "artifacts/g/z": "-> $B/artifacts/f/x", "artifacts/g/d": "-> ../f", "evals": "-> tasks"}), Selection{}},
		{"images", base.with(files{"artifacts/i1/artifact.toml": "type='docker_image'", "artifacts/i2/artifact.toml": "type='docker_image'\nref='ghcr.io/x'", "artifacts/i2/Dockerfile": "x", "artifacts/i3/artifact.toml": "type='docker_image'\nref='x'", "artifacts/i4/artifact.toml": "type='docker_image'\nimage='x'", "artifacts/i4/Dockerfile": "x", "artifacts/i5/Dockerfile/x": "1"}), Selection{}},
		{"registries", files{
			"tasks/t.json": resets("a", "w"), "envs/a/env.toml": "environment_name='a'\nimage={ref='ghcr.io/x/y:1'}", "agents/c/agent.toml": "image={ref='localhost/c'}",
			"envs/w/env.toml":           "type='website'\nenvironment_name='w'\nbackend_image='i'\nfrontend_image={ref='h:5000/x@sha256:" + strings.Repeat("0f", 32) + "'}",
			"artifacts/i/artifact.toml": "type='docker_image'\nref='[::1]:5000/i'",
		}, Selection{All: true}},
		{"registry beside a process", files{"tasks/t.json": resets("a"), "envs/a/env.toml": "environment_name='a'\nimage={ref='ghcr.io/x/y:1'}", "envs/a/process.toml": "command = 3"}, Selection{}},
		{"registries that are none", base.with(files{
			"envs/a/env.toml": "environment_name='a'\nimage={ref='oci:/etc'}", "envs/b/env.toml": "environment_name='b'\nimage={ref='./x/y'}",
			"envs/c/env.toml": "environment_name='c'\nimage={ref='me:secret@h.x/y'}", "envs/d/env.toml": "environment_name='d'\nimage={ref='h.x/UPPER'}",
			"envs/e/env.toml": "environment_name='e'\nimage={ref='h.x/y@sha256:12'}", "envs/f/env.toml": "environment_name='f'\nimage={ref='docker-daemon:x/y'}",
			"envs/g/env.toml": "environment_name='g'\nimage={ref='h.x/y:1:2'}", "envs/h/env.toml": "environment_name='h'\nimage={ref='docker://h.x/y'}",
			"envs/i/env.toml": "environment_name='i'\nimage={ref='-h.x/y'}", "envs/j/env.toml": "image={ref='h.x/y'}",
		}), Selection{}},
		{"registries without a name", files{"tasks/t.json": resets("a"), "envs/a/env.toml": "image={ref='h.x/y'}", "envs/a/a.py": "@environment_card(name='q')\nclass A: pass\n"}, Selection{}},
		{"skills", files{"tasks/t.json": load("a", "b", "c", "d", "e", "f", "g"), "skills/a/SKILL.md": "hi", "skills/b/SKILL.md": "---\nname: b\n", "skills/c/SKILL.md": "---\nname: [\n---\n", "skills/d/SKILL.md": "---\nname: other\ndescription: x\n---\n", "skills/e/SKILL.md": "---\nname: E\n---\n", "skills/f/SKILL.md": "---\nname: f\ndescription: ''\nmetadata:\n  a: 3\n---\n", "skills/g/SKILL.md": "---\nname: g\ndescription: ok\nextra: 1\nlicense: MIT\n---\nx"}, Selection{}},
		{"skills markers", base.with(files{"skills/a/x": "1", "skills/b/skill.md": "x", "skills/c/SKILL.md/x": "1", "skills/d__e/SKILL.md": "x"}), Selection{}},
		{"unused faults", base.with(files{"skills/a/SKILL.md": "bad", "artifacts/g/x": "1", "artifacts/g/artifact.toml": "foo = 1"}), Selection{}},
		{"cli", files{"tasks/t.json": load("c", "d"), "artifacts/c/artifact.toml": "type='cli'", "artifacts/c/x": "1", "artifacts/d/artifact.toml": "type='cli'\ncommand_name='-x'\nentrypoint='y'", "artifacts/d/x": "1", "artifacts/d/.env": "1"}, Selection{}},
		{"agents", files{"tasks/t.json": `[` + boxStep + `,{"id":"v","type":"verify_a2a_agent_card","a2a_agent_id":"a"}]`, "agents/a/Dockerfile": "x", "agents/a/agent.toml": "foo=1\n[default_env_vars]\nA=1\n[metadata]\nbar=1\nmin_disk_size_gb=true\ndefault_model=3"}, Selection{}},
		{"agents2", base.with(files{"agents/a/": "", "agents/b/x": "1"}), Selection{}},
		{"agents3", base.with(files{"agents/a/agent.toml": "", "agents/b/agent.toml": "type='zz'"}), Selection{}},
		{"envs resolve", base.with(files{"envs/b/env.toml": "environment_name='x'", "envs/d/env.toml": "type='website'", "envs/f/env.toml": "type='gateway_server'", "envs/g/env.toml": "type='zz'", "envs/h/env.toml": "type='mcp_server'\nimage='f'", "envs/i/env.toml": "image={dockerfile='../x'}", "envs/j/env.toml": "image={ref='x:y'}", "envs/k/Dockerfile": "x", "envs/m/env.toml": "type='multi'\nmcp_server_envs=['k',3,'m','d']"}), Selection{}},
		{"envs plan", files{"tasks/t.json": resets("a", "b", "c", "d", "e", "f", "h"), "envs/a/Dockerfile": "x", "envs/b/Dockerfile": "x", "envs/b/env.toml": "environment_name='gateway'", "envs/c/Dockerfile": "x", "envs/c/env.toml": "environment_name=3\nfoo=1\nenv_provider_type='zz'", "envs/d/env.toml": "type='website'\nenv_provider_type='server'\nenvironment_name='w'", "envs/d/Dockerfile.backend": "x", "envs/d/Dockerfile.frontend": "x", "envs/e/env.toml": "type='multi'\nname='a b'", "envs/f/Dockerfile": "x", "envs/f/a.py": "@environment_card(name='q')\nclass A: pass\n", "envs/f/b.py": "@environment_card(name='r')\nclass B: pass\n", "envs/h/env.toml": "type='computer_driver'\nmodule='x.py:A'", "envs/h/x.py": ""}, Selection{}},
		{"envs of Go", files{"tasks/t.json": resets("a"), "envs/a/Dockerfile": "x", "envs/a/main.go": "package main\nimport \"m/sdk/env\"\nvar e = env.New(\"mail\")", "envs/a/main_test.go": "package main\nimport \"m/sdk/env\"\nvar e = env.New(\"other\")"}, Selection{}},
		{"envs processes", files{"tasks/t.json": resets("a", "b", "c", "w"), "envs/a/Dockerfile": "x", "envs/a/env.toml": "environment_name='a'", "envs/a/process.toml": "command = ['x']\npython = 'r.txt'", "envs/b/Dockerfile": "x", "envs/b/env.toml": "environment_name='b'", "envs/b/process.toml": "comand = ['x']\nport = 0\n[env]\nMCP_PORT = '1'", "envs/c/Dockerfile": "x", "envs/c/env.toml": "environment_name='c'", "envs/c/process.toml": "command = ", "envs/w/env.toml": "type='website'\nenvironment_name='w'", "envs/w/Dockerfile.backend": "x", "envs/w/Dockerfile.frontend": "x", "envs/w/process.backend.toml": "command = ['x']", "envs/w/process.frontend.toml": "command = 3", "envs/w/process.toml": "is nothing here"}, Selection{}},
		{"envs containers", files{"tasks/t.json": resets("e"), "envs/a/Dockerfile": "x", "envs/a/env.toml": "environment_name='q'", "envs/b/Dockerfile": "x", "envs/b/env.toml": "environment_name='q'", "envs/e/env.toml": "type='multi'\nmcp_server_envs=['a','b']"}, Selection{}},
		{"aliases", base.with(files{"envs/k/Dockerfile": "x", "envs/m/Dockerfile": "x", "envs/m/env.toml": "id='@local/m'", "aliases.toml": "[foo]\nx=[]\n[envs]\nnope=['x']\nk=['A','ok','ok','m',3]\nm=['y']\n[agents]\nz='x'"}), Selection{}},
		{"aliases odd", base.with(files{"envs/k/Dockerfile": "x", "envs/m/Dockerfile": "x", "aliases.toml": "[envs]\nk=['k']\nm=[]"}), Selection{}},
		{"aliases toml", base.with(files{"aliases.toml": "[["}), Selection{}},
		{"aliases folder", base.with(files{"aliases.toml/x": "1"}), Selection{}},
		{"Aliases", base.with(files{"Aliases.toml": ""}), Selection{}},
		{"several", base.with(files{"tasks/a:b.json": "[]", "tasks/u.json": "{}", "evals/e.toml": "", "skills/s/x": "1", "bundle.toml/x": "1", "artifacts/j/Artifact.toml": ""}), Selection{}},
		{"outputs", base.with(files{"envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='q'", "tasks/t.json": `[` + boxStep + `,{"id":"s","type":"snapshot_env","env_id":"k","snapshot_id":"snap"},{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"snap"}]`}), Selection{}},
		{"outputs twice", base.with(files{"envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='q'", "artifacts/g/x": "1", "artifacts/g/artifact.toml": "id='@local/~/b/u/snap'", "tasks/t.json": `[` + boxStep + `,{"id":"s","type":"snapshot_env","env_id":"k","snapshot_id":"snap"},{"id":"r","type":"snapshot_env","env_id":"k","snapshot_id":"snap"}]`}), Selection{}},
		{"outputs and an entry's id", base.with(files{"envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='q'", "artifacts/g/x": "1", "artifacts/g/artifact.toml": "id='@local/~/b/t/snap'", "tasks/t.json": `[` + boxStep + `,{"id":"s","type":"snapshot_env","env_id":"k","snapshot_id":"snap"}]`}), Selection{}},
		{"outputs faults", base.with(files{"envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='q'", "tasks/t.json": `[` + boxStep + `,{"id":"l0","type":"load_artifact","sandbox_name":"box","artifact_id":"snap"},{"id":"s","type":"snapshot_env","env_id":"k","snapshot_id":"snap"},{"id":"s2","type":"snapshot_env","env_id":"k","snapshot_id":"f","depends_on":[]},{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"snap","depends_on":["box"]},{"id":"l2","type":"load_artifact","sandbox_name":"box","artifact_id":"snap","artifact_version":2}]`}), Selection{}},

		{"E1", env("environment_name='q'", nil), Selection{}},
		{"E2", env("environment_name='q'", files{"artifacts/x/a": "1", "artifacts/x/b": "1"}), Selection{}},
		{"E3", env("", files{"artifacts/x/a": "1"}), Selection{}},
		{"E4", env("environment_name=''", files{"artifacts/x/a": "1"}), Selection{}},
		{"E5", env("environment_name=3", files{"artifacts/x/a": "1"}), Selection{}},
		{"E6", env("service_name='q'", files{"artifacts/x/a": "1"}), Selection{}},
		{"E7", env("environment_name='q'\nfile_artifact_id='f'\nfile_artifact_ref='f'", files{"artifacts/x/a": "1"}), Selection{}},
		{"E8", env("environment_name='q'\nfile='f'\ndescription='x'", nil), Selection{}},
		{"E9", env("environment_name='q'\nfile='f'", files{"artifacts/x/a": "1"}), Selection{}},
		{"E10", env("environment_name='q'\nfile='u'", nil), Selection{}},
		{"E10 self", env("environment_name='q'\nfile='x'", nil), Selection{}},
		{"E11", env("environment_name='q'\nfile='nope'", nil), Selection{}},
		{"E12", env("environment_name='q'\nfile='F'", nil), Selection{}},
		{"E13", env("environment_name='q'\nfile={artifact='f',version=1}", nil), Selection{}},
		{"E14a", env("environment_name='q'\nfile={artifact='f',version=0}", nil), Selection{}},
		{"E14b", env("environment_name='q'\nfile={artifact='f',x=1}", nil), Selection{}},
		{"E14c", env("environment_name='q'\nfile=3", nil), Selection{}},
		{"E14d", env("environment_name='q'\nfile=''", nil), Selection{}},
		{"E15", env("environment_name='q'\ndescription=1", files{"artifacts/x/a": "1"}), Selection{}},
		{"E16", env("environment_name='q'\nfoo=1", files{"artifacts/x/a": "1"}), Selection{}},
		{"E17", env("environment_name='q'\nfile='@local/x/stored'", nil), Selection{}},
		{"E18", env("environment_name='q'", files{"artifacts/x/out": "-> /etc/passwd", "artifacts/x/gone": "-> nowhere", "artifacts/x/a": "-> b", "artifacts/x/b": "-> a", "artifacts/x/pipe": "fifo"}), Selection{}},
		{"E18 alone", env("environment_name='q'", files{"artifacts/x/out": "-> /etc/passwd"}), Selection{}},
		{"E ok", env("environment_name='q'\nfile='f'", nil), Selection{}},
		{"E ok store", env("environment_name='q'\nfile={artifact='@local/x/file',version=2}", nil), Selection{}},
		{"E ok own", env("environment_name='a b: c'", files{"artifacts/x/.dot": "1"}), Selection{}},
		{"U1", uni("", nil), Selection{}},
		{"U1 meta", uni("environment_artifacts=[]", files{"artifacts/w/metadata/k/a": "1"}), Selection{}},
		{"U2", uni("", files{"artifacts/w/a.json": "1", "artifacts/w/crm/a": "1"}), Selection{}},
		{"U3", uni("", files{"artifacts/w/crm/a": "1", "artifacts/w/crm/b": "1"}), Selection{}},
		{"U4", uni("", files{"artifacts/w/crm/.DS_Store": "1", "artifacts/w/x/": ""}), Selection{}},
		{"U5", uni("", files{"artifacts/w/crm/a": "1", "artifacts/w/metadata/a.json": "1"}), Selection{}},
		{"U6", uni("", files{"artifacts/w/crm/a": "1", "artifacts/w/metadata/k/": "", "artifacts/w/metadata/l/a": "1", "artifacts/w/metadata/l/b": "1"}), Selection{}},
		{"U7", uni("", files{"artifacts/w/crm/a": "1", "artifacts/w/Metadata/k/a": "1"}), Selection{}},
		{"U8", uni("metadata={}\nmetadata_refs={}", files{"artifacts/w/crm/a": "1"}), Selection{}},
		{"U9", uni("service_artifact_ids=[]\nservice_artifact_refs=[]\nenvironment_artifact_refs=[]", files{"artifacts/w/crm/a": "1"}), Selection{}},
		{"U10", uni("description='x'", files{"artifacts/w/crm/a": "1"}), Selection{}},
		{"U11", uni("environment_artifacts='e'", nil), Selection{}},
		{"U12", uni("environment_artifacts=[3,{artifact='e',x=1},{artifact='e',version=0}]", nil), Selection{}},
		{"U13", uni("environment_artifacts=['f','w']", nil), Selection{}},
		{"U14", uni("environment_artifacts=['nope']", nil), Selection{}},
		{"U14 case", uni("environment_artifacts=['E']", nil), Selection{}},
		{"U15", uni("environment_artifacts=[{artifact='e',version=1}]", nil), Selection{}},
		{"U16", uni("environment_artifacts=['e']", files{"artifacts/w/crm/a": "1"}), Selection{}},
		{"U16 store", uni("environment_artifacts=['@local/x/env']", files{"artifacts/w/mail/a": "1"}), Selection{}},
		{"U17", uni("environment_artifacts=['e','e','e2']", files{"artifacts/e2/artifact.toml": "type='environment'\nenvironment_name='crm'\nfile='f'"}), Selection{}},
		{"U18", files{"tasks/t.json": load("slack"), "envs/slack/Dockerfile": "x", "artifacts/slack/artifact.toml": "type='environment_universe'", "artifacts/slack/env_image/a": "1"}, Selection{}},
		{"U20", uni("environment_artifacts=['e']", files{"artifacts/w/mail/a": "1", "envs/k/Dockerfile": "x", "envs/k/env.toml": "environment_name='crm'", "tasks/t.json": `[{"id":"l","type":"load_artifact","env_id":"k","artifact_id":"w"}]`}), Selection{}},
		{"E19", files{
			"tasks/t.json": `[{"id":"l","type":"load_artifact","env_id":"m","artifacts":[{"id":"e"},{"id":"g"}]}]`, "artifacts/f/x": "1",
			"artifacts/e/artifact.toml": "type='environment'\nenvironment_name='crm'\nfile='f'", "artifacts/g/artifact.toml": "type='environment'\nenvironment_name='b'\nfile='f'",
			"envs/a/Dockerfile": "x", "envs/a/env.toml": "environment_name='a'", "envs/b/Dockerfile.backend": "x", "envs/b/Dockerfile.frontend": "x",
			"envs/b/env.toml": "type='website'\nenvironment_name='b'", "envs/m/env.toml": "type='multi'\nmcp_server_envs=['a']\nwebsite_envs=['b']",
		}, Selection{}},
		{"U20 store", uni("", files{"tasks/t.json": `[{"id":"l","type":"load_artifact","env_id":"@local/x/env","artifact_id":"w"}]`, "artifacts/w/mail/a": "1"}), Selection{}},
		{"U21", uni("", files{"artifacts/w/crm/a": "-> /etc/passwd"}), Selection{}},
		{"U22", uni("id='@local/x/w__crm'", files{"artifacts/w/crm/a": "1"}), Selection{}},
		{"nested", uni("", files{"artifacts/w/a/b/x": "1", "artifacts/w/metadata/k/l/x": "1"}), Selection{}},
		{"names", uni("", files{"artifacts/w/a__b/x": "1", "artifacts/w/crm /x": "1", "artifacts/w/a:b/x": "1", "artifacts/w/metadata/k__l/x": "1"}), Selection{}},
		{"case ok", uni("", files{"artifacts/w/crm/x": "1", "artifacts/w/CRM/x": "1", "artifacts/w/metadata/.DS_Store": "1", "artifacts/w/a.b/.x": "1"}), Selection{}},
		{"selection", two, Selection{Tasks: []string{"T", "zz"}, Evals: []string{"zz"}}},
		{"selection and a fault", two.with(files{"artifacts/f/y": "1", "artifacts/f/artifact.toml": "type='file'"}), Selection{Tasks: []string{"t", "zz"}}},
		{"selection of tasks", two, Selection{Tasks: []string{"@local/~/b/u"}}},
		{"selection of both", two, Selection{Tasks: []string{"u"}, Evals: []string{"e"}}},
		{"selection without evals", base, Selection{Evals: []string{"x"}, Tasks: []string{"x"}}},
		{"every eval", two, Selection{}},
		{"unreached faults", two.with(files{"tasks/v.json": load("g"), "artifacts/g/x": "1", "artifacts/g/y": "1", "artifacts/g/artifact.toml": "type='file'"}), Selection{Tasks: []string{"t"}}},
		{"task too large", files{"tasks/t.json": "[" + strings.Repeat(" ", 8<<20) + "]"}, Selection{}},
		{"task too deep", files{"tasks/t.json": strings.Repeat("[", 200)}, Selection{}},
		{"unicode names", files{"tasks/t.json": load("caf\u00e9", "cafe\u0301"), "artifacts/cafe\u0301/x": "1"}, Selection{}},
		{"unicode clash", base.with(files{"artifacts/caf\u00e9/x": "1", "artifacts/cafe\u0301/x": "1"}), Selection{}},
		{"ugly names", base.with(files{"artifacts/a\nb/x": "1", "artifacts/a\u200bb/x": "1", "artifacts/\u0301a/x": "1", "artifacts/\xff/x": "1"}), Selection{}},
		{"ugly file names", files{"tasks/t.json": load("f"), "artifacts/f/\xff": "1", "artifacts/f/a\n": "-> b\n"}, Selection{}},
		{"not toml", base.with(files{"artifacts/g/x": "1", "artifacts/g/artifact.toml": "\xff"}), Selection{}},
		{"byte order mark", base.with(files{"artifacts/f/artifact.toml": "\ufefftype = 'file'", "tasks/t.json": "\ufeff" + load("f")}), Selection{}},
		{"kind is a broken link", base.with(files{"evals": "-> nowhere", "envs": "-> ../../..", "skills": "fifo"}), Selection{}},
		{"kind folder is a link", files{"tasks/t.json": load("f"), "stuff/f/x": "1", "artifacts": "-> stuff"}, Selection{}},
		{"env of another type", files{"tasks/t.json": resets("changed"), "envs/changed/Dockerfile": "x", "envs/changed/env.toml": "environment_name='q'"}, Selection{}},
		{"alias of a type", files{"tasks/t.json": load("f"), "artifacts/f/x": "1", "artifacts/f/y": "1", "artifacts/f/artifact.toml": "type='bundle_of_files'"}, Selection{}},
	}
}
