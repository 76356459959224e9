package ledger

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"agentenv.internal/agentenv/internal/bundle"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
	"agentenv.internal/agentenv/internal/store/mem"
)

// wideFolder holds what the goldens' folder doesn't: an env of each type, a declared id, a name read from sources, an image artifact, data over a
// file of its own, leavings.
var wideFolder = map[string]string{
	"agents/bot/Dockerfile":         "FROM scratch\n",
	"agents/bot/agent.toml":         "[default_env_vars]\nA='1'\n[metadata]\ndefault_model='m'\nmin_disk_size_gb=3",
	"artifacts/c/artifact.toml":     "type='cli'\ncommand_name='tool'\nentrypoint='run.sh'",
	"artifacts/c/run.sh":            "x",
	"artifacts/e/artifact.toml":     "type='environment'\nenvironment_name='crm2'\nfile='f'",
	"artifacts/f/x":                 "1",
	"artifacts/i/Dockerfile":        "FROM scratch\n",
	"artifacts/i/artifact.toml":     "description='img'",
	"artifacts/w/artifact.toml":     "type='environment_universe'\nenvironment_artifacts=['e']",
	"artifacts/w/crm/c.json":        "{}",
	"artifacts/w/metadata/m/m.json": "[]",
	"artifacts/x/artifact.toml":     "type='environment'\nenvironment_name='crm3'\ndescription='dd'",
	"artifacts/x/r.json":            "[]",
	"envs/a/.DS_Store":              "x",
	"envs/a/Dockerfile":             "FROM scratch\n",
	"envs/a/__pycache__/k":          "x",
	"envs/a/x.py":                   "@environment_card(name='q')\nclass A: pass\n",
	"envs/b/Dockerfile.backend":     "FROM scratch\n",
	"envs/b/Dockerfile.frontend":    "FROM scratch\n",
	"envs/b/env.toml":               "type='website'\nenvironment_name='web'\nid='@local/my/b'",
	"envs/e/env.toml":               "type='multi'\nmcp_server_envs=['a']\nwebsite_envs=['b']\nname='mm'",
	"skills/s/SKILL.md":             "---\nname: s\ndescription: Hi\nlicense: MIT\nmetadata:\n  a: b\nallowed-tools: x y\nextra: 1\n---\nx",
	"skills/s/sub/a.py":             "1",
	"tasks/t.json":                  "[{\"id\":\"box\",\"type\":\"deploy_sandbox\",\"sandbox_name\":\"box\",\"sandbox_mode\":\"vm\"},{\"id\":\"r0\",\"type\":\"reset_env\",\"env_id\":\"a\"},{\"id\":\"r1\",\"type\":\"reset_env\",\"env_id\":\"e\"},{\"id\":\"l\",\"type\":\"load_artifact\",\"sandbox_name\":\"box\",\"artifacts\":[{\"id\":\"w\"},{\"id\":\"x\"},{\"id\":\"i\"}]},{\"id\":\"k\",\"type\":\"add_skills\",\"agent_name\":\"a\",\"skills\":[{\"skill_artifact_id\":\"s\"}],\"cli_artifact_ids\":[\"c\"]},{\"id\":\"v\",\"type\":\"verify_a2a_agent_card\",\"a2a_agent_id\":\"bot\"}]",
}

// wideDigests are what the Python peer (0.9.1364) recorded of it when it lay as z directly under the home folder.
var wideDigests = map[string]ref.Digest{
	"agent @local/~/z/bot":                 "sha256:33d3e4dfae43ef6e2cbe61210c3a8c04b294868c11b314a6aac00346984ae727",
	"artifact @local/my/b__backend_image":  "sha256:eeb435b50917fe6a3ec95dcf6ef72e17c0bd3b51de55d58f75e4fd0c6370eeac",
	"artifact @local/my/b__frontend_image": "sha256:efa6b9e4c2a9d744494eb64a2e910b1bc89c24ac320cb4360d81cf39b8a4175b",
	"artifact @local/~/z/a__env_image":     "sha256:bdd609718e039e7e3f5fe320febc5f95310150a138f361e1443712312b78ba49",
	"artifact @local/~/z/bot__agent_image": "sha256:7142e2ec3a08fb67251d6333ddb5671d9faf84370d3a2bfd8ac5570a1c7862bd",
	"artifact @local/~/z/c":                "sha256:8a9561e53e1c1c97aa664d3dd80b92d787e030b231bc7d41be9fe450a51882d7",
	"artifact @local/~/z/e":                "sha256:30e4513d926f020528893bccaccc794aaddb2d12613354718452b745cb1633bc",
	"artifact @local/~/z/f":                "sha256:8fb29eafb4fbe4d2ebad470d1b8a617a4c1108961a7e2cc58657582e22163fcb",
	"artifact @local/~/z/i":                "sha256:b1ab531d2809da8863ee72334a150b82c26e32f05d21cc45fa838d34ee81dec4",
	"artifact @local/~/z/s":                "sha256:b0743954b22696ca2cc6384314b9c0a01b304e01f330b93fa4993615b85e73f7",
	"artifact @local/~/z/w":                "sha256:f13750fed5902a37679711dfc7d5934a65882e9af4dd690a4e1c3cc2f5f6d52f",
	"artifact @local/~/z/x":                "sha256:ea718b4801635a6ad0b716478a6e623f22b225696ddc9a6675df0254e8b0039c",
	"env @local/my/b":                      "sha256:ee19de15facc18c3bb3e00719b2ac529c734f9c0e1883efab937eedbb20142c1",
	"env @local/~/z/a":                     "sha256:1fccd7e441e1d87dfa768dbcf35a17d05bcaa006ce63bb4389681a87fb7a48f8",
	"env @local/~/z/e":                     "sha256:f45823dafdbcf2280a2d930dae002a2159a9a24395c9b91801e8d5dd8919fa8a",
	"task @local/~/z/t":                    "sha256:02447059acc90716c08df4afa17e49de0c8f52e85c43773977c5961aad1be98e",
}

func TestWideGoldens(t *testing.T) {
	home := t.TempDir()
	for name, text := range wideFolder {
		at := filepath.Join(home, "z", name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, 0o644); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
	st := mem.New(mem.Options{})
	p := planOf(t, filepath.Join(home, "z"), home, st, bundle.Selection{})
	if _, err := Write(t.Context(), st, p, Options{}); err != nil {
		t.Fatal(err)
	}
	if len(p.Writes) != len(wideDigests) {
		t.Errorf("%d writes, want %d", len(p.Writes), len(wideDigests))
	}
	for name, want := range wideDigests {
		d, err := st.Get(t.Context(), store.Ledger, name, 0)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var r row
		if err := json.Unmarshal(d.Body, &r); err != nil {
			t.Fatal(err)
		}
		if r.Digest != want {
			t.Errorf("%s: digest %s of %+v, want %s", name, r.Digest, r.Inputs, want)
		}
	}
}
