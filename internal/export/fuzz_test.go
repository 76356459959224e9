package export

import (
	"strings"
	"testing"
	"unicode"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/diag"
	"agentenv.internal/agentenv/internal/doc"
	"agentenv.internal/agentenv/internal/store"
)

// Whatever documents say, an export is a sound bundle or a refusal in lines, and nothing is left of a refused one.
func FuzzInit(f *testing.F) {
	digest := "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae" // of "foo"
	load := `[{"id":"l","type":"load_artifact","sandbox_name":"b","artifacts":[{"id":"@local/x/a"}]}]`
	for _, s := range []struct{ typ, body, steps string }{
		{"file", `{"filename":"a.txt","digest":"` + digest + `","size":3,"mode":420,"description":"x"}`, load},
		{"file", `{"filename":"../a","digest":"` + digest + `"}`, load},
		{"file_artifact_universe", `{"file_artifact_refs":{"a":{"digest":"` + digest + `","size":3},"d/__pycache__/x":{"digest":"` + digest + `"}},"links":{"l":"a"},"folders":["e"]}`, load},
		{"environment", `{"environment_name":"x\n","file_artifact_ref":{"id":"@local/x/a__file","version":1}}`, load},
		{"environment_universe", `{"environment_artifact_refs":[{"id":"@local/x/a","version":1},{"id":3},4],"metadata_refs":{"..":{"id":"@local/x/f"}}}`, load},
		{"skill", `{"skill_name":"../s","skill_files_ref":{"id":"@local/x/u","version":1}}`, `[{"id":"k","type":"add_skills","agent_name":"a","skills":[{"skill_artifact_id":"@local/x/a","skill_artifact_version":1}]}]`},
		{"cli", `{"command_name":1,"entrypoint":"a","cli_files_id":"@local/x/u"}`, `[{"id":"k","type":"add_skills","agent_name":"a","cli_artifact_ids":["@local/x/a"]}]`},
		{"docker_image", `{"dockerfile_path":"Dockerfile","build_context":{"Dockerfile":{"digest":"` + digest + `"},"artifact.toml":{"digest":"` + digest + `"}}}`, load},
		{"docker_image", `{"image_name":"registry.example/x@y"}`, load},
		{"mcp_server", `{"service_name":"m","docker_image_artifact":{"id":"@local/x/a__env_image"},"metadata":{"a":null,"b":[]}}`, `[{"id":"r","type":"reset_env","env_id":"@local/x/a"}]`},
		{"multi", `{"mcp_server_envs":[{"id":"@local/x/a"}],"name":"a b"}`, `[{"id":"r","type":"deploy_env","env_id":"@local/x/a","env_version":1}]`},
		{"a2a_agent", `{"docker_image_artifact":{"id":"@local/x/i"},"default_env_vars":{"A":1},"metadata":{"default_model":7}}`, `[{"id":"r","type":"verify_a2a_agent_card","a2a_agent_id":"@local/x/a"}]`},
		{"task", `{}`, `[{"id":"s","type":"snapshot_env","env_id":"e","snapshot_id":"@local/x/t/../y"},{"id":"c","type":"build_mcp_cli","env_id":"@local/x/a"}]`},
	} {
		f.Add(s.typ, s.body, s.steps)
	}
	f.Fuzz(func(t *testing.T, typ, body, steps string) {
		if len(body)+len(steps) > 2000 || strings.ContainsRune(typ, 0) || typ == "" {
			return
		}
		r := newRig(t)
		r.put("foo")
		kind := store.Artifact
		switch typ {
		case "mcp_server", "website", "multi", "computer_driver":
			kind = store.Env
		case "a2a_agent":
			kind = store.Agent
		}
		r.file("@local/x/f", "f", "foo")
		r.file("@local/x/a__file", "f", "foo")
		r.universe("@local/x/u", artifact.Bytes{Path: "a"}, artifact.Bytes{Path: "SKILL.md"})
		image := []artifact.Bytes{{Path: "Dockerfile", Digest: r.put("FROM scratch"), Mode: 0o644}}
		r.artifact(artifact.NewImage(artifact.Pin{ID: "@local/x/a__env_image"}, "Dockerfile", "", image))
		r.artifact(artifact.NewImage(artifact.Pin{ID: "@local/x/i"}, "Dockerfile", "", image))
		r.doc(store.Doc{Kind: kind, ID: "@local/x/a", Type: typ, Body: []byte(body)})
		if tree, l := doc.ParseJSON("", []byte(steps)); l.HasErrors() || tree.Root().Kind() != doc.Array {
			return
		}
		r.task("@local/x/t", steps)
		for _, user := range []bool{false, true} {
			from := fromTask("@local/x/t")
			from.User = user
			_, err := r.init("out", from)
			r.clean()
			l, refused := diag.From(err)
			switch {
			case err == nil:
				return
			case !refused && !strings.Contains(err.Error(), "not in the store"): // bytes that a document names, and that were never there
				t.Errorf("%v", err)
			}
			for _, p := range l {
				if s := p.String(); s == "" || strings.ContainsFunc(s, unicode.IsControl) {
					t.Errorf("a problem isn't one line: %q", s)
				}
			}
			if got := r.list(); len(got) > 0 {
				t.Errorf("left %q", got)
			}
		}
	})
}
