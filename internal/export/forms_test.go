package export

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"agentenv.internal/agentenv/internal/artifact"
	"agentenv.internal/agentenv/internal/ref"
	"agentenv.internal/agentenv/internal/store"
)

// What no folder can hold is a problem, or stays in the store with --include-scope user.
func TestUnwritable(t *testing.T) {
	r := newRig(t)
	r.bundle("b", wide)
	r.file("@local/x/toml", "Artifact.toml", "1")
	r.file("@local/x/skillmd", "SKILL.md", "1")
	r.file("@local/x/leaving", ".DS_Store", "1")
	r.universe("@local/x/dangling", artifact.Bytes{Path: "a"}, artifact.Bytes{Path: "l", Link: "nowhere"})
	r.universe("@local/x/empty", artifact.Bytes{Path: "d", Folder: true})
	r.doc(store.Doc{Kind: store.Artifact, ID: "@local/x/zip", Type: "zip", Body: []byte(`{}`)})
	r.doc(store.Doc{Kind: store.Artifact, ID: "@local/x/img", Type: "docker_image", Body: []byte(`{"image_name":"local/x:1","dockerfile_path":null}`)})
	r.artifact(artifact.NewImage(artifact.Pin{ID: "@local/x/named"}, "docker/File", "", []artifact.Bytes{{Path: "docker/File", Digest: r.put("x"), Mode: 0o644}}))
	r.doc(store.Doc{Kind: store.Artifact, ID: "@local/x/broken", Type: "file", Body: []byte(`[]`)})
	r.doc(store.Doc{Kind: store.Artifact, ID: "@local/x/w", Type: "environment_universe", Body: []byte(`{"environment_artifact_refs":[]}`)})
	r.doc(store.Doc{Kind: store.Env, ID: "@local/x/driver", Type: "computer_driver", Body: []byte(`{}`)})
	r.doc(store.Doc{Kind: store.Env, ID: "@local/x/multi", Type: "multi", Body: []byte(`{"mcp_server_envs":[{"id":"@local/~/b/d","version":1},{"id":"@local/x/odd","version":1}],"website_envs":[]}`)})
	r.doc(store.Doc{Kind: store.Env, ID: "@local/x/odd", Type: "mcp_server", Body: []byte(`{"environment_name":"odd","docker_image_artifact":{"id":"@local/x/img","version":1}}`)})
	r.task("@local/x/t", `[`+box+`,
	 {"id":"l","type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"@local/x/toml"},{"id":"@local/x/skillmd"},{"id":"@local/x/leaving"},{"id":"@local/x/dangling"},{"id":"@local/x/empty"},
	  {"id":"@local/x/zip"},{"id":"@local/x/named"},{"id":"@local/x/broken"},{"id":"@local/x/w"},{"id":"@local/x/none"},{"id":"@local/~/b/u","version":9},{"id":"@local/~/b/f"}]},
	 {"id":"r","type":"reset_env","env_id":"@local/x/driver"},
	 {"id":"m","type":"deploy_env","env_id":"@local/x/multi"}]`)
	got := r.refused(fromTask("@local/x/t"))
	const after = "; --include-scope user leaves it in the store, for a folder that is run against the same store"
	want := []string{
		`envs/odd: image: artifact '@local/x/img' v1 can't be written into a folder: its image has neither a build context nor a registry to pull it from` + after,
		`tasks/t.json: step 'l': artifacts[0].id: artifact '@local/x/toml' v1 can't be written into a folder: its 'Artifact.toml' would be taken for the artifact.toml of the folder` + after,
		`tasks/t.json: step 'l': artifacts[10].id: there is no version 9 of artifact '@local/~/b/u' in the store`,
		`tasks/t.json: step 'l': artifacts[1].id: artifact '@local/x/skillmd' v1 can't be written into a folder: it holds a SKILL.md, which only folders of skills do` + after,
		`tasks/t.json: step 'l': artifacts[2].id: artifact '@local/x/leaving' v1 can't be written into a folder: none of its files counts as content` + after,
		`tasks/t.json: step 'l': artifacts[3].id: artifact '@local/x/dangling' v1 can't be written into a folder: its link 'l' leads to nothing` + after,
		`tasks/t.json: step 'l': artifacts[4].id: artifact '@local/x/empty' v1 can't be written into a folder: none of its files counts as content` + after,
		`tasks/t.json: step 'l': artifacts[5].id: artifact '@local/x/zip' v1 can't be written into a folder: its type, 'zip', has no form in a bundle` + after,
		`tasks/t.json: step 'l': artifacts[6].id: artifact '@local/x/named' v1 can't be written into a folder: it is built from 'docker/File', and the folder of an image is built from its Dockerfile` + after,
		`tasks/t.json: step 'l': artifacts[7].id: the store's document of artifact '@local/x/broken' v1 can't be read`,
		`tasks/t.json: step 'l': artifacts[8].id: artifact '@local/x/w' v1 can't be written into a folder: it holds no environment` + after,
		`tasks/t.json: step 'l': artifacts[9].id: there is no artifact '@local/x/none' in the store`,
		`tasks/t.json: step 'r': env_id: env '@local/x/driver' v1 can't be written into a folder: its type, 'computer_driver', has no form in a bundle` + after,
	}
	if lines := strings.Split(got, "\n"); !slices.Equal(lines, want) {
		for i, l := range lines {
			if i >= len(want) || l != want[i] {
				t.Errorf("line %d: %s", i, l)
			}
		}
	}

	r.task("@local/x/t", `[`+box+`,
	 {"id":"l","type":"load_artifact","sandbox_name":"box","artifacts":[{"id":"@local/x/toml"},{"id":"@local/~/b/f"}]},
	 {"id":"r","type":"reset_env","env_id":"@local/x/driver"},
	 {"id":"m","type":"deploy_env","env_id":"@local/x/multi"}]`)
	rep := r.must("kept", From{Kind: ref.Task, ID: "@local/x/t", User: true})
	const stay = `artifact @local/x/toml v1: tasks/t.json: step 'l': artifacts[0].id: its 'Artifact.toml' would be taken for the artifact.toml of the folder
env @local/x/driver v1: tasks/t.json: step 'r': env_id: its type, 'computer_driver', has no form in a bundle
artifact @local/x/img v1: envs/odd: image: its image has neither a build context nor a registry to pull it from`
	if got := lineOf(rep.Store); got != stay {
		t.Errorf("stays\n%s", got)
	}
	if got := lineOf(rep.Floating); got != "env @local/x/driver: tasks/t.json: step 'r': env_id: the field takes no version, so a run reads the latest" {
		t.Errorf("floats\n%s", got)
	}
	out := read(t, r.path("kept"))
	if got := out["envs/odd/env.toml"]; got != "environment_name = \"odd\"\n\n[image]\nartifact = \"@local/x/img\"\nversion = 1\n" {
		t.Error(got)
	}
	if got := out["tasks/t.json"]; !strings.Contains(got, "\"id\": \"@local/x/toml\",\n        \"version\": 1") || !strings.Contains(got, `"env_id": "@local/x/driver"`) || !strings.Contains(got, `"env_id": "multi"`) {
		t.Error(got)
	}
	b, err := os.ReadFile(r.path("kept/provenance.json"))
	if err != nil || !strings.Contains(string(b), `"id": "@local/x/driver",`) {
		t.Errorf("%s, %v", b, err)
	}
}

// What never counts as content, and what bundles have no form for, is left out and told.
func TestLeftOutOfFolders(t *testing.T) {
	r := newRig(t)
	r.universe("@local/x/u", artifact.Bytes{Path: "a"}, artifact.Bytes{Path: "sub/.DS_Store"}, artifact.Bytes{Path: "__pycache__/x"}, artifact.Bytes{Path: "d", Folder: true},
		artifact.Bytes{Path: "l", Link: "sub2"}, artifact.Bytes{Path: "sub2/b"})
	img := []artifact.Bytes{{Path: "Dockerfile", Digest: r.put("FROM scratch\n"), Size: 13, Mode: 0o644}}
	r.artifact(artifact.NewImage(artifact.Pin{ID: "@local/x/bot__agent_image"}, "Dockerfile", "", img))
	r.doc(store.Doc{Kind: store.Agent, ID: "@local/x/bot", Type: "a2a_agent", Body: []byte(`{"docker_image_artifact":{"id":"@local/x/bot__agent_image","version":1,"type":"docker_image"},
	 "default_env_vars":{"MODE":"x","API_KEY":"k"},"metadata":{"default_model":"sk-` + mixed[:30] + `","checked":"yes"}}`)})
	r.task("@local/x/t", `[`+box+`,{"id":"l","type":"load_artifact","sandbox_name":"box","artifact_id":"@local/x/u"},{"id":"v","type":"verify_a2a_agent_card","a2a_agent_id":"@local/x/bot"}]`)
	rep := r.must("out", fromTask("@local/x/t"))
	const want = `artifacts/u/__pycache__/x: not written: __pycache__ never counts as content of a bundle
artifacts/u/d: not written: it is an empty folder, and bundles hold files
artifacts/u/l: that it is a link is not kept by a run, which takes what it leads to
artifacts/u/sub/.DS_Store: not written: .DS_Store never counts as content of a bundle
agents/bot/agent.toml: metadata.checked: dropped: agent.toml has no such key
agents/bot/agent.toml: default_env_vars.API_KEY: dropped: its name looks like a secret
agents/bot/agent.toml: metadata.default_model: masked: an API key`
	if got := lineOf(rep.LeftOut); got != want {
		t.Errorf("left out\n%s", got)
	}
	out := read(t, r.path("out"))
	if len(out) != 7 || out["artifacts/u/l"] != "-> sub2" || out["agents/bot/agent.toml"] != "[default_env_vars]\nMODE = \"x\"\n\n[metadata]\ndefault_model = \"***\"\n" {
		t.Errorf("%q", out)
	}
}

// Children of universes that can't be folders are named, as folders of their own.
func TestOddUniverses(t *testing.T) {
	r := newRig(t)
	r.file("@local/x/w__crm__file", "c.json", "{}")
	r.file("@local/x/w__a:b__file", "d.json", "[]")
	r.file("@local/x/w__metadata__m", "m.json", "0")
	env := func(id, name, file string) {
		r.artifact(artifact.NewEnvironment(artifact.Pin{ID: id}, name, artifact.Pin{ID: file, Version: 1}))
	}
	env("@local/x/w__crm", "crm", "@local/x/w__crm__file")
	env("@local/x/w__a:b", "a:b", "@local/x/w__a:b__file")
	env("@local/x/w__renamed", "other", "@local/x/w__crm__file")
	env("@local/x/w__metadata", "metadata", "@local/x/w__crm__file")
	var refs []any
	for _, id := range []string{"@local/x/w__crm", "@local/x/w__a:b", "@local/x/w__renamed", "@local/x/w__metadata"} {
		refs = append(refs, map[string]any{"id": id, "version": 1})
	}
	r.artifact(artifact.Document{Pin: artifact.Pin{ID: "@local/x/w"}, Type: artifact.EnvironmentUniverse, Fields: map[string]any{
		"service_artifact_refs": refs, "metadata_refs": map[string]any{"m": map[string]any{"id": "@local/x/w__metadata__m", "version": 1}},
	}})
	r.task("@local/x/t", load("@local/x/w"))
	rep := r.must("out", fromTask("@local/x/t"))
	out := read(t, r.path("out"))
	for name, want := range (files{
		"artifacts/w/artifact.toml":          "type = \"environment_universe\"\nenvironment_artifacts = [\"w-a-b\", \"w-renamed\", \"w-metadata\"]\n",
		"artifacts/w/crm/c.json":             "{}",
		"artifacts/w/metadata/m/m.json":      "0",
		"artifacts/w-a-b/artifact.toml":      "type = \"environment\"\nenvironment_name = \"a:b\"\n",
		"artifacts/w-a-b/d.json":             "[]",
		"artifacts/w-renamed/artifact.toml":  "type = \"environment\"\nenvironment_name = \"other\"\nfile = \"w-crm-file\"\n",
		"artifacts/w-metadata/artifact.toml": "type = \"environment\"\nenvironment_name = \"metadata\"\nfile = \"w-crm-file\"\n",
		"artifacts/w-crm-file/c.json":        "{}",
		"artifacts/w-crm-file/artifact.toml": "type = \"file\"\n",
	}) {
		if out[name] != want {
			t.Errorf("%s is %q", name, out[name])
		}
	}
	if len(rep.Written) != 5 || len(out) != 10 {
		t.Errorf("%s\n%q", lineOf(rep.Written), out)
	}
}

// An image of a registry is named; contexts that don't fit into one folder become artifacts.
func TestImages(t *testing.T) {
	r := newRig(t)
	file := func(name, text string) artifact.Bytes {
		return artifact.Bytes{Path: name, Digest: r.put(text), Size: int64(len(text)), Mode: 0o644}
	}
	r.artifact(artifact.NewImageOf(artifact.Pin{ID: "@local/x/bot__agent_image"}, "registry.example/bot:1", ref.DigestOf([]byte("x")), ""))
	r.artifact(artifact.NewImageOf(artifact.Pin{ID: "@local/x/pulled"}, "registry.example/img:1", ref.DigestOf([]byte("y")), "about"))
	r.artifact(artifact.NewImage(artifact.Pin{ID: "@local/x/web__backend_image"}, "Dockerfile", "", []artifact.Bytes{file("Dockerfile", "FROM a\n"), file("env.toml", "old"), file("app.py", "1")}))
	r.artifact(artifact.NewImage(artifact.Pin{ID: "@local/x/web__frontend_image"}, "Dockerfile", "", []artifact.Bytes{file("Dockerfile", "FROM b\n")}))
	pin := func(id string) string { return fmt.Sprintf(`{"id":%q,"version":1,"type":"docker_image"}`, id) }
	r.doc(store.Doc{Kind: store.Agent, ID: "@local/x/bot", Type: "a2a_agent", Body: []byte(`{"docker_image_artifact":` + pin("@local/x/bot__agent_image") + `}`)})
	r.doc(store.Doc{Kind: store.Env, ID: "@local/x/web", Type: "website", Body: []byte(`{"service_name":"web","environment_name":null,"env_provider_type":null,"metadata":{"k":"v","n":null},"backend_docker_image_artifact":` +
		pin("@local/x/web__backend_image") + `,"frontend_docker_image_artifact":` + pin("@local/x/web__frontend_image") + `}`)})
	r.doc(store.Doc{Kind: store.Env, ID: "@local/x/mail", Type: "mcp_server", Body: []byte(`{"environment_name":"mail","env_provider_type":"acme","docker_image_artifact":` + pin("@local/x/pulled") + `}`)})
	r.o.Bundle.EnvProviders = []string{"acme"}
	r.task("@local/x/t", `[{"id":"v","type":"verify_a2a_agent_card","a2a_agent_id":"@local/x/bot"},{"id":"r","type":"reset_env","env_id":"@local/x/web"},{"id":"m","type":"reset_env","env_id":"@local/x/mail"}]`)
	rep := r.must("out", fromTask("@local/x/t"))
	got := lineOf(rep.Images) + "\n"
	for _, want := range []string{
		"agents/bot: image registry.example/bot:1@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n",
		"envs/web backend_image: image built from Dockerfile, 3 files, 11 B\n", "artifacts/web-frontend_image: image built from Dockerfile, 1 file, 7 B\n",
		"artifacts/pulled: image registry.example/img:1@sha256:a1fce4363854ff888cff4b8e7875d600c2682390412a8cf79b37d0b11148b0fa\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("images\n%slack %s", got, want)
		}
	}
	out := read(t, r.path("out"))
	for name, want := range (files{
		"agents/bot/agent.toml":                   "[image]\nref = \"registry.example/bot:1@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\"\n",
		"envs/web/env.toml":                       "type = \"website\"\nenvironment_name = \"web\"\nfrontend_image = \"web-frontend_image\"\n\n[backend_image]\ndockerfile = \"Dockerfile\"\n",
		"envs/web/Dockerfile":                     "FROM a\n",
		"envs/web/app.py":                         "1",
		"envs/mail/env.toml":                      "env_provider_type = \"acme\"\nenvironment_name = \"mail\"\nimage = \"pulled\"\n",
		"artifacts/pulled/artifact.toml":          "type = \"docker_image\"\ndescription = \"about\"\nref = \"registry.example/img:1@sha256:a1fce4363854ff888cff4b8e7875d600c2682390412a8cf79b37d0b11148b0fa\"\n",
		"artifacts/web-frontend_image/Dockerfile": "FROM b\n",
	}) {
		if out[name] != want {
			t.Errorf("%s is %q", name, out[name])
		}
	}
	if got := needLines(rep.Needs); len(got) != 1 || got[0] != "configuration: acme (env provider), at envs/mail" {
		t.Errorf("needs %q", got)
	}
	if got := lineOf(rep.LeftOut); got != "envs/web/env.toml: metadata.k: dropped: env.toml has no such key" {
		t.Errorf("left out %s", got)
	}
}
