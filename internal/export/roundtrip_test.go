package export

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/ref"
)

// wide is a bundle with an entity of every type, in the forms that they can have.
var wide = files{
	"agents/bot/Dockerfile":         "FROM scratch\n",
	"agents/bot/agent.toml":         "[default_env_vars]\nA = '1'\n[metadata]\ndefault_model = 'm'\nmin_disk_size_gb = 3\ntakes_credentials = false",
	"agents/other/agent.toml":       "image = 'i'",
	"artifacts/c/artifact.toml":     "type = 'cli'\ncommand_name = 'tool'\nentrypoint = 'run.sh'",
	"artifacts/c/run.sh":            "#!/bin/sh\n",
	"artifacts/c/lib/x.txt":         "x",
	"artifacts/e/artifact.toml":     "type = 'environment'\nenvironment_name = 'crm2'\nfile = 'f'",
	"artifacts/f/x":                 "1",
	"artifacts/g/artifact.toml":     "type = 'file'\ndescription = 'A greeting'",
	"artifacts/g/sub/deep.sh":       "#!/bin/sh\n",
	"artifacts/i/Dockerfile":        "FROM scratch\nCOPY a.sh /\n",
	"artifacts/i/a.sh":              "#!/bin/sh\n",
	"artifacts/i/artifact.toml":     "type = 'docker_image'\ndescription = 'img'",
	"artifacts/u/a":                 "a",
	"artifacts/u/sub/.hidden":       "h",
	"artifacts/u/sub/run":           "#!x\n",
	"artifacts/w/artifact.toml":     "type = 'environment_universe'\nenvironment_artifacts = ['e']",
	"artifacts/w/crm/c.json":        "{}",
	"artifacts/w/a b/d.json":        "[]",
	"artifacts/w/metadata/m/m.json": "[]",
	"artifacts/x/artifact.toml":     "type = 'environment'\nenvironment_name = 'crm/3:x'\ndescription = 'dd'",
	"artifacts/x/r.json":            "[1]",
	"envs/a/Dockerfile":             "FROM scratch\n",
	"envs/a/env.toml":               "environment_name = 'q'\nenv_provider_type = 'server'",
	"envs/b/docker/backend":         "FROM scratch\n",
	"envs/b/Dockerfile.frontend":    "FROM scratch\n",
	"envs/b/run.sh":                 "#!/bin/sh\n",
	"envs/b/env.toml":               "type = 'website'\nenvironment_name = 'web'\nbackend_image = { dockerfile = 'docker/backend' }",
	"envs/c/env.toml":               "environment_name = 'third'\nimage = 'i'",
	"envs/d/Dockerfile":             "FROM scratch\n",
	"envs/d/env.toml":               "environment_name = 'fourth'",
	"envs/m/env.toml":               "type = 'multi'\nmcp_server_envs = ['d', 'c']\nwebsite_envs = ['b']\nname = 'mm'",
	"skills/s/SKILL.md":             "---\nname: s\ndescription: Hi\nlicense: MIT\nmetadata:\n  a: b\nallowed-tools: x y\nextra: 1\n---\nx",
	"skills/s/sub/a.py":             "1",
	"tasks/t.json":                  wideTask,
	"tasks/u.json":                  `[{"id":"r","type":"reset_env","env_id":"a"}]`,
	"evals/all.toml":                "tasks = ['u', 't']",
}

const wideTask = `[
  {"id":"box","type":"deploy_sandbox","sandbox_name":"box","sandbox_mode":"vm","cpu":1.5},
  {"id":"r0","type":"reset_env","env_id":"a"},
  {"id":"r1","type":"reset_env","env_id":"m"},
  {"id":"l","type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"w"},{"id":"x"},{"id":"i"},{"id":"u"},{"id":"g"},{"id":"f"}]},
  {"id":"k","type":"add_skills","agent_name":"a","skills":[{"skill_artifact_id":"s"}],"cli_artifact_ids":["c"]},
  {"id":"v","type":"verify_a2a_agent_card","a2a_agent_id":"bot"},
  {"id":"v2","type":"verify_a2a_agent_card","a2a_agent_id":"other"},
  {"id":"sn","type":"snapshot_env","env_id":"a","snapshot_id":"snap","original_universe_artifact_id":"w"},
  {"id":"again","type":"load_artifact","depends_on":["sn"],"sandbox_name":"box","artifact_id":"snap"},
  {"id":"cli","type":"build_mcp_cli","env_id":"a","command_name":"q"}
]`

// contexts are what documents of images say of the toml in their build context, which is written anew.
var contexts = regexp.MustCompile(`"(env|agent|artifact)\.toml":\{[^}]*\},?|"source_digest":"[^"]*"|"image_name":"[^"]*"`)

func sameDocs(t *testing.T, was, now map[string]string) {
	t.Helper()
	strip := func(s string) string { return strings.ReplaceAll(contexts.ReplaceAllString(s, ""), ",}", "}") }
	for name, body := range was {
		if got, ok := now[name]; !ok || strip(got) != strip(body) {
			t.Errorf("%s was\n  %s\nand is now\n  %s", name, body, got)
		}
	}
	for name := range now {
		if _, ok := was[name]; !ok {
			t.Errorf("%s is new", name)
		}
	}
}

// What an export of an eval is registered as equals what it came from, but for the ids' root and the tomls in the build contexts of images.
func TestRoundTrip(t *testing.T) {
	r := newRig(t)
	r.bundle("b", wide)
	rep := r.must("out", From{Kind: ref.Eval, ID: "@local/~/b/all"})
	if rep.IDRoot != "@local/~/out" || rep.Bundle != r.path("out") || rep.From.String() != "eval @local/~/b/all v1" {
		t.Errorf("%+v", rep)
	}
	if len(rep.Store) > 0 || len(rep.Needs) > 0 || len(rep.Floating) > 0 || len(rep.LeftOut) > 0 {
		t.Errorf("%+v", rep.Sections())
	}
	r.register("out")
	sameDocs(t, r.docs("@local/~/b"), r.docs("@local/~/out"))

	// The files are those of the first, but for the tomls, whose spelling is the program's.
	out := read(t, r.path("out"))
	for name, text := range wide {
		if strings.HasSuffix(name, ".toml") || strings.HasPrefix(name, "tasks/") || name == "artifacts/g/sub/deep.sh" {
			continue
		}
		if out[name] != text {
			t.Errorf("%s is %q, want %q", name, out[name], text)
		}
		info, err := os.Stat(r.path("out/" + name))
		if err != nil || info.Mode().Perm() != wide.mode(name) {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	for name, want := range (files{
		"agents/bot/agent.toml":     "[default_env_vars]\nA = \"1\"\n\n[metadata]\ndefault_model = \"m\"\nmin_disk_size_gb = 3\ntakes_credentials = false\n",
		"agents/other/agent.toml":   "image = \"i\"\n",
		"artifacts/c/artifact.toml": "type = \"cli\"\ncommand_name = \"tool\"\nentrypoint = \"run.sh\"\n",
		"artifacts/e/artifact.toml": "type = \"environment\"\nenvironment_name = \"crm2\"\nfile = \"f\"\n",
		"artifacts/f/artifact.toml": "type = \"file\"\n",
		"artifacts/g/artifact.toml": "type = \"file\"\ndescription = \"A greeting\"\n",
		"artifacts/g/deep.sh":       "#!/bin/sh\n",
		"artifacts/i/artifact.toml": "type = \"docker_image\"\ndescription = \"img\"\n",
		"artifacts/u/artifact.toml": "type = \"file_artifact_universe\"\n",
		"artifacts/w/artifact.toml": "type = \"environment_universe\"\nenvironment_artifacts = [\"e\"]\n",
		"artifacts/x/artifact.toml": "type = \"environment\"\nenvironment_name = \"crm/3:x\"\ndescription = \"dd\"\n",
		"envs/a/env.toml":           "env_provider_type = \"server\"\nenvironment_name = \"q\"\n",
		"envs/b/env.toml":           "type = \"website\"\nenvironment_name = \"web\"\n\n[backend_image]\ndockerfile = \"docker/backend\"\n",
		"envs/c/env.toml":           "environment_name = \"third\"\nimage = \"i\"\n",
		"envs/d/env.toml":           "environment_name = \"fourth\"\n",
		"envs/m/env.toml":           "type = \"multi\"\nname = \"mm\"\nmcp_server_envs = [\"d\", \"c\"]\nwebsite_envs = [\"b\"]\n",
		"evals/all.toml":            "tasks = [\"u\", \"t\"]\n",
	}) {
		if out[name] != want {
			t.Errorf("%s is\n%s", name, out[name])
		}
	}
	if want := len(wide); len(out) != want+2 { // f and u had no toml
		t.Errorf("%d files, want %d: %q", len(out), want+2, slices.Sorted(maps.Keys(out)))
	}
	if !strings.Contains(out["tasks/t.json"], `"snapshot_id": "snap"`) || !strings.Contains(out["tasks/t.json"], `"artifact_id": "snap"`) || !strings.Contains(out["tasks/t.json"], `"cli_artifact_id": "a__cli"`) {
		t.Errorf("outputs of steps: %s", out["tasks/t.json"])
	}

	// An export of the export is the same folder.
	r.must("again", From{Kind: ref.Eval, ID: "@local/~/out/all"})
	again := read(t, r.path("again"))
	if !maps.Equal(out, again) {
		for name := range out {
			if out[name] != again[name] {
				t.Errorf("%s: %q, then %q", name, out[name], again[name])
			}
		}
		t.Errorf("%d files, then %d", len(out), len(again))
	}
}
